"""The virtual-time host: a heap of events and a clock that jumps."""

from __future__ import annotations

import heapq
import inspect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from serverless_gc.engine.events import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Failed,
    Issue,
    Progressed,
    RoundOutcome,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.engine.host import Execute, OnEvent, Watch
from serverless_gc.engine.occupancy import Occupancy
from serverless_gc.engine.round import Engine
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import check_seed
from serverless_gc.types import StragglerModel, TaskSpec, Timing

__all__ = ["VirtualHost"]

_AHEAD = 512
"""Delays drawn at once: NumPy's cost of a call is that of a hundred draws."""


class VirtualHost:
    """Runs rounds in virtual time: a `StragglerModel` says how long each attempt takes.

    An attempt's work is done when it arrives in virtual time, so a voided one is never computed. Partial results are
    there at the task's `TaskSpec.milestones`: after start, read, that fraction of compute, and one write; the first of
    them does the whole work, the others and the result are taken from it. A task with ``stop_at`` works from after
    start and read until then, or not at all, and arrives one write later; its ``work`` is then the whole units that fit
    at the rate of the law, ``work`` units in ``compute`` seconds. The clock goes on from round to round. Equal seeds
    give equal runs.

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
        If ``start`` is not finite, ``seed`` is no integer of at least 0, or a law of one's own takes other arguments
        than it is called with.

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
        _check_law(model)
        self.now = start
        self.ignored_seconds = 0.0
        self._model = model
        self._sample_task = getattr(model, "sample_task", None)
        self._totals: Any = getattr(model, "totals", None) if self._sample_task is None else None
        self._running = Occupancy()
        self._drawn: dict[float, list[float]] = {}  # work of a task -> totals drawn ahead
        self._rng = np.random.default_rng(check_seed(seed))
        self._flights: WeakKeyDictionary[Engine, _Flights] = WeakKeyDictionary()

    async def run(
        self,
        engine: Engine,
        execute: Execute,
        *,
        on_event: OnEvent | None = None,
        watch: Watch | None = None,  # noqa: ARG002 - when partial results are there is known
    ) -> RoundOutcome:
        """Run one round; see `serverless_gc.engine.Host`."""
        flights = self._of(engine)
        try:
            outcome = self._carry_out(engine.open(self.now), flights, on_event)
            while outcome is None:
                event = self._next(flights)
                if isinstance(event, (Arrived, Progressed)):
                    done = await flights.perform(event.task, execute)
                    if isinstance(event, Arrived):
                        flights.forget(event.task)
                        event = done
                    elif isinstance(done, Failed):
                        continue  # it published nothing, and fails at its time
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

    def peak_since(self, time: float) -> int:
        """Return how many attempts ran at once, at most, from ``time`` to now.

        Those that were given up count until they would have ended by themselves: they take up the account's concurrency
        as long. One that never answers counts until it is given up.

        Parameters
        ----------
        time
            Seconds on this clock; attempts that began before count as well where they still ran.

        Examples
        --------
        >>> from serverless_gc.engine import Engine
        >>> from serverless_gc.policies import FirstK
        >>> from serverless_gc.stragglers import Constant
        >>> class FasterSlots:
        ...     def sample_task(self, task, rng):
        ...         return Constant(1.0 + 2.0 * task.slot).sample(task.slot, task.version, task.work, rng)
        >>> host = VirtualHost(FasterSlots())
        >>> [r.t_close for r in host.simulate(Engine(FirstK(1), n_slots=2), rounds=3)]
        [1.0, 2.0, 3.0]
        >>> host.peak_since(0.0), host.ignored_seconds / host.now  # the slow slot's attempts run on for 2 s each
        (4, 2.0)
        """
        return self._running.peak_since(time, self.now)

    @property
    def draws(self) -> dict[str, Any]:
        """State of the generator of the delays and what was drawn ahead, JSON types; set it to repeat what followed."""
        ahead = [[work, list(totals)] for work, totals in self._drawn.items()]
        return {"generator": dict(self._rng.bit_generator.state), "ahead": ahead}

    @draws.setter
    def draws(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["generator"]
        self._drawn = {work: list(totals) for work, totals in state["ahead"]}

    def flights(self, engine: Engine) -> list[tuple[str, int, float, float]]:
        """Return what is in flight: task, attempt, time of start and seconds to run, in order of issue."""
        return [(*key, *times) for key, times in self._of(engine).started.items()]

    def carry_on(self, engine: Engine, tasks: Iterable[TaskSpec], flights: Iterable[Sequence[Any]]) -> None:
        """Have ``engine`` go on with these tasks in flight; ``flights`` is what `flights` told of them."""
        specs = {(task.task_id, task.attempt): task for task in tasks}
        for task_id, attempt, start, seconds in flights:
            self._of(engine).start(specs[task_id, attempt], start, seconds)
            self._running.add(start, start + seconds, self.now)

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
        return flights.pop()

    def _carry_out(self, actions: Iterable[Action], flights: _Flights, on_event: OnEvent | None) -> RoundOutcome | None:
        outcome = None
        for action in actions:
            if on_event is not None:
                on_event(action, self.now)
            if isinstance(action, Issue):
                task = action.task
                start = self.now + action.delay
                if self._totals is not None and not task.milestones and task.stop_at is None:
                    seconds = self._ahead(task.work)
                    flights.start(task, start, seconds)
                else:
                    seconds = flights.push(task, start, self._timing(task))
                self._running.add(start, start + seconds, self.now)
            elif isinstance(action, Void):
                for start, seconds in flights.void(action.tasks):
                    self._run_on(start, seconds)
            elif isinstance(action, SetTimer):
                flights.timer = None if action.at is None else TimerFired(action.version, action.at)
            else:
                outcome = action.outcome
                flights.timer = None
        return outcome

    def _run_on(self, start: float, seconds: float) -> None:
        """Account for an attempt that nobody waits for any more."""
        if start > self.now:
            self._running.withdraw(start, start + seconds)
        elif seconds < math.inf:
            self.ignored_seconds += max(0.0, start + seconds - self.now)
        else:
            self._running.give_up_endless(self.now)

    def _ahead(self, work: float) -> float:
        """Take a total that was drawn ahead."""
        ahead = self._drawn.get(work)
        if not ahead:
            ahead = list(self._totals(work, self._rng, _AHEAD).tolist())
            self._drawn[work] = ahead
        return ahead.pop()

    def _timing(self, task: TaskSpec) -> Timing:
        timing: Timing
        if self._sample_task is not None:
            timing = self._sample_task(task, self._rng)
        else:
            timing = self._model.sample(task.slot, task.version, task.work, self._rng)
        return timing


def _check_law(model: StragglerModel) -> None:
    """Refuse a law that could not be called as it will be."""
    for name, wanted in (("sample_task", ("task", "rng")), ("sample", ("slot", "k", "work", "rng"))):
        method = getattr(model, name, None)
        if method is None:
            continue
        try:
            inspect.signature(method).bind(*wanted)
        except TypeError:
            raise InputError(
                f"the law {type(model).__name__} has {name}{inspect.signature(method)}, which cannot be called as "
                f"{name}({', '.join(wanted)}): see serverless_gc.types.StragglerModel"
            ) from None


class _Flights:
    """The attempts of one engine, by time of arrival; partial results are earlier arrivals of the same attempt."""

    def __init__(self) -> None:
        self.timer: TimerFired | None = None
        # time, number, attempt, its task, places of messages (None: the result itself)
        self._heap: list[tuple[float, int, tuple[str, int], TaskSpec, tuple[int, ...] | None]] = []
        self.started: dict[tuple[str, int], tuple[float, float]] = {}
        self._done: dict[tuple[str, int], Event] = {}
        self._units: dict[tuple[str, int], float] = {}  # of work that fit, of those that stop at a time
        self._pushed = 0

    def push(self, task: TaskSpec, start: float, timing: Timing) -> float:
        """Start an attempt that may deliver bit by bit, or stop at a time; return its seconds."""
        if task.stop_at is not None and timing.total < math.inf:
            begin = start + timing.start + timing.read
            self._units[task.task_id, task.attempt] = _fitting(task.work, timing.compute, task.stop_at - begin)
            arrival = max(begin, task.stop_at) + timing.write
            self.start(task, start, arrival - start, arrival)
            return arrival - start
        if task.milestones:
            around = timing.start + timing.read + timing.write
            for fraction, places in _published(task.milestones):
                at = start + around + fraction * timing.compute
                self._schedule(at, (task.task_id, task.attempt), task, places)
        seconds = float(timing.total)
        self.start(task, start, seconds)
        return seconds

    def start(self, task: TaskSpec, start: float, seconds: float, arrival: float | None = None) -> None:
        key = task.task_id, task.attempt
        self.started[key] = (start, seconds)
        self._schedule(start + seconds if arrival is None else arrival, key, task, None)

    def _schedule(self, at: float, key: tuple[str, int], task: TaskSpec, places: tuple[int, ...] | None) -> None:
        self._pushed += 1
        if at < math.inf:
            heapq.heappush(self._heap, (at, self._pushed, key, task, places))

    def next_time(self) -> float:
        heap, started = self._heap, self.started
        while heap and heap[0][2] not in started:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self) -> Arrived | Progressed:
        _, _, key, task, places = heapq.heappop(self._heap)
        if places is not None:
            return Progressed(task, places)
        del self.started[key]
        return Arrived(task)

    async def perform(self, task: TaskSpec, execute: Execute) -> Event:
        """Do an attempt's work, once."""
        key = (task.task_id, task.attempt)
        if key not in self._done:
            fitting = self._units.pop(key, None)
            try:
                done = await execute(task if fitting is None else replace(task, work=fitting))
            except InvokeError as error:
                self._done[key] = Failed(task, error.kind, str(error), error.retryable)
            else:
                self._done[key] = Arrived(task, done.body, done.work_done, done.stats)
        return self._done[key]

    def forget(self, task: TaskSpec) -> None:
        """Drop what an attempt's work gave."""
        self._done.pop((task.task_id, task.attempt), None)

    def void(self, tasks: Iterable[TaskSpec]) -> Iterator[tuple[float, float]]:
        """Forget attempts; of those that had not ended, return when they started or would, and their seconds."""
        for task in tasks:
            if self._done:
                self.forget(task)
            if self._units:
                self._units.pop((task.task_id, task.attempt), None)
            flight = self.started.pop((task.task_id, task.attempt), None)
            if flight is not None:
                yield flight


def _fitting(work: float, compute: float, seconds: float) -> float:
    """Return how many whole units fit into some seconds, where ``work`` units take ``compute`` seconds.

    Examples
    --------
    >>> _fitting(1.0, 0.1, 0.3), _fitting(1.0, 2.0, 1.9), _fitting(1.0, 1.0, -1.0)
    (3.0, 0.0, 0.0)
    """
    if seconds <= 0:
        return 0.0
    if compute <= 0:
        raise InputError("a task with stop_at would do endless work: the law of delays gives no seconds of computing")
    return float(math.floor(work * seconds / compute * (1 + 1e-12)))


def _published(marks: Sequence[float]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Group the places of messages that are published together."""
    for fraction, group in itertools.groupby(enumerate(marks), key=lambda entry: entry[1]):
        yield fraction, tuple(place for place, _ in group)
