"""Asynchronous within groups, which wait for one another now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.words import given_up
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["LocallyAsync"]


class LocallyAsync:
    """Close at each result of a group that has not made its ``period`` updates; results of the others are held back.

    When every group has made them the count starts anew (the optimizer averages the models then,
    `serverless_gc.gossip.GroupedSGD`) and the results held back are consumed at once. Until then the tasks of a
    finished group run on, but none is issued. A task's payload holds its ``"group"`` and ``"version"``: the group's
    updates so far. Transforms must not drop results, for they are counted here.

    Parameters
    ----------
    groups
        The slots of each group, see `serverless_gc.topologies.Groups`.
    period
        Updates of a group between two averages.

    Raises
    ------
    InputError
        If the groups are not a partition of 0, 1, 2, ..., or ``period`` is not a positive integer.

    Notes
    -----
    LASGD: Avidor and Tal Israel, "Locally Asynchronous Stochastic Gradient Descent for Decentralised Deep Learning",
    2022. One group: `KAsync` with ``k=1``. Groups of one slot: local SGD.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant
    >>> engine, host = Engine(LocallyAsync([[0], [1]], period=1), n_slots=2), VirtualHost(Constant(1.0))
    >>> [(outcome.t_close, outcome.arrivals[0].task.slot) for outcome in host.simulate(engine, rounds=4)]
    [(1.0, 0), (1.0, 1), (2.0, 0), (2.0, 1)]
    """

    leftover: Literal["cancel", "keep"] = "keep"

    def __init__(self, groups: Sequence[Sequence[int]], period: int) -> None:
        self.period = check_whole("period", period, 1)
        self._group_of = {slot: g for g, slots in enumerate(groups) for slot in slots}
        if not groups or sorted(slot for slots in groups for slot in slots) != list(range(len(self._group_of))):
            raise InputError(f"groups must hold each of the slots 0, 1, 2, ... once, got {groups!r}")
        self._made = [0] * len(groups)  # updates since the last average
        self._versions = [0] * len(groups)

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Issue tasks for the idle slots of groups that go on.

        Raises
        ------
        InputError
            If the groups have another number of slots than the engine.
        """
        if view.n_slots != len(self._group_of):
            raise InputError(f"groups must hold one slot of the engine each, {view.n_slots}, got {len(self._group_of)}")
        held = {arrival.task.slot for arrival in view.buffer}
        tasks = []
        for slot in view.idle_slots():
            group = self._group_of[slot]
            if slot not in held and self._made[group] < self.period:
                tasks.append(view.new_task(slot, payload={"group": group, "version": self._versions[group]}))
        return tasks

    def on_arrival(self, view: View, arrival: Arrival) -> Act:  # noqa: ARG002 - part of the protocol
        """Consume it, or hold it back."""
        return self._consume([arrival])

    def on_failure(self, view: View, task: TaskSpec) -> Act:  # noqa: ARG002
        """Go on while every group that has updates to make has tasks that can deliver them."""
        coming = {self._group_of[flight.task.slot] for flight in view.in_flight()}
        stuck = [g for g, made in enumerate(self._made) if made < self.period and g not in coming]
        if not stuck:
            return Wait()
        return Abort(f"group {stuck[0]} has no task left that could deliver: {given_up(view)}", "starved")

    def timer(self, view: View) -> float | None:
        """At once, if an average has set held results free."""
        return 0.0 if any(self._made[self._group_of[a.task.slot]] < self.period for a in view.buffer) else None

    def on_timer(self, view: View) -> Act:
        """Consume results held back, in order of arrival."""
        return self._consume(view.buffer)

    def _consume(self, arrivals: Sequence[Arrival]) -> Act:
        used = []
        for arrival in arrivals:
            group = self._group_of[arrival.task.slot]
            if self._made[group] < self.period:
                self._made[group] += 1
                self._versions[group] += 1
                used.append(arrival)
        if not used:
            return Wait()
        if min(self._made) >= self.period:
            self._made = [0] * len(self._made)
        return Close(tuple(used))
