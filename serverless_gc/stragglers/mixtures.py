"""Laws made of other laws: mixtures, shifts, cold starts, replicas, hyper-exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import (
    Exponential,
    Law,
    check_not_negative,
    check_probability,
    late_survival,
)
from serverless_gc.stragglers.order import bisect_quantile
from serverless_gc.types import FloatArray, Timing

__all__ = ["ColdStart", "HyperExponential", "Mixture", "Replicas", "Shifted"]


@dataclass(frozen=True, slots=True)
class Mixture(Law):
    """One of several laws, chosen anew for each task.

    Parameters
    ----------
    parts
        The laws.
    weights
        Their probabilities, which add up to 1.

    Raises
    ------
    InputError
        If the numbers of laws and weights differ, or the weights are no probabilities.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> Mixture((Constant(1.0), Constant(5.0)), (0.75, 0.25)).mean()
    2.0
    """

    parts: tuple[Law, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.parts or len(self.parts) != len(self.weights):
            raise InputError(f"weights must be one for each of the {len(self.parts)} parts, got {len(self.weights)}")
        if min(self.weights) < 0 or not math.isclose(math.fsum(self.weights), 1.0, abs_tol=1e-9):
            raise InputError(f"weights must be at least 0 and add up to 1, got {self.weights}")

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.totals(1.0, rng, shape)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks of ``work`` units."""
        edges = np.cumsum(self.weights)[:-1]
        chosen = np.searchsorted(edges, rng.random(shape), side="right")
        times = np.empty(chosen.shape)
        for i, part in enumerate(self.parts):
            mine = chosen == i
            times[mine] = part.totals(work, rng, int(mine.sum()))
        return times

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of one task."""
        chosen = int(np.searchsorted(np.cumsum(self.weights)[:-1], rng.random(), side="right"))
        return self.parts[chosen].sample(slot, k, work, rng)

    def survival(self, t: FloatArray) -> FloatArray:
        """Weighted mean of the parts' survival."""
        times = np.asarray(t)
        total = np.zeros(times.shape)
        for part, weight in zip(self.parts, self.weights, strict=True):
            total += weight * part.survival(times)
        return total

    def quantile(self, q: float) -> float:
        """By bisection between the quantiles of the parts."""
        check_probability(q)
        each = [part.quantile(q) for part, weight in zip(self.parts, self.weights, strict=True) if weight]
        return bisect_quantile(self.survival, q, math.nextafter(min(each), -1.0), max(each))

    def mean(self) -> float:
        """Weighted mean of the parts' means."""
        return math.fsum(w * part.mean() for part, w in zip(self.parts, self.weights, strict=True) if w)

    @property
    def breaks(self) -> tuple[float, ...]:
        """Those of the parts."""
        return tuple(sorted({b for part in self.parts for b in part.breaks}))


def HyperExponential(means: Sequence[float], weights: Sequence[float]) -> Mixture:  # noqa: N802 - a law
    """Exponential with a mean that is drawn for each task: the hazard falls with age.

    Examples
    --------
    >>> round(HyperExponential([0.2, 8.2], [0.9, 0.1]).mean(), 9)
    1.0
    """
    return Mixture(tuple(Exponential(1.0 / mean) for mean in means), tuple(weights))


@dataclass(frozen=True, slots=True)
class Shifted(Law):
    """Another law, ``shift`` seconds later."""

    law: Law
    shift: float

    def __post_init__(self) -> None:
        check_not_negative(shift=self.shift)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.shift + self.law.draws(rng, shape)

    def survival(self, t: FloatArray) -> FloatArray:
        """``S(t - shift)``."""
        return late_survival(self.law, np.asarray(t) - self.shift)

    def quantile(self, q: float) -> float:
        """Take the law's, plus the shift."""
        return self.shift + self.law.quantile(q)

    def mean(self) -> float:
        """Take the law's, plus the shift."""
        return self.shift + self.law.mean()

    @property
    def breaks(self) -> tuple[float, ...]:
        """Those of the law, and where it begins."""
        return tuple(sorted({self.shift + b for b in (0.0, *self.law.breaks)} - {0.0}))

    def mean_order_stat(self, k: int, n: int) -> float:
        """Take the law's, plus the shift."""
        return self.shift + self.law.mean_order_stat(k, n)


