"""Global batches by tokens: asynchronous work that keeps the batch of synchronous training."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from serverless_gc.checks import check_whole
from serverless_gc.policies.firstk import FirstK
from serverless_gc.stateful import Stateful
from serverless_gc.types import Act, Arrival, TaskSpec, View, Wait

__all__ = ["GlobalBatch"]


class GlobalBatch(FirstK, Stateful):
    """Close after ``k`` results; each task carries the token of the global batch that its data belongs to.

    The ``j``-th task issued gets token ``j // k``. A task that is voided or given up returns its token, and the lowest
    tokens are handed out first; otherwise tokens would run away from versions.

    Parameters
    ----------
    k
        Results per update: the global batch over the batch of one task.
    first_token
        Token to begin with: the version that a run is taken up at.
    leftover, eager
        As for `FirstK`; by default every slot is always busy.

    Raises
    ------
    InputError
        If ``k`` or ``first_token`` is out of range.

    Notes
    -----
    W. Su et al., "GBA: A Tuning-free Approach to Switch between Synchronous and Asynchronous Training for
    Recommendation Models" (2022). Goes with `serverless_gc.transforms.TokenDecay` and
    `serverless_gc.aggregate.SumOver`. Synchronous training with ``k`` slots is the same with ``KSync(k)``.

    Examples
    --------
    >>> from serverless_gc.engine import Engine
    >>> engine = Engine(GlobalBatch(2), n_slots=5)
    >>> [action.task.token for action in engine.open(0.0)]
    [0, 0, 1, 1, 2]
    """

    remembered = ("_issued", "_returned", "_held")

    def __init__(
        self, k: int, *, first_token: int = 0, leftover: Literal["cancel", "keep"] = "keep", eager: bool = True
    ) -> None:
        super().__init__(k, leftover=leftover, eager=eager)
        self._issued = check_whole("first_token", first_token, 0) * self.k
        self._returned: list[int] = []  # a heap
        self._held: dict[str, int] = {}  # task id -> token

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Take back the tokens of what was voided; give every idle slot a task."""
        alive = {f.task.task_id for f in view.in_flight()}
        for task_id in [held for held in self._held if held not in alive]:
            self._give_back(task_id)
        return [self._with_token(task) for task in super().open(view)]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close at the ``k``-th result."""
        self._held.pop(arrival.task.task_id, None)
        act = super().on_arrival(view, arrival)
        return Wait(tuple(self._with_token(task) for task in act.issue)) if isinstance(act, Wait) else act

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Take back the token; give up when too few tasks are left."""
        self._give_back(task.task_id)
        return super().on_failure(view, task)

    def _with_token(self, task: TaskSpec) -> TaskSpec:
        if self._returned:
            token = heapq.heappop(self._returned)
        else:
            token = self._issued // self.k
            self._issued += 1
        self._held[task.task_id] = token
        return replace(task, token=token)

    def _give_back(self, task_id: str) -> None:
        if task_id in self._held:
            heapq.heappush(self._returned, self._held.pop(task_id))
