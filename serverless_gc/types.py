"""Vocabulary of the round engine: tasks, arrivals, acts, and the plug-in protocols.

Pure data and protocols; nothing here does I/O, reads a clock or knows a code.
Shapes and meaning follow one normative loop: a *round* opens by issuing tasks to *slots*
(logical workers), results arrive, a `WaitPolicy` decides when to close, the consumed
arrivals are aggregated and the model *version* advances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from serverless_gc.errors import FailureKind

__all__ = [
    "Abort",
    "Act",
    "Aggregator",
    "Array",
    "Arrival",
    "ArrivalTransform",
    "Buffer",
    "Close",
    "Compressor",
    "FloatArray",
    "FollowsSteps",
    "InFlight",
    "Optimizer",
    "SeesPartials",
    "StragglerModel",
    "TaskSpec",
    "Timing",
    "Topology",
    "Trigger",
    "Update",
    "UpdateContext",
    "View",
    "Wait",
    "WaitPolicy",
]

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One piece of work for one slot.

    ``task_id`` names the *result*: every attempt at the task (retry or speculative copy) shares it
    and writes the same object, once. ``(task_id, attempt)`` names one invocation. ``milestones[j]`` is the fraction of
    the task's work after which its ``j``-th message is published, ascending; messages beyond come with the result.
    With ``stop_at``, a time on the driver's or the virtual clock, the worker does as many units of work as begin before
    then, be it none, instead of ``work`` units.
    """

    task_id: str
    slot: int
    version: int
    attempt: int = 0
    work: float = 1.0
    stop_at: float | None = None
    token: int | None = None
    seed: int = 0
    payload: Mapping[str, Any] = field(default_factory=dict)
    milestones: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A result that reached the driver. Times are seconds on the driver's (or the virtual) clock."""

    task: TaskSpec
    t_issued: float
    t_arrived: float
    work_done: float = 1.0
    body: Any = None
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """What an aggregator hands to the optimizer."""

    direction: Array
    n_eff: float = 1.0
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A task that was issued and has neither arrived, failed nor been voided."""

    task: TaskSpec
    t_issued: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the round open, issuing these further tasks now."""

    issue: tuple[TaskSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Close:
    """Close the round, consuming these arrivals (``None``: everything buffered).

    ``collect_partials`` also takes what unfinished tasks have delivered so far.
    """

    consume: tuple[Arrival, ...] | None = None
    collect_partials: bool = False


@dataclass(frozen=True, slots=True)
class Abort:
    """Give the round up. ``kind`` chooses the error: the deadline passed, or nothing more can come."""

    reason: str
    kind: Literal["deadline", "starved"] = "starved"


Act: TypeAlias = Wait | Close | Abort


class View(Protocol):
    """What a policy may see. Read-only."""

    @property
    def now(self) -> float: ...
    @property
    def round_start(self) -> float: ...
    @property
    def version(self) -> int: ...
    @property
    def n_slots(self) -> int: ...
    @property
    def buffer(self) -> Sequence[Arrival]:
        """Arrivals not consumed yet, in order of arrival."""
        ...

    @property
    def history(self) -> Sequence[float]:
        """Durations of past successful attempts, this round's included, oldest first; bounded."""
        ...

    @property
    def failures(self) -> Mapping[int, tuple[FailureKind, str]]:
        """Slots given up in this round: kind and message of the last failure."""
        ...

    @property
    def loss_estimate(self) -> float | None: ...
    def in_flight(self) -> Sequence[InFlight]: ...
    def idle_slots(self) -> Sequence[int]: ...
    def new_task(self, slot: int, **fields: Any) -> TaskSpec:
        """Make a task for ``slot`` with the current version and the next free attempt number."""
        ...


@runtime_checkable
class WaitPolicy(Protocol):
    """Decides what to issue and when to close. Holds no I/O and no clock.

    ``open`` starts a round and must reset per-round state. ``timer`` returns the time at which ``on_timer``
    should next be called, in seconds after the round's start, or None; it is asked again after every event.
    ``on_failure`` is called when a slot has been given up (its retries are exhausted).
    """

    leftover: Literal["cancel", "keep"]

    def open(self, view: View) -> Sequence[TaskSpec]: ...
    def on_arrival(self, view: View, arrival: Arrival) -> Act: ...
    def on_failure(self, view: View, task: TaskSpec) -> Act: ...
    def timer(self, view: View) -> float | None: ...
    def on_timer(self, view: View) -> Act: ...


@runtime_checkable
class SeesPartials(Protocol):
    """A `WaitPolicy` that is told of partial results; for others they do not exist.

    ``messages`` are new messages of a task in flight or given up, by their place in its order of computation.
    """

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act: ...


@runtime_checkable
class FollowsSteps(Protocol):
    """A transform, aggregator or waiting policy that is told of each step from one model to the next."""

    def after_step(self, before: Array, after: Array, update: Update) -> None: ...


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """What transforms and aggregators may look at."""

    x: Array
    version: int
    t: float
    rng: np.random.Generator
    model_at: Callable[[int], Array]


class ArrivalTransform(Protocol):
    """Per-result correction before aggregation; returning None drops the result."""

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival | None: ...


class Aggregator(Protocol):
    """Turns the consumed arrivals into one update. A code's decoder is an aggregator."""

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update: ...


class Optimizer(Protocol):
    """Pure step rule: ``init(x) -> state``, ``step(x, update, state, t) -> (x, state)``."""

    def init(self, x: Array) -> Any: ...
    def step(self, x: Array, update: Update, state: Any, t: int) -> tuple[Array, Any]: ...


class Trigger(Protocol):
    """Whether a slot should send at all in this round."""

    site: Literal["driver", "worker"]

    def should_send(self, view: Mapping[str, Any]) -> bool: ...


class Topology(Protocol):
    """Who mixes with whom: weights leaving a node sum to one."""

    def out(self, i: int, k: int) -> Sequence[tuple[int, float]]: ...
    def groups(self) -> Sequence[Sequence[int]]: ...
    def matrix(self, k: int) -> FloatArray: ...


class Compressor(Protocol):
    """Encodes an array for the wire; unbiased if ``unbiased`` says so."""

    unbiased: bool

    def encode(self, g: Array, seed: int) -> bytes: ...
    def decode(self, data: Buffer, seed: int) -> Array: ...
    def noise_var(self, g: Array) -> float: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds one task spends in each phase."""

    start: float = 0.0
    read: float = 0.0
    compute: float = 0.0
    write: float = 0.0

    @property
    def total(self) -> float:
        """Seconds from issue to arrival."""
        return self.start + self.read + self.compute + self.write


@runtime_checkable
class StragglerModel(Protocol):
    """Law of the delay of one task; drives the simulator and the planner."""

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of round ``k``'s task in ``slot`` asking for ``work`` units."""
        ...
