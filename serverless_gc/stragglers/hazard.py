"""Whether giving up late tasks and starting afresh is wise: it depends on what a late task has still to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.errors import InputError
from serverless_gc.stragglers.empirical import Empirical
from serverless_gc.types import FloatArray

BoolArray: TypeAlias = NDArray[np.bool_]

__all__ = ["Hazard", "hazard"]

_FEWEST = 30
_FEW = 10
"""Tasks that must have finished beyond an age, and still be watched at the horizon, for either to say anything."""
_AT = (0.25, 0.5, 0.75, 0.9)
_SURE = 3.0
"""Standard errors. Several ages are looked at: one of them is beyond two in a third of all memoryless records."""
_WISE: dict[str, Literal["keep", "cancel", "either"]] = {"rising": "keep", "falling": "cancel", "flat": "either"}


@dataclass(frozen=True, slots=True)
class Hazard:
    """How the time still to go of a task depends on its age.

    Attributes
    ----------
    ages
        Ages in seconds: half the median, quartiles and the ninth decile of the durations, as far as enough tasks
        finished later.
    residuals
        Mean seconds still to go at these ages.
    fresh
        Mean seconds of a fresh task, for each age.
    horizon
        Up to which age enough tasks were watched. ``residuals`` and ``fresh`` are both counted over the
        ``horizon - age`` seconds that can be compared, no further.
    decisive
        Which of the ages `trend` is that of: the oldest at which the difference is certain, else the oldest.
    trend
        ``"falling"`` hazard: old tasks have longer to go than fresh ones; ``"rising"``: shorter; ``"flat"``: neither is
        certain.
    leftover
        What to do with late tasks at the end of a round: ``"cancel"``, ``"keep"``, or ``"either"``.
    """

    ages: tuple[float, ...]
    residuals: tuple[float, ...]
    fresh: tuple[float, ...]
    horizon: float
    decisive: int
    trend: Literal["rising", "falling", "flat"]
    leftover: Literal["keep", "cancel", "either"]

    def seen(self) -> str:
        """Say in words what `trend` was decided by."""
        age, residual, fresh = self.ages[self.decisive], self.residuals[self.decisive], self.fresh[self.decisive]
        return (
            f"in the {self.horizon - age:.3g} s after an age of {age:.3g} s a task runs {residual:.3g} s on, a fresh "
            f"one {fresh:.3g} s"
        )

    def warning(self, chosen: Literal["keep", "cancel"]) -> str:
        """Say in a sentence why the chosen ``leftover`` is the wrong one; empty if it is not."""
        if self.leftover in {"either", chosen}:
            return ""
        return f"leftover={chosen!r} is the slower choice here: {self.seen()}; use leftover={self.leftover!r}"


def hazard(
    finished: Sequence[float] | FloatArray,
    running: Sequence[float] | FloatArray = (),
    *,
    resamples: int = 100,
    seed: int = 0,
) -> Hazard:
    """Tell from logged durations whether late tasks should be kept or given up.

    Replacing an old task by a fresh one gains when the old one's time still to go is longer than a fresh task. The mean
    residual is compared with the mean at several ages; the trend is that of the oldest age at which the difference is
    beyond three standard errors (bootstrap). The comparison ends at the age up to which enough tasks were watched:
    what comes later was hardly seen, and where tasks were given up a law cut off there would look rising, whatever it
    is.

    Parameters
    ----------
    finished
        Durations of finished tasks, in seconds.
    running
        Ages at which other tasks were given up; leaving them out would hide the slow ones.
    resamples, seed
        Of the bootstrap.

    Raises
    ------
    InputError
        If there are fewer than 30 finished tasks, or too few of them ended late enough to compare anything.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hazard(1.0 + rng.exponential(size=500)).leftover, hazard(rng.weibull(0.5, 500)).leftover
    ('keep', 'cancel')
    """
    done, given_up = np.asarray(finished, np.float64), np.asarray(running, np.float64)
    if done.size < _FEWEST:
        raise InputError(f"finished must hold at least {_FEWEST} durations to tell a trend, got {done.size}")
    law = Empirical.of(done, given_up)
    horizon = float(np.sort(np.concatenate([done, given_up]))[-_FEW])
    asked = sorted({0.5 * law.quantile(0.5), *(law.quantile(q) for q in _AT)})
    ages = [age for age in asked if np.count_nonzero((done > age) & (done <= horizon)) >= _FEW]
    if not ages:
        raise InputError("too few tasks finished after half the median time to tell a trend: most were given up early")
    every = np.concatenate([done, given_up])
    ended = np.arange(every.size) < done.size
    residuals, fresh = _to_go(every, ended, ages, horizon)
    rng = np.random.default_rng(seed)
    excess = []
    for _ in range(resamples):
        picked = rng.integers(every.size, size=every.size)
        old, new = _to_go(every[picked], ended[picked], ages, horizon)
        excess.append(old - new)
    error = np.std(excess, axis=0)
    trend: Literal["rising", "falling", "flat"] = "flat"
    decisive = len(ages) - 1
    for i, (late, spread) in enumerate(zip(residuals - fresh, error, strict=True)):
        if abs(late) > _SURE * spread + 1e-9 * law.mean():
            trend, decisive = ("falling" if late > 0 else "rising"), i
    return Hazard(tuple(ages), tuple(residuals.tolist()), tuple(fresh.tolist()), horizon, decisive, trend, _WISE[trend])


def _to_go(every: FloatArray, ended: BoolArray, ages: Sequence[float], horizon: float) -> tuple[FloatArray, FloatArray]:
    """Return mean seconds still to go at each age, and of a fresh task over the same time, by Kaplan and Meier."""
    order = np.lexsort((~ended, every))
    times, ends = np.minimum(every[order], horizon), ended[order]
    alive = np.cumprod(np.where(ends, 1.0 - 1.0 / np.arange(times.size, 0, -1), 1.0))
    before = np.concatenate([[1.0], alive[:-1]])
    grid = np.concatenate([[0.0], times])
    area = np.concatenate([[0.0], np.cumsum(np.diff(grid) * before)])  # under the survival curve, up to each time
    at = np.asarray(ages)
    left = np.concatenate([[1.0], alive])[np.searchsorted(every[order], at, side="right")]
    residuals = np.divide(area[-1] - np.interp(at, grid, area), left, out=np.zeros_like(at), where=left > 0)
    return residuals, np.asarray(np.interp(horizon - at, grid, area))
