"""Conservation accounting: every attempt issued ends exactly once, and the counts add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from serverless_gc.errors import FailureKind
from serverless_gc.types import Arrival, InFlight

__all__ = ["Counts", "Fate", "Ledger", "TaskRecord"]

Fate: TypeAlias = Literal["used", "surplus", "failed", "voided", "withdrawn"]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """How one attempt went; a row of the timeline.

    Attributes
    ----------
    slot, task_id, attempt, version
        Which attempt.
    t_issued, t_end
        Seconds on the host's clock. ``t_end`` is when the attempt arrived, failed or was voided.
    fate
        ``"used"`` (entered the answer), ``"surplus"`` (arrived, not needed), ``"failed"``, ``"voided"`` (no longer
        wanted; it may run on and be billed) or ``"withdrawn"`` (a retry that was never started).
    kind, message
        For ``"failed"``: what went wrong; else None and an empty string.
    stats
        What the worker reported with its result.
    """

    slot: int
    task_id: str
    attempt: int
    version: int
    t_issued: float
    t_end: float
    fate: Fate
    kind: FailureKind | None = None
    message: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one round, or of several added up.

    Attributes
    ----------
    issued
        Attempts started: first ones, retries and speculative copies. One attempt is one invocation.
    used, surplus, failed, voided
        How attempts ended; see `TaskRecord`.
    carried, outstanding
        Attempts that were running or unconsumed when the round opened and when it ended. Both are zero unless the
        policy keeps leftovers.
    withdrawn
        Retries that were still waiting for their start when the round ended; not counted as issued.
    retries, copies
        How many of the issued attempts repeat a failed one, or double a slow one.
    duplicates
        Replies dropped because a result of the same task was there already.
    late
        Replies dropped because their attempt had been voided or given up, or belonged to an older round.
    partial_messages
        Messages of unfinished tasks that entered the answer; their attempts count as voided or failed all the same.
    late_partials
        Partial results dropped because their task was over, or nothing in them was new.
    busy_used, busy_wasted
        Seconds between issue and end, of the used attempts and of all the others.
    failures
        Failed attempts by kind.
    """

    issued: int = 0
    used: int = 0
    surplus: int = 0
    failed: int = 0
    voided: int = 0
    carried: int = 0
    outstanding: int = 0
    withdrawn: int = 0
    retries: int = 0
    copies: int = 0
    duplicates: int = 0
    late: int = 0
    partial_messages: int = 0
    late_partials: int = 0
    busy_used: float = 0.0
    busy_wasted: float = 0.0
    failures: Mapping[FailureKind, int] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """Attempts that ended: used, surplus, failed and voided."""
        return self.used + self.surplus + self.failed + self.voided

    @property
    def balanced(self) -> bool:
        """Whether the law of conservation holds."""
        return self.carried + self.issued == self.ended + self.outstanding

    def __add__(self, later: Counts) -> Counts:
        """Add the counts of a later round of the same engine."""
        return Counts(
            issued=self.issued + later.issued,
            used=self.used + later.used,
            surplus=self.surplus + later.surplus,
            failed=self.failed + later.failed,
            voided=self.voided + later.voided,
            carried=self.carried,
            outstanding=later.outstanding,
            withdrawn=self.withdrawn + later.withdrawn,
            retries=self.retries + later.retries,
            copies=self.copies + later.copies,
            duplicates=self.duplicates + later.duplicates,
            late=self.late + later.late,
            partial_messages=self.partial_messages + later.partial_messages,
            late_partials=self.late_partials + later.late_partials,
            busy_used=self.busy_used + later.busy_used,
            busy_wasted=self.busy_wasted + later.busy_wasted,
            failures=dict(Counter(self.failures) + Counter(later.failures)),
        )


class Ledger:
    """Running counts of the round in progress. The engine enters every beginning and every end here."""

    def __init__(self, *, keep_records: bool = True) -> None:
        self._keep_records = keep_records
        self._reset(carried=0)

    def _reset(self, carried: int) -> None:
        self._carried = carried
        self._records: list[TaskRecord] = []
        self._failures: dict[FailureKind, int] = {}
        self.issued = self.retries = self.copies = self.withdrawn = 0
        self.duplicates = self.late = self.partial_messages = self.late_partials = 0
        self._used = self._surplus = self._voided = 0
        self._busy_used = self._busy_wasted = 0.0

    def used(self, arrivals: Sequence[Arrival]) -> None:
        """Enter arrivals that were consumed."""
        self._used += len(arrivals)
        for a in arrivals:
            self._busy_used += a.t_arrived - a.t_issued
        if self._keep_records:
            self._records += [_arrival_record(a, "used") for a in arrivals]

    def surplus(self, arrivals: Sequence[Arrival]) -> None:
        """Enter arrivals that were not needed."""
        self._surplus += len(arrivals)
        for a in arrivals:
            self._busy_wasted += a.t_arrived - a.t_issued
        if self._keep_records:
            self._records += [_arrival_record(a, "surplus") for a in arrivals]

    def failed(self, flight: InFlight, now: float, kind: FailureKind, message: str) -> None:
        """Enter a failed attempt."""
        self._failures[kind] = self._failures.get(kind, 0) + 1
        self._busy_wasted += max(0.0, now - flight.t_issued)
        if self._keep_records:
            self._records.append(_flight_record(flight, now, "failed", kind, message))

    def voided(self, flights: Sequence[InFlight], now: float) -> None:
        """Enter attempts that are no longer wanted; those not started yet were never issued."""
        for flight in flights:
            fate: Fate = "voided"
            if flight.t_issued > now:
                fate = "withdrawn"
                self.withdrawn += 1
                self.issued -= 1
                self.retries -= 1
            else:
                self._voided += 1
                self._busy_wasted += now - flight.t_issued
            if self._keep_records:
                self._records.append(_flight_record(flight, now, fate))

    def counts(self, outstanding: int) -> Counts:
        """Return the counts so far, with ``outstanding`` attempts running or unconsumed."""
        return Counts(
            issued=self.issued,
            used=self._used,
            surplus=self._surplus,
            failed=sum(self._failures.values()),
            voided=self._voided,
            carried=self._carried,
            outstanding=outstanding,
            withdrawn=self.withdrawn,
            retries=self.retries,
            copies=self.copies,
            duplicates=self.duplicates,
            late=self.late,
            partial_messages=self.partial_messages,
            late_partials=self.late_partials,
            busy_used=self._busy_used,
            busy_wasted=self._busy_wasted,
            failures=dict(self._failures),
        )

    def close(self, outstanding: int) -> tuple[Counts, tuple[TaskRecord, ...]]:
        """Return counts and records of the round and start the next one."""
        counts, records = self.counts(outstanding), tuple(self._records)
        self._reset(carried=outstanding)
        return counts, records


def _arrival_record(a: Arrival, fate: Fate) -> TaskRecord:
    task = a.task
    return TaskRecord(task.slot, task.task_id, task.attempt, task.version, a.t_issued, a.t_arrived, fate, stats=a.stats)


def _flight_record(
    flight: InFlight, now: float, fate: Fate, kind: FailureKind | None = None, message: str = ""
) -> TaskRecord:
    task = flight.task
    return TaskRecord(task.slot, task.task_id, task.attempt, task.version, flight.t_issued, now, fate, kind, message)