@dataclass(frozen=True, slots=True)
class ColdStart(Law):
    """Another law, ``seconds`` later with probability ``p_cold``. The start does not grow with the work.

    Examples
    --------
    >>> law = ColdStart(Exponential(5.0), p_cold=0.02, seconds=2.0)
    >>> round(law.mean_order_stat(50, 50), 6)
    1.759325
    >>> round(ColdStart(Exponential(5.0), p_cold=0.01, seconds=2.0).p_any(100), 3)
    0.634
    """

    law: Law
    p_cold: float
    seconds: float

    def __post_init__(self) -> None:
        check_not_negative(seconds=self.seconds)
        if not 0 <= self.p_cold <= 1:
            raise InputError(f"p_cold must be at least 0 and at most 1, got {self.p_cold}")

    @property
    def _mixture(self) -> Mixture:
        return Mixture((self.law, Shifted(self.law, self.seconds)), (1.0 - self.p_cold, self.p_cold))

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.totals(1.0, rng, shape)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks of ``work`` units."""
        start = np.where(rng.random(shape) < self.p_cold, self.seconds, 0.0)
        return start + self.law.totals(work, rng, shape)

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of one task."""
        start = self.seconds if rng.random() < self.p_cold else 0.0
        timing = self.law.sample(slot, k, work, rng)
        return replace(timing, start=timing.start + start)

    def survival(self, t: FloatArray) -> FloatArray:
        """``(1 - p_cold) S(t) + p_cold S(t - seconds)``."""
        return self._mixture.survival(t)

    def quantile(self, q: float) -> float:
        """By bisection."""
        return self._mixture.quantile(q)

    def mean(self) -> float:
        """Take the law's, plus ``p_cold * seconds``."""
        return self.law.mean() + self.p_cold * self.seconds

    @property
    def breaks(self) -> tuple[float, ...]:
        """Those of the warm and of the cold case."""
        return self._mixture.breaks

    def p_any(self, n: int) -> float:
        """Probability that at least one of ``n`` starts is cold."""
        return -math.expm1(n * math.log1p(-self.p_cold)) if self.p_cold < 1 else 1.0


@dataclass(frozen=True, slots=True)
class Replicas(Law):
    """The first of ``copies`` independent tasks: what a group of equal workers takes.

    Examples
    --------
    >>> round(Replicas(Exponential(1.0), 3).mean_order_stat(10, 10), 6)
    0.976323
    """

    law: Law
    copies: int

    def __post_init__(self) -> None:
        if self.copies != int(self.copies) or self.copies < 1:
            raise InputError(f"copies must be an integer of at least 1, got {self.copies!r}")

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.totals(1.0, rng, shape)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many groups of tasks of ``work`` units."""
        sizes = (shape,) if isinstance(shape, int) else shape
        return np.asarray(self.law.totals(work, rng, (self.copies, *sizes)).min(axis=0))

    def survival(self, t: FloatArray) -> FloatArray:
        """``S(t)**copies``."""
        return np.asarray(self.law.survival(t) ** self.copies)

    def quantile(self, q: float) -> float:
        """Take the law's at ``1 - (1 - q)**(1 / copies)``."""
        check_probability(q)
        return self.law.quantile(-math.expm1(math.log1p(-q) / self.copies))

    def mean(self) -> float:
        """By the law's own order statistics."""
        return self.law.mean_order_stat(1, self.copies)

    @property
    def breaks(self) -> tuple[float, ...]:
        """Those of the law."""
        return self.law.breaks
