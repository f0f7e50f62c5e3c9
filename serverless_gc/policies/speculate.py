"""Backup tasks: start a second copy of what is late relative to the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.following import Following
from serverless_gc.types import Act, Arrival, InFlight, TaskSpec, View, Wait, WaitPolicy

__all__ = ["Speculate", "late_after"]

_FEWEST = 3  # durations that say anything about the others
_SLACK = 1e-9  # a timer and the age it was computed from may differ by rounding


def late_after(
    finished: Sequence[float], n_tasks: int, *, quantile: float, factor: float, min_seconds: float
) -> float | None:
    """Age in seconds beyond which a task counts as late; None while too few have finished to say.

    Parameters
    ----------
    finished
        Durations of the finished tasks, in seconds, in any order.
    n_tasks
        Number of tasks in all.
    quantile
        Fraction of all tasks that must have finished; also the quantile taken. Unfinished tasks count as longer.
    factor
        How many times longer than the quantile is late.
    min_seconds
        Nothing younger is late.

    Examples
    --------
    >>> late_after([1.0, 1.1, 0.9], 4, quantile=0.75, factor=1.5, min_seconds=0.1)
    1.65...
    >>> late_after([1.0, 1.1], 4, quantile=0.75, factor=1.5, min_seconds=0.1) is None
    True
    """
    enough = max(math.ceil(quantile * n_tasks), _FEWEST)
    if len(finished) < enough:
        return None
    return max(factor * sorted(finished)[enough - 1], min_seconds)


class Speculate(Following):
    """Follow another policy and start copies of late tasks.

    A task is late, relative to its own round only, when enough others have finished and its age is above ``factor``
    times their quantile (`late_after`). A small job whose tasks take alike gets no copies, nor does any job before
    three of its tasks have finished. A copy repeats the task (same id, same seed): whichever comes first counts.

    Parameters
    ----------
    inner
        The policy to follow.
    quantile
        Fraction of the round's tasks that must have finished.
    factor
        How many times longer than the quantile is late.
    min_seconds
        Nothing younger is copied: a copy costs about as much.
    max_copies
        Copies per slot and round, at most.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> from serverless_gc.policies import WaitAll
    >>> Speculate(WaitAll(), factor=2.0).factor
    2.0
    """

    def __init__(
        self,
        inner: WaitPolicy,
        *,
        quantile: float = 0.75,
        factor: float = 1.5,
        min_seconds: float = 0.1,
        max_copies: int = 1,
    ) -> None:
        if not 0 < quantile <= 1:
            raise InputError(f"quantile must be above 0 and at most 1, got {quantile}")
        if not factor >= 1:
            raise InputError(f"factor must be at least 1, got {factor}")
        if not min_seconds >= 0:
            raise InputError(f"min_seconds must be at least 0, got {min_seconds}")
        super().__init__(inner)
        self.quantile = quantile
        self.factor = factor
        self.min_seconds = min_seconds
        self.max_copies = check_whole("max_copies", max_copies, 1)
        self._start(0)

    def _start(self, n_tasks: int) -> None:
        self._n_tasks = n_tasks
        self._finished: list[float] = []
        self._late_after: float | None = None
        self._copies: dict[int, int] = {}
        self._next_due: float | None = None  # nothing is due before; None: to be looked for
        self._restart()

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Open the inner policy."""
        tasks = self.inner.open(view)
        self._start(len(tasks))
        return tasks

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Ask the inner policy; if it waits, copy what is late."""
        if arrival.task.version == view.version and self._late_after is None:
            self._finished.append(arrival.t_arrived - arrival.t_issued)
            self._late_after = late_after(
                self._finished,
                self._n_tasks,
                quantile=self.quantile,
                factor=self.factor,
                min_seconds=self.min_seconds,
            )
        return self._with_copies(view, self.inner.on_arrival(view, arrival))

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Ask the inner policy; if it waits, copy what is late."""
        return self._with_copies(view, self.inner.on_failure(view, task))

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act:
        """Ask the inner policy; if it waits, copy what is late."""
        return self._with_copies(view, super().on_partial(view, task, messages))

    def timer(self, view: View) -> float | None:
        """Whichever comes first: the inner policy's timer, or a task being late."""
        own = self._earliest(view) - view.round_start
        inner = self._inner_timer(view)
        if inner is not None:
            own = min(own, inner)
        return max(0.0, own) if own < math.inf else None

    def on_timer(self, view: View) -> Act:
        """Copy what is late."""
        return self._with_copies(view, self._inner_on_timer(view))

    def _candidates(self, view: View) -> list[InFlight]:
        """List attempts of this round that may still be copied: the newest of each slot."""
        if self._late_after is None:
            return []
        newest = {f.task.slot: f for f in view.in_flight() if f.task.version == view.version}
        return [f for slot, f in newest.items() if self._copies.get(slot, 0) < self.max_copies]

    def _due(self, flight: InFlight) -> float:
        return flight.t_issued + (self._late_after or 0.0)

    def _earliest(self, view: View) -> float:
        """Return when the first candidate is due, or earlier: what was issued since is due later.

        Tasks in flight are looked through only when one may be due, not at every event.
        """
        if self._late_after is None:
            return math.inf
        if self._next_due is None:
            self._next_due = min(map(self._due, self._candidates(view)), default=math.inf)
        return self._next_due

    def _with_copies(self, view: View, act: Act) -> Act:
        if not isinstance(act, Wait):
            return act
        if act.issue:
            self._next_due = None
        if view.now + _SLACK < self._earliest(view):
            return act
        self._next_due = None
        busy = {task.slot for task in act.issue}
        copies = []
        for flight in self._candidates(view):
            slot = flight.task.slot
            if slot not in busy and view.now + _SLACK >= self._due(flight):
                self._copies[slot] = self._copies.get(slot, 0) + 1
                copies.append(view.new_task(slot))
        return Wait((*act.issue, *copies)) if copies else act
