"""The asyncio host: real attempts, real clock."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

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
from serverless_gc.engine.host import Execute, OnEvent, Watch
from serverless_gc.engine.round import Engine
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.types import TaskSpec

__all__ = ["AioHost"]

Clock = Callable[[], float]

_log = logging.getLogger(__name__)


class AioHost:
    """Runs rounds on the running asyncio loop: one asyncio task per attempt, one queue for what they deliver.

    One host may serve many engines, also at the same time. Cancelling `run` (an interrupt does that) voids every
    attempt and re-raises within ``grace`` seconds, whatever the attempts do.

    Parameters
    ----------
    clock
        Returns seconds; the loop's own clock by default.
    grace
        How long, in seconds, voided attempts are waited for before they are left to themselves.

    Raises
    ------
    InputError
        If ``grace`` is negative or above one second.

    Examples
    --------
    >>> import asyncio
    >>> from serverless_gc.engine import Completion, Engine
    >>> from serverless_gc.policies import FirstK
    >>> async def execute(task):
    ...     await asyncio.sleep(60.0 if task.slot == 0 else 0.0)
    ...     return Completion(body=task.slot)
    >>> outcome = asyncio.run(AioHost().run(Engine(FirstK(2), n_slots=3), execute))
    >>> sorted(a.body for a in outcome.arrivals), outcome.counts.voided
    ([1, 2], 1)
    """

    def __init__(self, *, clock: Clock | None = None, grace: float = 0.25) -> None:
        if not 0 <= grace <= 1:
            raise InputError(f"grace must be between 0 and 1 second, got {grace}")
        self._clock = clock
        self._grace = grace
        self._flights: WeakKeyDictionary[Engine, _Flights] = WeakKeyDictionary()

    @property
    def now(self) -> float:
        """The clock; on the running loop."""
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    async def run(
        self, engine: Engine, execute: Execute, *, on_event: OnEvent | None = None, watch: Watch | None = None
    ) -> RoundOutcome:
        """Run one round; see `serverless_gc.engine.Host`.

        Attempts that the policy keeps run on between two calls; `close` ends them.
        """
        flights = self._flights.get(engine)
        if flights is None:
            flights = self._flights[engine] = _Flights(self._clock, execute)
        flights.attach(execute, on_event)
        try:
            outcome = await flights.run(engine, watch)
        except BaseException as error:
            interrupted = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
            flights.cancel(engine, "interrupted" if interrupted else repr(error))
            await flights.settle(self._grace)
            raise
        await flights.settle(self._grace)
        return outcome

    async def close(self, engine: Engine) -> None:
        """Void the attempts that ``engine`` kept from its last round."""
        flights = self._flights.pop(engine, None)
        if flights is not None:
            flights.cancel(engine, "closed")
            await flights.settle(self._grace)


class _Flights:
    """The attempts of one engine."""

    def __init__(self, clock: Clock | None, execute: Execute) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock: Clock = self._loop.time if clock is None else clock
        self._execute = execute
        self._on_event: OnEvent | None = None
        self._running: dict[tuple[str, int], asyncio.Task[None] | asyncio.TimerHandle] = {}
        self._dying: set[asyncio.Task[None]] = set()
        self._stubborn: set[asyncio.Task[None]] = set()
        self._ready: deque[tuple[Event, float]] = deque()
        self._bug: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, execute: Execute, on_event: OnEvent | None) -> None:
        """Say how attempts are done from now on."""
        self._loop = asyncio.get_running_loop()
        self._execute, self._on_event = execute, on_event

    async def run(self, engine: Engine, watch: Watch | None) -> RoundOutcome:
        ready, on_event = self._ready, self._on_event
        watching = None if watch is None else self._loop.create_task(self._watch(watch))
        try:
            outcome = self._carry_out(engine.open(self._clock()))
            while outcome is None:
                if self._bug is not None:
                    bug, self._bug = self._bug, None
                    raise bug
                if not ready:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                # Everything that is ready is handled before the loop is asked for more.
                while ready and outcome is None and self._bug is None:
                    event, at = ready.popleft()
                    if on_event is not None:
                        on_event(event, at)
                    outcome = self._carry_out(engine.handle(event, at))
        finally:
            self._waiter = None
            self._set_timer(None, 0)
            if watching is not None:
                watching.cancel()
                self._dying.add(watching)
        return outcome

    async def _watch(self, watch: Watch) -> None:
        try:
            await watch(self._post)
        except Exception as error:  # noqa: BLE001 - a bug in the watch, as in an attempt
            self._bug = error
            self._wake()

    def cancel(self, engine: Engine, reason: str) -> None:
        """Void everything. Observers are not told: one of them may be what failed."""
        self._on_event = None
        self._carry_out(engine.handle(Cancelled(reason), self._clock()))

    def _carry_out(self, actions: Iterable[Action]) -> RoundOutcome | None:
        outcome = None
        for action in actions:
            if self._on_event is not None:
                self._on_event(action, self._clock())
            if isinstance(action, Issue):
                self._issue(action)
            elif isinstance(action, SetTimer):
                self._set_timer(action.at, action.version)
            elif isinstance(action, Void):
                self._void(action)
            else:
                outcome = action.outcome
        return outcome

    def _issue(self, action: Issue) -> None:
        task = action.task
        if action.delay > 0:
            handle = self._loop.call_later(action.delay, self._start, task)
            self._running[task.task_id, task.attempt] = handle
        else:
            self._start(task)

    def _start(self, task: TaskSpec) -> None:
        self._running[task.task_id, task.attempt] = self._loop.create_task(self._attempt(task))

    async def _attempt(self, task: TaskSpec) -> None:
        event: Event
        key = (task.task_id, task.attempt)
        try:
            done = await self._execute(task)
            event = Arrived(task, done.body, done.work_done, done.stats)
        except InvokeError as error:
            event = Failed(task, error.kind, str(error), error.retryable)
        except asyncio.CancelledError:
            if key in self._running:  # not by us: without an event the round would wait for it for ever
                del self._running[key]
                self._post(Failed(task, "lost", "the attempt was cancelled from outside"))
            raise
        except Exception as error:  # noqa: BLE001 - a bug in what was to be done: run raises it after cleaning up
            if key in self._running:
                self._bug = error
                self._wake()
            else:
                _log.warning(
                    "attempt %d of task %s failed after it was voided", task.attempt, task.task_id, exc_info=error
                )
            return
        self._running.pop(key, None)
        self._post(event)

    def _post(self, event: Event) -> None:
        self._ready.append((event, self._clock()))
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self, at: float | None, version: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay = max(0.0, at - self._clock())
            self._timer = self._loop.call_later(delay, self._post, TimerFired(version, at))

    def _void(self, action: Void) -> None:
        for task in action.tasks:
            running = self._running.pop((task.task_id, task.attempt), None)
            if running is not None:
                running.cancel()
                if isinstance(running, asyncio.Task):
                    self._dying.add(running)

    async def settle(self, grace: float) -> None:
        """Let voided attempts end, for ``grace`` seconds at most; then leave them to themselves."""
        if self._dying:
            await asyncio.sleep(0)  # most end at once
            self._dying = {task for task in self._dying if not task.done()}
        if self._dying:
            dying, self._dying = self._dying, set()
            _, stubborn = await asyncio.wait(dying, timeout=grace)
            for task in stubborn:  # the loop holds tasks weakly
                self._stubborn.add(task)
                task.add_done_callback(self._stubborn.discard)
