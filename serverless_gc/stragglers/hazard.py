"""Whether giving up late tasks and starting afresh is wise: it depends on what a late task has still to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.empirical import Empirical
from serverless_gc.types import FloatArray

__all__ = ["Hazard", "hazard"]

_FEWEST = 30
_AT = (0.25, 0.5, 0.75, 0.9)
_SURE = 2.0  # standard errors
_WISE: dict[str, Literal["keep", "cancel", "either"]] = {"rising": "keep", "falling": "cancel", "flat": "either"}


@dataclass(frozen=True, slots=True)
class Hazard:
    """How the time still to go of a task depends on its age.

    Attributes
    ----------
    ages
        Ages in seconds: quartiles and the ninth decile of the durations.
    residuals
        Mean seconds still to go at these ages.
    fresh
        Mean seconds of a fresh task.
    trend
        ``"falling"`` hazard: old tasks have longer to go than fresh ones; ``"rising"``: shorter; ``"flat"``: neither is
        certain.
    leftover
        What to do with late tasks at the end of a round: ``"cancel"``, ``"keep"``, or ``"either"``.
    """

    ages: tuple[float, ...]
    residuals: tuple[float, ...]
    fresh: float
    trend: Literal["rising", "falling", "flat"]
    leftover: Literal["keep", "cancel", "either"]

    def warning(self, chosen: Literal["keep", "cancel"]) -> str:
        """Say in a sentence why the chosen ``leftover`` is the wrong one; empty if it is not."""
        if self.leftover in {"either", chosen}:
            return ""
        return (
            f"leftover={chosen!r} is the slower choice here: after {self.ages[-1]:.3g} s a task has "
            f"{self.residuals[-1]:.3g} s to go on average, a fresh one takes {self.fresh:.3g} s; "
            f"use leftover={self.leftover!r}"
        )


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
    beyond two standard errors (bootstrap).

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
        If there are fewer than 30 finished tasks.

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
    ages = sorted({law.quantile(q) for q in _AT})
    excess = _excess(law, ages)
    rng = np.random.default_rng(seed)
    drawn = np.array(
        [_excess(Empirical.of(rng.choice(done, done.size), _resampled(given_up, rng)), ages) for _ in range(resamples)]
    )
    error = drawn.std(axis=0)
    trend: Literal["rising", "falling", "flat"] = "flat"
    for late, spread in zip(excess, error, strict=True):
        if abs(late) > _SURE * spread:
            trend = "falling" if late > 0 else "rising"
    return Hazard(tuple(ages), tuple(law.mean_residual(a) for a in ages), law.mean(), trend, _WISE[trend])


def _excess(law: Empirical, ages: Sequence[float]) -> FloatArray:
    """Return by how much longer than a fresh task an old one has to go, at each age."""
    return np.array([law.mean_residual(age) for age in ages]) - law.mean()


def _resampled(values: FloatArray, rng: np.random.Generator) -> FloatArray:
    return rng.choice(values, values.size) if values.size else values
