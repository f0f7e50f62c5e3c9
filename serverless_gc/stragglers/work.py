"""How the time of a task grows with its work, and how much of it is done by a given time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import Law, check_positive
from serverless_gc.types import FloatArray, Timing

__all__ = ["Additive", "LinearProgress"]


@dataclass(frozen=True, slots=True)
class Additive:
    """A task of ``work`` units takes the sum of so many independent draws: what a worker that reports parts needs.

    The other laws *scale*: the one draw is multiplied by the work.

    Parameters
    ----------
    unit
        Law of one unit.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> rng = np.random.default_rng(0)
    >>> Additive(Constant(2.0)).sample(0, 0, 3.0, rng).total
    6.0
    >>> Additive(Constant(2.0)).unit_ends(3, rng)
    array([2., 4., 6.])
    """

    unit: Law

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:  # noqa: ARG002 - i.i.d.
        """Draw the timing of one task of a whole number of units."""
        return Timing(compute=float(self.unit.draws(rng, _whole(work)).sum()))

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks."""
        sizes = (shape,) if isinstance(shape, int) else shape
        return np.asarray(self.unit.draws(rng, (_whole(work), *sizes)).sum(axis=0))

    def unit_ends(self, work: int, rng: np.random.Generator) -> FloatArray:
        """Draw when each unit of one task is done, ``(work,)`` seconds after the task's start."""
        return np.cumsum(self.unit.draws(rng, _whole(work)))


@dataclass(frozen=True, slots=True)
class LinearProgress:
    """A draw is the time of ``nominal`` units, and progress within a task is linear.

    Parameters
    ----------
    law
        Law of the time of the nominal work.
    nominal
        Units of work, such as samples, that it is for.

    Notes
    -----
    The model of Anytime Minibatch (Ferdinand, Al-Lawati, Draper and Nokleby, ICLR 2019).

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> model = LinearProgress(Constant(4.0), nominal=60)
    >>> model.sample(0, 0, 30.0, np.random.default_rng(0)).total
    2.0
    >>> model.work_done_by(np.array([4.0, 8.0]), 1.0)
    array([15.,  7.])
    """

    law: Law
    nominal: float

    def __post_init__(self) -> None:
        check_positive(nominal=self.nominal)

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of one task."""
        return self.law.sample(slot, k, work / self.nominal, rng)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks."""
        return self.law.totals(work / self.nominal, rng, shape)

    def work_done_by(self, seconds: FloatArray, dt: float) -> FloatArray:
        """Return whole units done after ``dt`` seconds by workers whose nominal work takes ``seconds``."""
        return np.floor(self.nominal * dt / np.asarray(seconds))


def _whole(work: float) -> int:
    if work < 1 or not math.isclose(work, round(work)):
        raise InputError(f"work must be a whole number of units, at least 1, got {work}: each unit has its own draw")
    return round(work)
