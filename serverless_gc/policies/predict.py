"""How many results a second can be expected if a round is closed at the first, second, ... result.

A predictor learns from rounds: the seconds of the tasks that finished, and for the others how long they had run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import NormalDist
from typing import Protocol

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.stateful import Stateful
from serverless_gc.types import FloatArray

__all__ = ["EmpiricalWindow", "KalmanLog", "Predictor", "StaticNormal", "best_cutoff", "normal_order_stat"]

_SHORTEST = 1e-9  # seconds; a clock may say 0


def normal_order_stat(k: int, n: int, mean: float = 0.0, sd: float = 1.0) -> float:
    """Return the approximate mean of the ``k``-th smallest of ``n`` normal variables (Elfving, Blom).

    Examples
    --------
    >>> round(normal_order_stat(10, 10), 6), round(normal_order_stat(8, 10), 6)
    (1.559372, 0.658052)
    """
    if not 1 <= k <= n:
        raise InputError(f"k must be at least 1 and at most n={n}, got {k}")
    return mean + sd * NormalDist().inv_cdf((k - math.pi / 8) / (n - math.pi / 4 + 1))


def best_cutoff(rates: FloatArray, least: int = 1) -> int:
    """Return the number of results, ``least`` or more, at which ``rates[number - 1]`` is largest.

    Examples
    --------
    >>> best_cutoff(np.array([5.0, 2.0, 4.0, 3.0]), least=2)
    3
    """
    return least + int(np.argmax(rates[least - 1 :]))


class Predictor(Protocol):
    """Forecasts the next round from past ones."""

    @property
    def ready(self) -> bool:
        """Whether enough is known to forecast at all."""
        ...

    def observe(self, finished: Mapping[int, float], unfinished: Mapping[int, float]) -> None:
        """Learn from a round: slot to seconds, of tasks that finished and of tasks cut off."""
        ...

    def rates(self) -> FloatArray:
        """Return expected results per second, shape ``(n_slots,)``: entry ``c - 1`` for closing at the ``c``-th."""
        ...


class StaticNormal(Stateful):
    """Times are normal with one mean and variance, estimated from the rounds in which everybody finished.

    Examples
    --------
    >>> predictor = StaticNormal()
    >>> predictor.observe({0: 1.0, 1: 1.1, 2: 0.9, 3: 1.0}, {})
    >>> best_cutoff(predictor.rates())
    4
    """

    remembered = ("_n_slots", "_count", "_mean", "_squares", "_least")

    def __init__(self) -> None:
        self._n_slots = self._count = 0
        self._mean = self._squares = 0.0
        self._least = math.inf

    @property
    def ready(self) -> bool:
        """Whether there was a complete round."""
        return self._count > 1

    def observe(self, finished: Mapping[int, float], unfinished: Mapping[int, float]) -> None:
        """Learn from a complete round; the finished tasks of another say nothing of the slow ones."""
        if unfinished:
            return
        self._n_slots = len(finished)
        for seconds in finished.values():
            self._count += 1
            away = seconds - self._mean
            self._mean += away / self._count
            self._squares += away * (seconds - self._mean)
            self._least = min(self._least, seconds)

    def rates(self) -> FloatArray:
        """Return number over mean time, in closed form; no time is taken to be below the least one seen."""
        n, sd = self._n_slots, math.sqrt(self._squares / (self._count - 1))
        least = max(self._least, _SHORTEST)
        times = [max(normal_order_stat(c, n, self._mean, sd), least) for c in range(1, n + 1)]
        return np.asarray(np.arange(1, n + 1) / np.array(times), dtype=np.float64)


class EmpiricalWindow(Stateful):
    """The sorted times of the last complete rounds, averaged.

    It needs complete rounds now and then: see ``full_every`` of `serverless_gc.policies.Cutoff`.

    Parameters
    ----------
    rounds
        How many complete rounds are looked at.

    Examples
    --------
    >>> window = EmpiricalWindow()
    >>> window.observe({0: 4.0, 1: 1.0, 2: 2.0}, {})
    >>> window.rates().tolist()
    [1.0, 1.0, 0.75]
    """

    remembered = ("_window",)

    def __init__(self, rounds: int = 20) -> None:
        self._window: deque[FloatArray] = deque(maxlen=check_whole("rounds", rounds, 1))

    @property
    def ready(self) -> bool:
        """Whether there was a complete round."""
        return bool(self._window)

    def observe(self, finished: Mapping[int, float], unfinished: Mapping[int, float]) -> None:
        """Learn from a complete round."""
        if not unfinished:
            self._window.append(np.sort(np.array(list(finished.values()))))

    def rates(self) -> FloatArray:
        """Return number over mean time."""
        size = len(self._window[-1])
        times = np.mean([times for times in self._window if len(times) == size], axis=0)
        return np.asarray(np.arange(1, size + 1) / np.maximum(times, _SHORTEST), dtype=np.float64)


def _logs(seconds: Mapping[int, float]) -> FloatArray:
    return np.asarray(np.log(np.maximum(list(seconds.values()), _SHORTEST)), dtype=np.float64)


class KalmanLog(Stateful):
    """Per slot, the logarithm of the time is followed by a Kalman filter; a cut-off task counts as longer than its age.

    Parameters
    ----------
    phi
        How much of a slot's deviation from the mean lasts from one round to the next.
    drift
        Variance that a slot's level gains per round.
    noise
        Variance of a time around its level.
    n_samples
        Joint samples for the forecast.
    seed
        Of the samples.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Notes
    -----
    A small state-space model in the place of the learned one of M. Teng, F. Wood, "Bayesian Distributed Stochastic
    Gradient Descent" (2018). Rare large stragglers that hit any slot are not what it models.

    Examples
    --------
    >>> followed = KalmanLog()
    >>> for _ in range(20):
    ...     followed.observe({0: 1.0, 1: 1.0, 2: 10.0}, {})
    >>> int(followed.rates().argmax()) + 1  # the third is not worth waiting for
    2
    """

    remembered = ("_level", "_variance")

    def __init__(
        self, phi: float = 1.0, drift: float = 0.03, noise: float = 0.01, *, n_samples: int = 256, seed: int = 0
    ) -> None:
        if not 0 <= phi <= 1:
            raise InputError(f"phi must be in [0, 1], got {phi}")
        if not drift >= 0:
            raise InputError(f"drift must be at least 0, got {drift}")
        if not noise > 0:
            raise InputError(f"noise must be positive, got {noise}")
        n_samples = check_whole("n_samples", n_samples, 1)
        self.phi = phi
        self.drift = drift
        self.noise = noise
        self._level: FloatArray = np.zeros(0)
        self._variance: FloatArray = np.zeros(0)
        self._rng = np.random.default_rng(seed)
        self._n_samples = n_samples
        self._draws: FloatArray = np.zeros((n_samples, 0))

    @property
    def ready(self) -> bool:
        """Whether there was a round."""
        return self._level.size > 0

    def observe(self, finished: Mapping[int, float], unfinished: Mapping[int, float]) -> None:
        """Take one step of the filter; the first is a round in which nobody was cut off."""
        n_slots = 1 + max((*finished, *unfinished), default=-1)
        if not self.ready or n_slots > self._level.size:
            if finished and not unfinished:
                slots = list(finished)
                self._level = np.full(n_slots, np.mean(_logs(finished)))  # of a slot that failed nothing is known
                self._level[slots] = _logs(finished)
                self._variance = np.full(n_slots, 1.0)
                self._variance[slots] = self.noise
            return
        mean = float(np.mean(self._level))
        self._level = mean + self.phi * (self._level - mean)
        # What is cut off again and again says less and less: the variance is capped where it would explain anything.
        self._variance = np.minimum(self.phi**2 * self._variance + self.drift, 1.0)
        self._correct(finished, _logs(finished), exact=True)
        self._correct(unfinished, self._expected_beyond(list(unfinished), _logs(unfinished)), exact=False)

    def _correct(self, slots: Mapping[int, float], seen: FloatArray, *, exact: bool) -> None:
        at = list(slots)
        gain = self._variance[at] / (self._variance[at] + self.noise)
        self._level[at] += gain * (seen - self._level[at])
        if exact:
            self._variance[at] *= 1.0 - gain

    def _expected_beyond(self, slots: list[int], cut: FloatArray) -> FloatArray:
        """Mean of the log time, given that it is above ``cut``."""
        from scipy.special import erfcx

        spread = np.sqrt(self._variance[slots] + self.noise)
        a = (cut - self._level[slots]) / spread
        hazard = math.sqrt(2.0 / math.pi) / erfcx(a / math.sqrt(2.0))  # density over survival, without underflow
        return np.asarray(self._level[slots] + spread * hazard, dtype=np.float64)

    def rates(self) -> FloatArray:
        """Mean over joint samples of number over time."""
        n = self._level.size
        if self._draws.shape[1] != n:
            self._draws = self._rng.standard_normal((self._n_samples, n))
        variance = np.minimum(self.phi**2 * self._variance + self.drift, 1.0)
        times = np.sort(np.exp(self._level + np.sqrt(variance + self.noise) * self._draws), axis=1)
        return np.asarray(np.mean(np.arange(1, n + 1) / times, axis=0), dtype=np.float64)
