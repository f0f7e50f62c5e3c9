"""Groups of workers that do the same work: the first of each group is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.errors import InputError
from serverless_gc.policies.triggers import LazyTrigger
from serverless_gc.policies.words import given_up, numbers
from serverless_gc.types import Abort, Act, Array, Arrival, Close, TaskSpec, Update, View, Wait

__all__ = ["Groups"]


class Groups:
    """Close when one member of every group asked has answered; the first of each is used.

    Parameters
    ----------
    groups
        Slots of each group; a group's members hold the same data. Groups of one give the ungrouped scheme.
    trigger
        Decides which groups are asked (`serverless_gc.policies.LagPSTrigger`), or lets workers decide whether to send
        (`serverless_gc.policies.CADA2Trigger`). Tasks carry its payload, and the group's number as ``"group"``.

    Raises
    ------
    InputError
        If a group is empty or two share a slot.

    Notes
    -----
    F. Zhu, J. Zhang, O. Simeone, X. Wang, "Adaptive Worker Grouping for Communication-Efficient and Straggler-Tolerant
    Distributed SGD" (2022). If the trigger asks no group, the one that has been silent for longest is asked, so that
    every round ends with an arrival. Goes with `serverless_gc.aggregate.GradientTable`.

    Examples
    --------
    >>> from serverless_gc.engine import Arrived, Engine
    >>> engine = Engine(Groups([[0, 1], [2, 3]]), n_slots=4)
    >>> tasks = [action.task for action in engine.open(0.0)]
    >>> for slot in (1, 0, 3):
    ...     actions = engine.handle(Arrived(tasks[slot]), now=1.0)
    >>> [a.task.slot for a in actions[-1].arrivals]
    [1, 3]
    """

    leftover: Literal["cancel", "keep"] = "cancel"

    def __init__(self, groups: Sequence[Sequence[int]], trigger: LazyTrigger | None = None) -> None:
        self.groups = tuple(tuple(members) for members in groups)
        slots = [slot for members in self.groups for slot in members]
        if not all(self.groups) or not slots:
            raise InputError(f"groups must be non-empty lists of slots, got {groups!r}")
        if len(set(slots)) != len(slots):
            raise InputError(f"groups must not share slots, got {groups!r}")
        self.trigger = trigger
        self._first: dict[int, Arrival] = {}
        self._asked: tuple[int, ...] = ()
        self._x: Array | None = None

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every member of the groups asked a task."""
        self._first = {}
        self._asked = self._select(view.version)
        idle = set(view.idle_slots())
        return [
            view.new_task(slot, payload=self._payload(group, view.version))
            for group in self._asked
            for slot in self.groups[group]
            if slot in idle
        ]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:  # noqa: ARG002 - part of the protocol
        """Close when every group asked has answered."""
        self._first.setdefault(arrival.task.payload["group"], arrival)
        return Close(tuple(self._first.values())) if len(self._first) == len(self._asked) else Wait()

    def on_failure(self, view: View, task: TaskSpec) -> Act:  # noqa: ARG002
        """Give up when nobody of a group is left."""
        coming = {f.task.payload["group"] for f in view.in_flight()}
        lost = [group for group in self._asked if group not in self._first and group not in coming]
        if not lost:
            return Wait()
        return Abort(f"no member of group {numbers(lost)} can deliver: {given_up(view)}", "starved")

    def timer(self, view: View) -> float | None:  # noqa: ARG002
        """No timer."""
        return None

    def on_timer(self, view: View) -> Act:  # noqa: ARG002
        """Nothing to do."""
        return Wait()

    def after_step(self, before: Array, after: Array, update: Update) -> None:
        """Hand the step on to the trigger."""
        self._x = after
        if self.trigger is not None:
            self.trigger.after_step(before, after, update)

    def _select(self, version: int) -> tuple[int, ...]:
        every = range(len(self.groups))
        if self.trigger is None:
            return tuple(every)
        asked = tuple(group for group in every if self.trigger.asks(group, self._x, version))
        sent = self.trigger.sent
        return asked or (min(every, key=lambda group: sent.get(group, -1)),)

    def _payload(self, group: int, version: int) -> dict[str, object]:
        told = {} if self.trigger is None else self.trigger.payload(group, version)
        return {"group": group, **told}
