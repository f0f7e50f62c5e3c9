"""When each attempt did what: records, made from events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from serverless_gc.observe.events import (
    Decodable,
    Event,
    RoundClosed,
    RoundOpened,
    TaskArrived,
    TaskFailed,
    TaskIssued,
)

__all__ = ["Fate", "Span", "Timeline"]

Fate: TypeAlias = Literal["used", "surplus", "failed", "voided"]


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt from issue to end.

    Attributes
    ----------
    slot, attempt, round
        Which attempt.
    t_issued, t_end
        When it was issued, and when it arrived, failed or was given up; seconds on the driver's clock.
    queued, read, compute, write
        Seconds of each phase: all that is not the worker's own time counts as queued (start, transfer).
    fate
        How it ended.
    """

    slot: int
    attempt: int
    round: int
    t_issued: float
    t_end: float
    queued: float = 0.0
    read: float = 0.0
    compute: float = 0.0
    write: float = 0.0
    fate: Fate = "used"


class Timeline:
    """A listener that makes one `Span` of every attempt.

    Examples
    --------
    >>> timeline = Timeline()
    >>> for event in (
    ...     RoundOpened(0.0, round=0, n_slots=2, needed=1),
    ...     TaskIssued(0.0, round=0, slot=0),
    ...     TaskIssued(0.0, round=0, slot=1),
    ...     TaskArrived(1.0, round=0, slot=1, read=0.25, compute=0.5),
    ...     Decodable(1.0, round=0),
    ...     RoundClosed(1.5, round=0, used=[(1, 0)]),
    ... ):
    ...     timeline(event)
    >>> [(s.slot, s.fate, s.t_end, s.queued) for s in timeline.spans]
    [(1, 'used', 1.0, 0.25), (0, 'voided', 1.5, 1.5)]
    >>> timeline.decodable
    {0: 1.0}
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.decodable: dict[int, float] = {}
        self._issued: dict[tuple[int, int, int], float] = {}
        self._arrived: dict[tuple[int, int, int], TaskArrived] = {}

    def __call__(self, event: Event) -> None:
        """Take note of one event."""
        match event:
            case TaskIssued():
                self._issued[event.round, event.slot, event.attempt] = event.t
            case TaskArrived():
                key = event.round, event.slot, event.attempt
                if key in self._issued:  # else it is a duplicate, or of a closed round
                    self._arrived.setdefault(key, event)
            case TaskFailed():
                key = event.round, event.slot, event.attempt
                if key in self._issued:
                    self._add(*key, self._issued.pop(key), event.t, "failed")
            case Decodable():
                self.decodable.setdefault(event.round, event.t)
            case RoundClosed():
                self._close(event)
            case RoundOpened():
                pass

    def _close(self, event: RoundClosed) -> None:
        used = set(event.used)
        for key in [key for key in self._arrived if key[0] == event.round and key in self._issued]:
            a = self._arrived.pop(key)
            t_issued = self._issued.pop(key)
            fate: Fate = "used" if key[1:] in used else "surplus"
            self._add(*key, t_issued, a.t, fate, a.read, a.compute, a.write)
        for key in [key for key in self._issued if key[0] == event.round]:
            self._add(*key, self._issued.pop(key), event.t, "voided")

    def _add(
        self,
        round_: int,
        slot: int,
        attempt: int,
        t_issued: float,
        t_end: float,
        fate: Fate,
        read: float = 0.0,
        compute: float = 0.0,
        write: float = 0.0,
    ) -> None:
        queued = max(0.0, t_end - t_issued - read - compute - write)
        self.spans.append(Span(slot, attempt, round_, t_issued, t_end, queued, read, compute, write, fate))
