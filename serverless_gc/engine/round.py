"""The round engine: decides what happens next, does nothing itself.

A state machine without I/O and without a clock. A host feeds it events with their times and carries out the
actions it answers with. It follows the driver loop of the policies: a round opens, tasks arrive or fail,
the `WaitPolicy` waits, closes or gives up; with ``leftover="cancel"`` everything not consumed is then void, with
``"keep"`` it stays in flight, or in the buffer, for the next round.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from serverless_gc.checks import check_whole
from serverless_gc.engine.accounting import Counts, Ledger
from serverless_gc.engine.backoff import Backoff
from serverless_gc.engine.events import (
    AbortKind,
    AbortRound,
    Action,
    Arrived,
    Cancelled,
    CloseRound,
    Event,
    Failed,
    Issue,
    Progressed,
    RoundOutcome,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.engine.progress import ProgressBook
from serverless_gc.engine.state import RoundState, RoundView
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Act, Arrival, Close, InFlight, SeesPartials, TaskSpec, View, Wait, WaitPolicy

__all__ = ["Engine"]


class Engine:
    """Runs rounds of tasks under a waiting policy.

    One engine serves one host at a time, for as many rounds as wanted; between two rounds the caller updates the
    model with the consumed arrivals.

    Parameters
    ----------
    policy
        What to issue and when to close.
    n_slots
        Number of slots (logical workers).
    max_attempts
        How often a task may fail before its slot is given up: ``max_attempts - 1`` retries. Copies that the policy asks
        for do not count.
    seed
        Seed of the task seeds and of the backoff's jitter. Retries of a task repeat its seed.
    backoff
        How long retries wait.
    history
        Durations of earlier attempts in seconds, for policies that look at the past.
    history_limit
        How many durations are remembered.
    version
        Model version of the first round.
    keep_records
        Whether to make a `TaskRecord` per attempt; without, simulations are faster.
    milestones
        Slot to the `TaskSpec.milestones` of its tasks; without it no task has any.

    Raises
    ------
    InputError
        If ``n_slots`` or ``max_attempts`` is not a positive integer, or ``seed`` negative.

    Examples
    --------
    >>> from serverless_gc.policies import FirstK
    >>> engine = Engine(FirstK(1), n_slots=2)
    >>> first, second = [a.task for a in engine.open(now=0.0)]
    >>> void, close = engine.handle(Arrived(second, body="hello"), now=1.5)
    >>> [a.body for a in close.arrivals], [t.slot for t in void.tasks]
    (['hello'], [0])
    >>> close.outcome.counts.balanced
    True
    """

    def __init__(
        self,
        policy: WaitPolicy,
        n_slots: int,
        *,
        max_attempts: int = 2,
        seed: int = 0,
        backoff: Backoff | None = None,
        history: Iterable[float] = (),
        history_limit: int = 4096,
        version: int = 0,
        keep_records: bool = True,
        milestones: Callable[[int], tuple[float, ...]] | None = None,
    ) -> None:
        n_slots, history_limit = check_whole("n_slots", n_slots, 1), check_whole("history_limit", history_limit, 1)
        self.policy = policy
        self._max_attempts = check_whole("max_attempts", max_attempts, 1)
        self._backoff = Backoff() if backoff is None else backoff
        seed = check_seed(seed)
        self._rng = random.Random(seed)
        self._state = RoundState(
            n_slots, version=version, seed=seed, history=history, history_limit=history_limit, milestones=milestones
        )
        self._progress = ProgressBook()
        self._view = RoundView(self._state)
        self._ledger = Ledger(keep_records=keep_records)
        self._backlog: deque[tuple[Event, float]] = deque()
        self._is_open = False
        self._last: RoundOutcome | None = None
        self._armed: float | None = None
        self._fired = -math.inf

    # -- what a caller may ask ---------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What the policy sees."""
        return self._view

    @property
    def version(self) -> int:
        """Model version of the round in progress, or of the next one."""
        return self._state.version

    @property
    def is_open(self) -> bool:
        """Whether a round is in progress."""
        return self._is_open

    @property
    def last(self) -> RoundOutcome | None:
        """How the last round ended, also when an exception took the place of its outcome."""
        return self._last

    @property
    def counts(self) -> Counts:
        """Accounting of the round in progress, as of now."""
        return self._ledger.counts(self._outstanding())

    @property
    def loss_estimate(self) -> float | None:
        """Loss as the caller last estimated it; policies may look at it."""
        return self._state.loss_estimate

    @loss_estimate.setter
    def loss_estimate(self, value: float | None) -> None:
        self._state.loss_estimate = value

    def state_dict(self) -> dict[str, Any] | None:
        """Return what the next rounds depend on besides their policy, JSON types.

        None while a round is open, and where results are unconsumed or tasks deliver bit by bit.
        """
        state = None if self._is_open or self._backlog else self._state.state_dict()
        return None if state is None else {**state, "jitter": self._rng.getstate()}

    def load_state_dict(self, saved: Mapping[str, Any], *, shift: float = 0.0) -> list[TaskSpec]:
        """Take over what `state_dict` of an engine of the same version and slots returned.

        Parameters
        ----------
        saved
            Also after a way through JSON.
        shift
            By how much the host's clock is ahead of the saved one, in seconds.

        Returns
        -------
        list of TaskSpec
            What is in flight: the host has to know.

        Raises
        ------
        InputError
            If this engine has another version, or has issued something.
        """
        if saved["version"] != self.version or self._state.live or self._last is not None:
            raise InputError(
                f"the state of version {saved['version']} is for a new engine of that version; this one is at "
                f"{self.version}{'' if self._last is None else ' and has run'}"
            )
        kind, numbers, spare = saved["jitter"]
        self._rng.setstate((kind, tuple(numbers), spare))
        tasks = self._state.load_state_dict(saved, shift)
        self._ledger.close(self._outstanding())  # they were issued before: carried, as between any two rounds
        return tasks

    # -- events in, actions out --------------------------------------------------------------------------

    def open(self, now: float) -> list[Action]:
        """Start a round.

        Raises
        ------
        RuntimeError
            If a round is in progress.
        InputError
            If the policy issues a task that cannot be issued.
        """
        if self._is_open:
            raise RuntimeError(f"round {self._state.version} is still open: handle its events before opening another")
        state = self._state
        state.now = max(state.now, now)
        state.round_start = state.now
        self._is_open = True
        self._armed = None
        self._fired = -math.inf
        actions: list[Action] = []
        self._apply(Wait(tuple(self.policy.open(self._view))), actions)
        # Leftovers that arrived between two rounds belong to this one; they are seen after its tasks are out.
        while self._backlog and self._is_open:
            event, at = self._backlog.popleft()
            self._dispatch(event, at, actions)
        return actions

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in one event that happened at time ``now``.

        Events of attempts that are no longer wanted, and timers of another round, change nothing; they are counted.
        """
        actions: list[Action] = []
        if self._is_open:
            self._dispatch(event, now, actions)
        elif isinstance(event, Cancelled):
            self._give_up(actions)
        elif isinstance(event, (Arrived, Failed, Progressed)):
            if event.task.task_id in self._state.live:
                self._backlog.append((event, now))
            elif isinstance(event, Arrived):
                self._count_stray(event)
            elif isinstance(event, Progressed):
                self._ledger.late_partials += 1
        return actions

    def _dispatch(self, event: Event, at: float, actions: list[Action]) -> None:
        state = self._state
        state.now = max(state.now, at)
        if isinstance(event, Arrived):
            self._arrived(event, at, actions)
        elif isinstance(event, Failed):
            self._failed(event, at, actions)
        elif isinstance(event, Progressed):
            self._progressed(event, actions)
        elif isinstance(event, TimerFired):
            if event.version == state.version and event.at == self._armed:
                state.now = max(state.now, event.at)  # a loop's timer may be early by its resolution
                self._armed, self._fired = None, event.at
                self._apply(self.policy.on_timer(self._view), actions)
        else:
            self._abort(event.kind, event.reason, actions)

    # -- arrivals and failures ---------------------------------------------------------------------------

    def _arrived(self, event: Arrived, at: float, actions: list[Action]) -> None:
        state = self._state
        taken = state.take(event.task)
        if taken is None:
            self._count_stray(event)
            return
        live, flight = taken
        task_id = flight.task.task_id
        # One result is enough: the other attempts at the task can only repeat it.
        if live.flights:
            self._void(state.drop(task_id), actions)
        else:
            del state.live[task_id]
        at = max(at, flight.t_issued)
        arrival = Arrival(flight.task, flight.t_issued, at, event.work_done, event.body, event.stats)
        state.arrived.add(task_id)
        self._progress.finish(task_id)
        state.buffer.append(arrival)
        state.history.append(at - flight.t_issued)
        self._apply(self.policy.on_arrival(self._view, arrival), actions)

    def _count_stray(self, event: Arrived) -> None:
        if event.task.task_id in self._state.arrived:
            self._ledger.duplicates += 1
        else:
            self._ledger.late += 1

    def _failed(self, event: Failed, at: float, actions: list[Action]) -> None:
        state = self._state
        taken = state.take(event.task)
        if taken is None:
            return
        live, flight = taken
        self._ledger.failed(flight, at, event.kind, event.message)
        live.failures += 1
        if live.flights:
            return  # another attempt at the same task is still running
        task = flight.task
        if event.retryable and live.failures < self._max_attempts:
            delay = self._backoff.delay(live.failures, self._rng)
            self._ledger.retries += 1
            self._issue(replace(task, attempt=live.next_attempt), actions, delay)
            return
        state.drop(task.task_id)
        self._progress.give_up(task.task_id)
        tries = f" ({live.failures} attempts)" if live.failures > 1 else ""
        state.failures[task.slot] = (event.kind, f"{event.message or 'no message'}{tries}")
        self._apply(self.policy.on_failure(self._view, task), actions)

    def _progressed(self, event: Progressed, actions: list[Action]) -> None:
        task_id = event.task.task_id
        wanted = task_id in self._state.live or self._progress.takes(task_id)
        new = self._progress.enter(event) if wanted else None
        if new is None:
            self._ledger.late_partials += 1
        elif isinstance(self.policy, SeesPartials):
            self._apply(self.policy.on_partial(self._view, new.task, new.messages), actions)

    # -- acts of the policy ------------------------------------------------------------------------------

    def _apply(self, act: Act, actions: list[Action]) -> None:
        if isinstance(act, Wait):
            for task in act.issue:
                if task.task_id in self._state.live:
                    self._ledger.copies += 1
                self._issue(task, actions)
            if self._state.live:
                self._rearm(actions)
            else:
                self._abort("starved", self._starved(), actions)
        elif isinstance(act, Close):
            self._close(act, actions)
        else:
            self._abort(act.kind, act.reason, actions)

    def _issue(self, task: TaskSpec, actions: list[Action], delay: float = 0.0) -> None:
        self._state.add(task, self._state.now + delay)
        self._ledger.issued += 1
        actions.append(Issue(task, delay))

    def _rearm(self, actions: list[Action]) -> None:
        after = self.policy.timer(self._view)
        if after is None and self._armed is None:
            return
        at = None
        if after is not None and after != math.inf:
            if not after >= 0:
                raise InputError(f"a policy's timer must be at least 0 seconds after the round's start, got {after}")
            at = self._state.round_start + after
            # A time that has had its turn is not armed again: a policy that repeats itself must not spin.
            if at <= self._fired:
                at = None
        if at != self._armed:
            self._armed = at
            actions.append(SetTimer(at, self._state.version))

    def _void(self, flights: Sequence[InFlight], actions: list[Action]) -> None:
        if flights:
            self._ledger.voided(flights, self._state.now)
            actions.append(Void(tuple([f.task for f in flights])))

    # -- ends --------------------------------------------------------------------------------------------

    def _close(self, act: Close, actions: list[Action]) -> None:
        state = self._state
        buffer = state.buffer
        if act.consume is None:
            used, rest = tuple(buffer), []
        else:
            used = act.consume
            wanted = {a.task.task_id for a in used}
            rest = [a for a in buffer if a.task.task_id not in wanted]
            if len(wanted) != len(used) or len(rest) + len(used) != len(buffer):
                raise InputError("Close(consume=...) must name arrivals of view.buffer, each once")
        self._ledger.used(used)
        partials = self._progress.collect() if act.collect_partials else ()
        self._ledger.partial_messages += sum(len(part.messages) for part in partials)
        if self.policy.leftover == "cancel":
            self._void(state.drop_all(), actions)
            self._ledger.surplus(rest)
            rest = []
        state.buffer = rest
        actions.append(CloseRound(self._finish(used, None, "", partials)))

    def _abort(self, kind: AbortKind, reason: str, actions: list[Action]) -> None:
        self._give_up(actions)
        actions.append(AbortRound(self._finish((), kind, reason)))

    def _give_up(self, actions: list[Action]) -> None:
        """Void what runs, and drop what arrived and was not consumed."""
        state = self._state
        self._void(state.drop_all(), actions)
        self._ledger.surplus(state.buffer)
        state.buffer = []

    def _finish(
        self, used: tuple[Arrival, ...], error: AbortKind | None, reason: str, partials: tuple[Progressed, ...] = ()
    ) -> RoundOutcome:
        state = self._state
        counts, records = self._ledger.close(self._outstanding())
        outcome = RoundOutcome(
            version=state.version,
            arrivals=used,
            counts=counts,
            records=records,
            t_open=state.round_start,
            t_close=state.now,
            error=error,
            reason=reason,
            failures={slot: f"{kind}: {message}" for slot, (kind, message) in state.failures.items()},
            partials=partials,
        )
        self._is_open = False
        self._last = outcome
        self._armed = None
        self._progress.end_round(state.live)
        state.advance(closed=error is None)
        return outcome

    def _outstanding(self) -> int:
        return len(self._state.buffer) + self._state.n_flying

    def _starved(self) -> str:
        state = self._state
        return (
            f"nothing is in flight and the policy still waits: {len(state.buffer)} results are here, "
            f"{len(state.failures)} of {state.n_slots} slots were given up"
        )
