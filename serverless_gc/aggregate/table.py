"""A table of the latest gradient of each group: who has nothing new to say keeps counting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serverless_gc.aggregate.weights import reported
from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["GradientTable"]


class GradientTable(Stateful):
    """The mean over groups of the last gradient that each sent.

    Parameters
    ----------
    n_groups
        How many groups there are; tasks carry theirs as ``payload["group"]``.

    Raises
    ------
    InputError
        If ``n_groups`` is not positive; when called, if a result names no group.

    Notes
    -----
    The server of CADA: T. Chen, Z. Guo, Y. Sun, W. Yin, "CADA: Communication-Adaptive Distributed Adam" (2021). A group
    that never sent counts as zero. ``meta["sent"]`` has the gradients that are new in this update and
    ``meta["versions"]`` those of the models they were taken at, by group.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> def sends(group, body):
    ...     return Arrival(TaskSpec(f"0-{group}", group, 0, payload={"group": group}), 0.0, 1.0, body=body)
    >>> table = GradientTable(2)
    >>> table.combine([sends(0, np.array([2.0])), sends(1, np.array([4.0]))], ctx).direction
    array([3.])
    >>> table.combine([sends(0, None), sends(1, np.array([8.0]))], ctx).direction
    array([5.])
    """

    remembered = ("gradients",)

    def __init__(self, n_groups: int) -> None:
        self.n_groups = check_whole("n_groups", n_groups, 1)
        self.gradients: dict[int, Array] = {}

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Enter what is new and average the table."""
        new = {self._group(arrival): arrival for arrival in reported(arrivals)}
        self.gradients.update({group: arrival.body for group, arrival in new.items()})
        total = np.zeros_like(ctx.x)
        for group in sorted(self.gradients):
            total = total + self.gradients[group]
        meta = {
            "sent": {group: arrival.body for group, arrival in new.items()},
            "versions": {group: arrival.task.version for group, arrival in new.items()},
        }
        return Update(total / self.n_groups, n_eff=float(sum(a.work_done for a in new.values())), meta=meta)

    def _group(self, arrival: Arrival) -> int:
        group = arrival.task.payload.get("group")
        if not isinstance(group, int) or not 0 <= group < self.n_groups:
            raise InputError(
                f"payload['group'] of task {arrival.task.task_id} must be in 0..{self.n_groups - 1}, got {group!r}"
            )
        return group
