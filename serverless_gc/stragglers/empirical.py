"""The law of recorded durations, of which some are only known to be longer than they were watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import Law, check_probability
from serverless_gc.stragglers.order import check_order
from serverless_gc.types import FloatArray

__all__ = ["Empirical"]


@dataclass(frozen=True, slots=True, eq=False)
class Empirical(Law):
    """Recorded durations as a law.

    Parameters
    ----------
    seconds
        Durations, ascending.
    weights
        Their probabilities.

    Notes
    -----
    `of` makes it from a record in which tasks were given up: their durations are censored, and leaving them out would
    make the law too fast. The weights are those of Kaplan and Meier (1958), with Efron's rule for what lies beyond the
    last finished task.

    Examples
    --------
    >>> law = Empirical.of([1.0, 2.0, 4.0], running=[3.0])
    >>> law.seconds.tolist(), law.weights.round(3).tolist()
    ([1.0, 2.0, 4.0], [0.25, 0.25, 0.5])
    """

    seconds: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, finished: Sequence[float] | FloatArray, running: Sequence[float] | FloatArray = ()) -> Empirical:
        """Make the law from durations of finished tasks, and ages at which others were given up.

        Raises
        ------
        InputError
            If no task has finished, or a duration is negative or not finite.
        """
        done, given_up = np.asarray(finished, np.float64), np.asarray(running, np.float64)
        every = np.concatenate([done, given_up])
        if not done.size:
            raise InputError("finished must hold at least one duration: a law cannot be made of tasks given up")
        if not np.isfinite(every).all() or every.min() < 0:
            raise InputError("durations must be at least 0 seconds and finite")
        ended = np.concatenate([np.ones(done.size, bool), np.zeros(given_up.size, bool)])
        order = np.lexsort((~ended, every))  # of equal times the finished come first
        every, ended = every[order], ended[order]
        at_risk = np.arange(every.size, 0, -1)
        ended[-1] = True
        alive = np.cumprod(np.where(ended, 1.0 - 1.0 / at_risk, 1.0))
        drop = -np.diff(alive, prepend=1.0)
        seconds, where = np.unique(every[ended], return_inverse=True)
        return cls(seconds, np.bincount(where, drop[ended]).astype(np.float64))

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw recorded durations."""
        return self.seconds[np.searchsorted(self._cdf[:-1], rng.random(shape), side="right")]

    @property
    def _cdf(self) -> FloatArray:
        return np.minimum(np.cumsum(self.weights), 1.0)

    def survival(self, t: FloatArray) -> FloatArray:
        """Weight of the longer ones."""
        alive = np.concatenate([[1.0], 1.0 - self._cdf])
        alive[-1] = 0.0
        return np.asarray(alive[np.searchsorted(self.seconds, np.asarray(t), side="right")])

    def quantile(self, q: float) -> float:
        """Shortest recorded duration with at least ``q`` of the weight up to it."""
        check_probability(q)
        at = int(np.searchsorted(self._cdf, q - 1e-12, side="left"))
        return float(self.seconds[min(at, len(self.seconds) - 1)])

    def mean(self) -> float:
        """Weighted mean."""
        return float(self.seconds @ self.weights)

    @property
    def breaks(self) -> tuple[float, ...]:
        """Every recorded duration."""
        return tuple(self.seconds[self.seconds > 0].tolist())

    def mean_order_stat(self, k: int, n: int) -> float:
        """Sum over the recorded durations; exact."""
        from scipy.special import betainc

        check_order(k, n)
        done = betainc(k, n - k + 1, self._cdf)
        done[-1] = 1.0
        return float(self.seconds @ np.diff(done, prepend=0.0))

    def mean_residual(self, age: float) -> float:
        """Mean time still to go for a task of this age; 0 beyond the last one."""
        older = self.seconds > age
        weight = float(self.weights[older].sum())
        return float((self.seconds[older] - age) @ self.weights[older]) / weight if weight > 0 else 0.0

    def longer_than(self, age: float, rng: np.random.Generator) -> float:
        """Draw a duration above ``age``; the longest one where none is recorded."""
        first = int(np.searchsorted(self.seconds, age, side="right"))
        if first == len(self.seconds):
            return max(age, float(self.seconds[-1]))
        below = float(self._cdf[first - 1]) if first else 0.0
        u = below + (1.0 - below) * rng.random()
        at = int(np.searchsorted(self._cdf, u, side="right"))
        return float(self.seconds[min(max(at, first), len(self.seconds) - 1)])

    def __repr__(self) -> str:
        return (
            f"Empirical({len(self.seconds)} durations, mean {self.mean():.3g} s, "
            f"p99 {self.quantile(0.99):.3g} s, longest {self.seconds[-1]:.3g} s)"
        )
