"""When each attempt did what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from serverless_gc.engine import TaskRecord

__all__ = ["Fate", "Span", "spans_of"]

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


def spans_of(records: Iterable[TaskRecord], number: int) -> Iterator[Span]:
    """Split each attempt's time into phases: what the worker reported, and the rest as queued."""
    for record in records:
        if record.fate == "withdrawn":
            continue
        phases = {name: float(record.stats.get(name, 0.0)) for name in ("read", "compute", "write")}
        yield Span(
            slot=record.slot,
            attempt=record.attempt,
            round=number,
            t_issued=record.t_issued,
            t_end=record.t_end,
            fate=record.fate,
            queued=max(0.0, record.t_end - record.t_issued - sum(phases.values())),
            **phases,
        )
