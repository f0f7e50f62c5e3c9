"""What happens in a round, as small values handed to plain callables.

Times are seconds on the driver's (or the virtual) clock. A listener is any callable that takes one event; it must not
block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from serverless_gc.errors import FailureKind

__all__ = [
    "Event",
    "Listener",
    "RoundClosed",
    "RoundOpened",
    "TaskArrived",
    "TaskFailed",
    "TaskIssued",
]


@dataclass(frozen=True, slots=True)
class RoundOpened:
    """A round begins. ``needed`` is the least number of results that can be decoded; ``name`` says what it computes."""

    t: float
    round: int
    n_slots: int
    needed: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class TaskIssued:
    """One attempt was sent."""

    t: float
    round: int
    slot: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class TaskArrived:
    """A valid result arrived. ``read``, ``compute`` and ``write`` are the worker's own seconds."""

    t: float
    round: int
    slot: int
    attempt: int = 0
    read: float = 0.0
    compute: float = 0.0
    write: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """One attempt failed."""

    t: float
    round: int
    slot: int
    attempt: int = 0
    kind: FailureKind = "function"
    message: str = ""


@dataclass(frozen=True, slots=True)
class RoundClosed:
    """The round ends; what still runs is voided."""

    t: float
    round: int


Event: TypeAlias = RoundOpened | TaskIssued | TaskArrived | TaskFailed | RoundClosed
Listener: TypeAlias = Callable[[Event], None]
