"""What goes into the round engine and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from serverless_gc.engine.accounting import Counts, TaskRecord
from serverless_gc.errors import FailureKind
from serverless_gc.types import Arrival, TaskSpec

__all__ = [
    "AbortKind",
    "AbortRound",
    "Action",
    "Arrived",
    "Cancelled",
    "CloseRound",
    "Event",
    "Failed",
    "Issue",
    "Progressed",
    "RoundOutcome",
    "SetTimer",
    "TimerFired",
    "Void",
]

AbortKind: TypeAlias = Literal["deadline", "starved", "cancelled"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """An attempt delivered its result."""

    task: TaskSpec
    body: Any = None
    work_done: float = 1.0
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt ended without a usable result; a rejected one comes in with kind ``"bad-reply"``."""

    task: TaskSpec
    kind: FailureKind
    message: str = ""
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class Progressed:
    """Some messages of a task that goes on are here.

    Any attempt may have computed them. Repeated, late or stale ones change nothing.

    Attributes
    ----------
    task
        An attempt at the task.
    messages
        Which of the task's messages, by their place in its order of computation: 0 is the first.
    body, stats
        What came with them.
    """

    task: TaskSpec
    messages: tuple[int, ...]
    body: Any = None
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer set by the `SetTimer` with this version and time went off."""

    version: int
    at: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The round is to end now, from outside."""

    reason: str
    kind: AbortKind = "cancelled"


Event: TypeAlias = Arrived | Failed | Progressed | TimerFired | Cancelled


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """How a round ended, with everything a report needs.

    Attributes
    ----------
    version
        Model version the round worked on.
    arrivals
        The consumed arrivals in order of arrival; empty when aborted.
    counts
        The accounting.
    records
        One entry per attempt that ended in this round.
    t_open, t_close
        Seconds on the host's clock.
    error
        None when the round closed, else ``"deadline"``, ``"starved"`` or ``"cancelled"``.
    reason
        Why it was aborted, in words.
    failures
        Slots given up, and why, in words.
    partials
        What unfinished tasks had delivered, if the policy closed with it (``Close(collect_partials=True)``).
    """

    version: int
    arrivals: tuple[Arrival, ...]
    counts: Counts
    records: tuple[TaskRecord, ...]
    t_open: float
    t_close: float
    error: AbortKind | None = None
    reason: str = ""
    failures: Mapping[int, str] = field(default_factory=dict)
    partials: tuple[Progressed, ...] = ()

    @property
    def duration(self) -> float:
        """Seconds the round took."""
        return self.t_close - self.t_open


@dataclass(frozen=True, slots=True)
class Issue:
    """Start this attempt, ``delay`` seconds from now."""

    task: TaskSpec
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `TimerFired` at this time, instead of any timer set before; None: at no time."""

    at: float | None
    version: int


@dataclass(frozen=True, slots=True)
class Void:
    """These attempts are no longer wanted: stop them if possible, ignore them otherwise."""

    tasks: tuple[TaskSpec, ...]


@dataclass(frozen=True, slots=True)
class CloseRound:
    """The round is over; its arrivals are to be aggregated before the next one opens."""

    outcome: RoundOutcome

    @property
    def arrivals(self) -> tuple[Arrival, ...]:
        """The consumed arrivals."""
        return self.outcome.arrivals


@dataclass(frozen=True, slots=True)
class AbortRound:
    """The round is over without an answer; the outcome says why."""

    outcome: RoundOutcome


Action: TypeAlias = Issue | SetTimer | Void | CloseRound | AbortRound
