"""When each attempt did what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Fate", "Span"]

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
