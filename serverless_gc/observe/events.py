"""What happens in a round, as small values handed to plain callables.

Times are seconds on the driver's (or the virtual) clock. A listener is any callable that takes one event; it must not
block. Nothing here keeps a list of listeners: whoever runs a round is given one callable, `fan_out` joins several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from serverless_gc.errors import FailureKind

__all__ = [
    "Attempt",
    "Decodable",
    "Event",
    "Listener",
    "RoundClosed",
    "RoundOpened",
    "TaskArrived",
    "TaskFailed",
    "TaskIssued",
    "fan_out",
]

Attempt: TypeAlias = tuple[int, int]
"""Slot and number of an attempt."""


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
class Decodable:
    """The results that arrived determine the answer."""

    t: float
    round: int


@dataclass(frozen=True, slots=True)
class RoundClosed:
    """The round ends. ``used`` are the attempts whose results entered the answer; what still runs is voided."""

    t: float
    round: int
    used: Collection[Attempt] = ()


Event: TypeAlias = RoundOpened | TaskIssued | TaskArrived | TaskFailed | Decodable | RoundClosed
Listener: TypeAlias = Callable[[Event], None]


def fan_out(*listeners: Listener) -> Listener:
    """Return a listener that hands every event to all of ``listeners``, in this order.

    Examples
    --------
    >>> seen = []
    >>> fan_out(seen.append, lambda event: seen.append(event.t))(Decodable(t=1.5, round=0))
    >>> seen
    [Decodable(t=1.5, round=0), 1.5]
    """

    def hand_on(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return hand_on
