"""The virtual-time host: a heap of events and a clock that jumps."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import numpy as np

from serverless_gc.engine.events import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Failed,
    Issue,
    RoundOutcome,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.engine.host import Execute, OnEvent
from serverless_gc.engine.round import Engine
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.types import StragglerModel, TaskSpec

__all__ = ["VirtualHost"]

_AHEAD = 512
"""Delays drawn at once: NumPy's cost of a call is that of a hundred draws."""


class VirtualHost:
    """Runs rounds in virtual time: a `StragglerModel` says how long each attempt takes.

    An attempt's work is done when it arrives in virtual time, so a voided one is never computed. The clock goes on from
    round to round. Equal seeds give equal runs.

    Parameters
    ----------
    model
        Law of the delays. Besides ``sample`` it may have ``sample_task(task, rng) -> Timing``, which is preferred: it
        sees the attempt number. A law of independent, identically distributed times may have
        ``totals(work, rng, shape)`` instead, which draws many at once. An infinite time stands for an attempt that
        never answers.
    seed
        Seed of the delays.
    start
        First reading of the clock, in seconds.

    Raises
    ------
    InputError
        If ``start`` is not finite.

    Attributes
    ----------
    now
        The clock.
    ignored_seconds
        Seconds that voided attempts would have run on, had nobody stopped them: they are billed all the same.
        An attempt that never answers counts nothing.

    Examples
    --------
    >>> from serverless_gc.engine import Engine
    >>> from serverless_gc.policies import FirstK
    >>> from serverless_gc.stragglers import Constant
    >>> host = VirtualHost(Constant(2.0))
    >>> [r.t_close for r in host.simulate(Engine(FirstK(3), n_slots=4), rounds=3)]
    [2.0, 4.0, 6.0]
    """

    def __init__(self, model: StragglerModel, *, seed: int = 0, start: float = 0.0) -> None:
        if not math.isfinite(start):
            raise InputError(f"start must be finite, got {start}")
        self.now = start
        self.ignored_seconds = 0.0
        self._model = model
        self._sample_task = getattr(model, "sample_task", None)
        self._totals = getattr(model, "totals", None) if self._sample_task is None else None
        self._drawn: dict[float, list[float]] = {}  # work of a task -> totals drawn ahead
        self._rng = np.random.default_rng(seed)
        self._flights: WeakKeyDictionary[Engine, _Flights] = WeakKeyDictionary()

    async def run(self, engine: Engine, execute: Execute, *, on_event: OnEvent | None = None) -> RoundOutcome:
        """Run one round; see `serverless_gc.engine.Host`."""
        flights = self._of(engine)
        try:
            outcome = self._carry_out(engine.open(self.now), flights, on_event)
            while outcome is None:
                event = self._next(flights)
                if isinstance(event, Arrived):
                    event = await _perform(event.task, execute)
                if on_event is not None:
                    on_event(event, self.now)
                outcome = self._carry_out(engine.handle(event, self.now), flights, on_event)
        except BaseException as error:
            self._cancel(engine, repr(error))
            raise
        return outcome

    def simulate(self, engine: Engine, rounds: int) -> Iterator[RoundOutcome]:
        """Run rounds without computing anything: every attempt delivers None.

        Parameters
        ----------
        engine
            The engine; ``keep_records=False`` makes it faster.
        rounds
            How many rounds.

        Yields
        ------
        RoundOutcome
            One per round.
        """
        flights = self._of(engine)
        for _ in range(rounds):
            try:
                outcome = self._carry_out(engine.open(self.now), flights, None)
                while outcome is None:
                    outcome = self._carry_out(engine.handle(self._next(flights), self.now), flights, None)
            except BaseException as error:
                self._cancel(engine, repr(error))
                raise
            yield outcome

    async def close(self, engine: Engine) -> None:
        """Void the attempts that ``engine`` kept from its last round."""
        self._cancel(engine, "closed")

    def _cancel(self, engine: Engine, reason: str) -> None:
        """Void everything. Observers are not told: one of them may be what failed."""
        self._carry_out(engine.handle(Cancelled(reason), self.now), self._of(engine), None)

    def _of(self, engine: Engine) -> _Flights:
        flights = self._flights.get(engine)
        if flights is None:
            flights = self._flights[engine] = _Flights()
        return flights

    def _next(self, flights: _Flights) -> Event:
        """Advance the clock to the next event; arrivals come before a timer of the same time."""
        arrival, timer = flights.next_time(), flights.timer
        if timer is not None and timer.at < arrival:
            flights.timer = None
            self.now = max(self.now, timer.at)
            return timer
        if arrival == math.inf:
            return Cancelled("the attempts in flight never answer, and no deadline is set", kind="starved")
        self.now = max(self.now, arrival)
        return Arrived(flights.pop())

    def _carry_out(self, actions: Iterable[Action], flights: _Flights, on_event: OnEvent | None) -> RoundOutcome | None:
        outcome = None
        for action in actions:
            if on_event is not None:
                on_event(action, self.now)
            if isinstance(action, Issue):
                task = action.task
                flights.push(task, self.now + action.delay, self._seconds(task))
            elif isinstance(action, Void):
                self.ignored_seconds += flights.void(action.tasks, self.now)
            elif isinstance(action, SetTimer):
                flights.timer = None if action.at is None else TimerFired(action.version, action.at)
            else:
                outcome = action.outcome
                flights.timer = None
        return outcome

    def _seconds(self, task: TaskSpec) -> float:
        if self._totals is not None:
            ahead = self._drawn.get(task.work)
            if not ahead:
                ahead = self._drawn[task.work] = self._totals(task.work, self._rng, _AHEAD).tolist()
            return ahead.pop()
        if self._sample_task is not None:
            timing = self._sample_task(task, self._rng)
        else:
            timing = self._model.sample(task.slot, task.version, task.work, self._rng)
        return float(timing.total)


async def _perform(task: TaskSpec, execute: Execute) -> Event:
    try:
        done = await execute(task)
    except InvokeError as error:
        return Failed(task, error.kind, str(error), error.retryable)
    return Arrived(task, done.body, done.work_done, done.stats)


class _Flights:
    """The attempts of one engine, by time of arrival."""

    def __init__(self) -> None:
        self.timer: TimerFired | None = None
        self._heap: list[tuple[float, int, TaskSpec]] = []
        self._started: dict[tuple[str, int], tuple[float, float]] = {}
        self._pushed = 0

    def push(self, task: TaskSpec, start: float, seconds: float) -> None:
        self._pushed += 1
        self._started[task.task_id, task.attempt] = (start, seconds)
        if seconds < math.inf:
            heapq.heappush(self._heap, (start + seconds, self._pushed, task))

    def next_time(self) -> float:
        heap, started = self._heap, self._started
        while heap and (heap[0][2].task_id, heap[0][2].attempt) not in started:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> TaskSpec:
        task = heapq.heappop(self._heap)[2]
        del self._started[task.task_id, task.attempt]
        return task

    def void(self, tasks: Iterable[TaskSpec], now: float) -> float:
        """Forget attempts; return how many seconds those that run had still to go."""
        ignored = 0.0
        for task in tasks:
            start, seconds = self._started.pop((task.task_id, task.attempt), (now, 0.0))
            if start <= now and seconds < math.inf:
                ignored += max(0.0, start + seconds - now)
        return ignored
