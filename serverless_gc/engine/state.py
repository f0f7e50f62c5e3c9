"""What the engine knows about the round in progress, and the read-only view of it that policies get."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, overload

from serverless_gc.errors import FailureKind, InputError
from serverless_gc.types import Arrival, InFlight, TaskSpec

__all__ = ["Flying", "LiveTask", "RoundState", "RoundView"]

_MASK = 2**64 - 1


class LiveTask:
    """A task with at least one attempt in flight."""

    __slots__ = ("failures", "flights", "next_attempt")

    def __init__(self) -> None:
        self.flights: dict[int, InFlight] = {}
        self.next_attempt = 0
        self.failures = 0


class RoundState:
    """Mutable state of the engine. Only the engine writes to it."""

    def __init__(
        self,
        n_slots: int,
        *,
        version: int,
        seed: int,
        history: Iterable[float],
        history_limit: int,
        milestones: Callable[[int], tuple[float, ...]] | None = None,
    ) -> None:
        self.n_slots = n_slots
        self.version = version
        self.now = -math.inf
        self.round_start = 0.0
        self.loss_estimate: float | None = None
        self.history: deque[float] = deque(history, maxlen=history_limit)
        self.buffer: list[Arrival] = []
        self.failures: dict[int, tuple[FailureKind, str]] = {}
        self.live: dict[str, LiveTask] = {}
        self.load = [0] * n_slots  # attempts in flight per slot
        self.n_flying = 0  # their sum
        self.arrived: set[str] = set()  # task ids whose result was taken in this round or is still buffered
        self._seed = seed
        self._milestones = milestones
        self._salt = _mix(_mix(0, seed), version)
        self._newest: dict[int, str] = {}  # slot -> its newest task of this version
        self._made: dict[int, int] = {}  # slot -> tasks made for this version

    def add(self, task: TaskSpec, t_issued: float) -> LiveTask:
        """Enter an attempt that is being issued."""
        live = self.live.get(task.task_id)
        if live is None:
            if not 0 <= task.slot < self.n_slots:
                raise InputError(f"a task's slot must be in 0..{self.n_slots - 1}, got {task.slot}")
            live = self.live[task.task_id] = LiveTask()
            if task.version == self.version:
                self._newest[task.slot] = task.task_id
                self._made[task.slot] = self._made.get(task.slot, 0) + 1
        if task.attempt < live.next_attempt:
            raise InputError(f"attempt {task.attempt} of task {task.task_id} was issued before; use view.new_task")
        live.next_attempt = task.attempt + 1
        live.flights[task.attempt] = InFlight(task, t_issued)
        self.load[task.slot] += 1
        self.n_flying += 1
        return live

    def take(self, task: TaskSpec) -> tuple[LiveTask, InFlight] | None:
        """Remove an attempt that ended; None if it is not in flight."""
        live = self.live.get(task.task_id)
        if live is None:
            return None
        flight = live.flights.pop(task.attempt, None)
        if flight is None:
            return None
        self.load[flight.task.slot] -= 1
        self.n_flying -= 1
        return live, flight

    def drop(self, task_id: str) -> list[InFlight]:
        """Forget a task; return its attempts that were still in flight."""
        flights = list(self.live.pop(task_id).flights.values())
        for flight in flights:
            self.load[flight.task.slot] -= 1
        self.n_flying -= len(flights)
        return flights

    def drop_all(self) -> list[InFlight]:
        """Forget every task; return the attempts that were in flight."""
        flights = [flight for live in self.live.values() for flight in live.flights.values()]
        self.live.clear()
        self.load = [0] * self.n_slots
        self.n_flying = 0
        return flights

    def advance(self, *, closed: bool) -> None:
        """End the round; a closed one makes a new version."""
        self.failures = {}
        self.arrived = {a.task.task_id for a in self.buffer}
        if closed:
            self.version += 1
            self._salt = _mix(_mix(0, self._seed), self.version)
            self._newest.clear()
            self._made.clear()

    def state_dict(self) -> dict[str, Any] | None:
        """Return what is in flight between two rounds, JSON types; None if more than that would have to be told."""
        flights = [flight for live in self.live.values() for flight in live.flights.values()]
        if self.buffer or any(flight.task.milestones for flight in flights):
            return None
        return {
            "version": self.version,
            "now": self.now,
            "history": list(self.history),
            "live": [
                {
                    "flights": [[asdict(flight.task), flight.t_issued] for flight in live.flights.values()],
                    "next_attempt": live.next_attempt,
                    "failures": live.failures,
                }
                for live in self.live.values()
            ],
        }

    def load_state_dict(self, saved: Mapping[str, Any], shift: float) -> list[TaskSpec]:
        """Take over what `state_dict` returned, on a clock that is ``shift`` ahead; return what is in flight."""
        self.now = saved["now"] + shift
        self.history.extend(saved["history"])
        tasks = []
        for entry in saved["live"]:
            for fields, t_issued in entry["flights"]:
                task = TaskSpec(**{**fields, "milestones": tuple(fields["milestones"])})
                live = self.add(task, t_issued + shift)
                tasks.append(task)
            live.next_attempt, live.failures = entry["next_attempt"], entry["failures"]
        return tasks

    def new_task(self, slot: int, **fields: Any) -> TaskSpec:
        """Make a task for ``slot``.

        While the slot's newest task of this version is in flight, the result is a copy of it: same ``task_id`` and
        seed, next attempt number. Otherwise it is a new task.
        """
        newest = self._newest.get(slot)
        live = self.live.get(newest) if newest is not None else None
        if live is not None:
            return replace(next(iter(live.flights.values())).task, attempt=live.next_attempt, **fields)
        made = self._made.get(slot, 0)
        task_id = f"{self.version}-{slot}-{made}" if made else f"{self.version}-{slot}"
        fields.setdefault("seed", _mix(self._salt, slot + (made << 32)) >> 1)
        if self._milestones is not None:
            fields.setdefault("milestones", self._milestones(slot))
        return TaskSpec(task_id, slot, self.version, **fields)


class Flying(Sequence[InFlight]):
    """The attempts in flight, task by task in order of issue; counting them costs nothing."""

    __slots__ = ("_state",)

    def __init__(self, state: RoundState) -> None:
        self._state = state

    def __len__(self) -> int:
        return self._state.n_flying

    def __iter__(self) -> Iterator[InFlight]:
        for live in self._state.live.values():
            yield from live.flights.values()

    @overload
    def __getitem__(self, index: int) -> InFlight: ...
    @overload
    def __getitem__(self, index: slice) -> list[InFlight]: ...
    def __getitem__(self, index: int | slice) -> InFlight | list[InFlight]:
        return list(self)[index]


class RoundView:
    """Read-only view of the round (`serverless_gc.types.View`)."""

    __slots__ = ("_state", "new_task")

    def __init__(self, state: RoundState) -> None:
        self._state = state
        self.new_task = state.new_task  # itself: a simulation calls it for every task

    @property
    def now(self) -> float:
        """Time of the event being handled."""
        return self._state.now

    @property
    def round_start(self) -> float:
        """Time at which the round opened."""
        return self._state.round_start

    @property
    def version(self) -> int:
        """Model version of the round."""
        return self._state.version

    @property
    def n_slots(self) -> int:
        """Number of slots."""
        return self._state.n_slots

    @property
    def buffer(self) -> Sequence[Arrival]:
        """Arrivals not consumed yet, in order of arrival."""
        return self._state.buffer

    @property
    def history(self) -> Sequence[float]:
        """Durations of past successful attempts, oldest first."""
        return self._state.history

    @property
    def failures(self) -> Mapping[int, tuple[FailureKind, str]]:
        """Slots given up in this round: kind and message of the last failure."""
        return self._state.failures

    @property
    def loss_estimate(self) -> float | None:
        """What the caller last told the engine about the loss."""
        return self._state.loss_estimate

    def in_flight(self) -> Sequence[InFlight]:
        """List attempts in flight; a retry waiting for its start has ``t_issued`` in the future."""
        return Flying(self._state)

    def idle_slots(self) -> Sequence[int]:
        """Slots without an attempt in flight."""
        return [slot for slot, load in enumerate(self._state.load) if not load]


def _mix(z: int, number: int) -> int:
    """Mix a number into 64 bits (one splitmix64 step): equal inputs, equal result, on every machine."""
    z = (z + number + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
