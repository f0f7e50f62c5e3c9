"""Injected stragglers and lost attempts in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from serverless_gc.inject import Faults, Stragglers
from serverless_gc.types import StragglerModel, TaskSpec, Timing

__all__ = ["Injected", "Unanswered"]


@dataclass(frozen=True, slots=True)
class Injected:
    """A delay model with stragglers injected: the same description as a session's ``inject=``.

    Every task takes at least ``stragglers.base`` seconds; a slow one takes ``stragglers.slowdown`` times longer. The
    padding passes before the work, or while it is done if the task publishes partial results.

    Parameters
    ----------
    model
        Law of the delays without injection.
    stragglers
        Which tasks are slow.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> model = Injected(Constant(1.0), Stragglers(fraction={3}, slowdown=10))
    >>> rng = np.random.default_rng(0)
    >>> [model.sample(slot, 0, 1.0, rng).total for slot in range(5)]
    [1.0, 1.0, 1.0, 10.0, 1.0]
    """

    model: StragglerModel
    stragglers: Stragglers

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of a first attempt."""
        return self._slowed(self.model.sample(slot, k, work, rng), self.stragglers.factor(slot, k))

    def sample_task(self, task: TaskSpec, rng: np.random.Generator) -> Timing:
        """Draw the timing of any attempt: a retry or copy has a draw of its own, unless stragglers persist."""
        timing = self.model.sample(task.slot, task.version, task.work, rng)
        factor = self.stragglers.factor(task.slot, task.version, task.attempt)
        return self._slowed(timing, factor, spread=bool(task.milestones))

    def _slowed(self, timing: Timing, factor: float, *, spread: bool = False) -> Timing:
        padding = max(0.0, self.stragglers.base - timing.total)
        before, during = (0.0, padding) if spread else (padding, 0.0)
        return Timing(
            factor * (timing.start + before),
            factor * timing.read,
            factor * (timing.compute + during),
            factor * timing.write,
        )


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A delay model with attempts that never answer: those that ``faults`` drops take for ever.

    Parameters
    ----------
    model
        Law of the other attempts.
    faults
        Which are dropped.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> model = Unanswered(Constant(1.0), Faults(drop={3}))
    >>> rng = np.random.default_rng(0)
    >>> [model.sample(slot, 0, 1.0, rng).total for slot in range(5)]
    [1.0, 1.0, 1.0, inf, 1.0]
    """

    model: StragglerModel
    faults: Faults

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of a first attempt."""
        return self._lost(slot, k, self.model.sample(slot, k, work, rng))

    def sample_task(self, task: TaskSpec, rng: np.random.Generator) -> Timing:
        """Draw the timing of any attempt."""
        drawn = getattr(self.model, "sample_task", None)
        if drawn is None:
            return self.sample(task.slot, task.version, task.work, rng)
        return self._lost(task.slot, task.version, drawn(task, rng))

    def _lost(self, slot: int, version: int, timing: Timing) -> Timing:
        return Timing(start=math.inf) if self.faults.hits("drop", slot, version) else timing
