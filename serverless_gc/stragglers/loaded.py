"""Delays of tasks that hold different amounts of work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.types import FloatArray, StragglerModel, TaskSpec, Timing

__all__ = ["Loaded"]


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A delay model whose tasks ask for as much work as their slot holds.

    Parameters
    ----------
    model
        Law of a task of one unit of work.
    work
        ``(n_slots,)`` units.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> Loaded(Constant(2.0), np.array([1.0, 3.0])).sample(1, 0, 1.0, np.random.default_rng(0)).total
    6.0
    """

    model: StragglerModel
    work: FloatArray

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of a first attempt."""
        return self.model.sample(slot, k, work * float(self.work[slot]), rng)

    def sample_task(self, task: TaskSpec, rng: np.random.Generator) -> Timing:
        """Draw the timing of any attempt."""
        sample_task = getattr(self.model, "sample_task", None)
        if sample_task is None:
            return self.sample(task.slot, task.version, task.work, rng)
        timing: Timing = sample_task(replace(task, work=task.work * float(self.work[task.slot])), rng)
        return timing
