"""What a call did: every task accounted for, what it cost, and how far the answer can be trusted."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serverless_gc.codes.base import Certificate
from serverless_gc.engine import Counts
from serverless_gc.errors import ServerlessGCError
from serverless_gc.observe.timeline import Span

__all__ = ["Report"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """Account of one call: one round, or several merged.

    Attributes
    ----------
    issued, used, surplus, failed, voided
        Attempts sent, and how each ended: its result entered the answer; its result arrived but was not needed; it
        failed; it was given up while running. The last four add up to the first.
    elapsed
        Seconds from the call to the answer; see ``simulated``.
    certificate
        How the answer was decoded; None before there is one.
    awaited
        Results that had arrived when the rounds were closed.
    rounds
        Number of rounds.
    retries, throttles
        Attempts repeated after a failure; answers 429.
    recovered
        Lost replies whose results were found in the store.
    partial_messages
        Messages of unfinished tasks that entered the answer; the tasks count as given up or failed all the same.
    polls
        Listings of the store in search of partial results.
    late
        Replies of attempts that had been given up: not used.
    stale
        Replies that answered another round or run: not used, their tasks were repeated.
    duplicates
        Speculative copies that were started.
    refused_writes
        Results that were not stored because one was there already.
    slow_downs
        Answers 503 of the store.
    by_reference
        Results too large for a reply, read from the store.
    reads, writes
        Requests to the store as S3 bills them: GET and HEAD; PUT, POST and LIST. Those of the workers whose replies
        arrived, and those that the driver made since the session's report before, encoding and clean-up included.
    failures
        Kind of failure to how often.
    reasons
        The same failures by what exactly happened ("empty reply", "function timed out"), to how often.
    code, n_workers, k
        The code, its workers and blocks; the largest of several rounds.
    strategy
        How a gradient was computed, and why so; empty for other calls.
    bytes_up, bytes_down
        Bytes sent and received by the driver.
    encode_seconds, decode_seconds
        Seconds the driver spent on coding.
    warmed
        No-op invocations made beforehand to warm up, billed like the others.
    spans
        One record for each attempt, for `serverless_gc.observe.plot_timeline`.
    decodable
        Round to the time at which its results sufficed, on the clock of the spans.
    notes
        What a careful user should know, one sentence each.
    simulated
        Whether the seconds of the tasks are those of a simulated clock (``backend="simulated"``): drawn, not measured.
        The driver's own, for coding, are real all the same.

    Examples
    --------
    >>> a = Report(issued=4, used=3, voided=1, elapsed=0.5, code="mds", n_workers=4, k=3, awaited=3)
    >>> b = Report(issued=5, used=3, surplus=1, failed=1, elapsed=0.25, code="mds", n_workers=4, k=3, awaited=4)
    >>> print(a.merge(b))
    mds, 4 workers, k = 3: 2 rounds in 0.75 s
      tasks    9 issued = 6 used + 1 surplus + 1 failed + 1 voided; 7 results had arrived
    """

    issued: int = 0
    used: int = 0
    surplus: int = 0
    failed: int = 0
    voided: int = 0
    elapsed: float = 0.0
    certificate: Certificate | None = None
    awaited: int = 0
    rounds: int = 1
    retries: int = 0
    throttles: int = 0
    recovered: int = 0
    partial_messages: int = 0
    polls: int = 0
    late: int = 0
    stale: int = 0
    duplicates: int = 0
    refused_writes: int = 0
    slow_downs: int = 0
    by_reference: int = 0
    reads: int = 0
    writes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    code: str = ""
    n_workers: int = 0
    k: int = 0
    strategy: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    warmed: int = 0
    spans: tuple[Span, ...] = ()
    decodable: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    simulated: bool = False

    @classmethod
    def of(cls, counts: Counts, **fields: Any) -> Report:
        """Make a report from an engine's counts and further fields.

        Examples
        --------
        >>> print(Report.of(Counts(issued=3, used=2, failed=1, retries=1, failures={"timeout": 1}), elapsed=1.0))
        report: 1 round in 1.00 s
          tasks    3 issued = 2 used + 0 surplus + 1 failed + 0 voided; 0 results had arrived
          trouble  1 retry; failures: 1 timeout
        """
        return cls(
            **{
                "issued": counts.issued,
                "used": counts.used,
                "surplus": counts.surplus,
                "failed": counts.failed,
                "voided": counts.voided,
                "retries": counts.retries,
                "late": counts.late,
                "duplicates": counts.copies,
                "partial_messages": counts.partial_messages,
                "failures": {str(kind): n for kind, n in counts.failures.items()},
                **fields,
            }
        )

    @property
    def error(self) -> float:
        """Squared error of how often partitions are counted in a gradient, the largest of several rounds; 0 if exact.

        With ``G`` the matrix of all partition gradients, the gradient misses by at most ``sqrt(error)`` times the
        largest singular value of ``G``.
        """
        return 0.0 if self.certificate is None else self.certificate.error

    @property
    def error_per_partition(self) -> float:
        """``error / k``: 0 for an exact gradient, 1 if nothing was counted."""
        return self.error / self.k if self.k else 0.0

    @property
    def weights(self) -> Mapping[int, Any]:
        """What each used message of a gradient code was multiplied by; empty for other codes."""
        return {} if self.certificate is None else self.certificate.weights

    @property
    def balanced(self) -> bool:
        """Whether every attempt is accounted for: ``issued == used + surplus + failed + voided``."""
        return self.issued == self.used + self.surplus + self.failed + self.voided

    def check(self) -> Report:
        """Return the report if it is balanced.

        Raises
        ------
        ServerlessGCError
            If attempts are missing from the account; gives the counts.
        """
        if not self.balanced:
            raise ServerlessGCError(f"the account of tasks does not add up: {self._tasks()}; please report this")
        return self

    def merge(self, other: Report) -> Report:
        """Add another report: counts, times and bytes add up, the worse certificate stays.

        Rounds of ``other`` are renumbered to follow this report's, unless their numbers differ already.
        """
        summed = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        shift = self._shift(other)
        return Report(
            **summed,
            certificate=_worse(self.certificate, other.certificate),
            failures=dict(Counter(self.failures) + Counter(other.failures)),
            reasons=dict(Counter(self.reasons) + Counter(other.reasons)),
            code=" + ".join(dict.fromkeys(name for name in (self.code, other.code) if name)),
            n_workers=max(self.n_workers, other.n_workers),
            k=max(self.k, other.k),
            strategy="; ".join(dict.fromkeys(said for said in (self.strategy, other.strategy) if said)),
            spans=self.spans + tuple(dataclasses.replace(s, round=s.round + shift) for s in other.spans),
            decodable={**self.decodable, **{r + shift: t for r, t in other.decodable.items()}},
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            simulated=self.simulated or other.simulated,
        )

    def without_spans(self) -> Report:
        """Return the same account without its records of single attempts: what a long sum of reports can carry."""
        return dataclasses.replace(self, spans=(), decodable={})

    def _shift(self, other: Report) -> int:
        mine = {s.round for s in self.spans} | set(self.decodable)
        theirs = {s.round for s in other.spans} | set(other.decodable)
        return max(mine) + 1 - min(theirs) if mine & theirs else 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["certificate"] = None if self.certificate is None else dataclasses.asdict(self.certificate)
        plain["spans"] = [dataclasses.asdict(span) for span in self.spans]
        result: dict[str, Any] = _json(plain)
        return result

    def __repr__(self) -> str:
        return f"<Report: {next(self._lines())}; {self._tasks()}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        who = ", ".join(
            [
                *([self.code] if self.code else []),
                *([_count(self.n_workers, "worker")] if self.n_workers else []),
                *([f"k = {self.k}"] if self.k else []),
            ]
        )
        clock = " on a simulated clock" if self.simulated else ""
        yield f"{who or 'report'}: {_count(self.rounds, 'round')} in {_seconds(self.elapsed)}{clock}"
        yield f"  tasks    {self._tasks()}; {_count(self.awaited, 'result')} had arrived{self._partial()}"
        if trouble := self._trouble():
            yield f"  trouble  {trouble}"
        if cost := self._cost():
            yield f"  cost     {cost}"
        if self.certificate is not None:
            yield f"  answer   {_answer(self.certificate, self.notes)}"
        if self.strategy:
            yield f"  strategy {self.strategy}"
        for note in self.notes:
            yield f"  note     {note}"

    def _tasks(self) -> str:
        return (
            f"{self.issued} issued = {self.used} used + {self.surplus} surplus + {self.failed} failed"
            f" + {self.voided} voided"
        )

    def _partial(self) -> str:
        if not self.partial_messages:
            return ""
        return f", and {_count(self.partial_messages, 'message')} of unfinished tasks"

    def _trouble(self) -> str:
        said = [
            (self.retries, "retry", "retries"),
            (self.throttles, "throttle", "throttles"),
            (self.recovered, "lost reply, its result recovered", "lost replies, their results recovered"),
            (self.late, "late reply", "late replies"),
            (self.stale, "stale reply", "stale replies"),
            (self.duplicates, "speculative copy", "speculative copies"),
            (self.refused_writes, "second write refused", "second writes refused"),
            (self.slow_downs, "503 of the store", "503s of the store"),
        ]
        words = [f"{n} {one if n == 1 else many}" for n, one, many in said if n]
        if self.failures:
            words.append(f"failures: {_listed(self.failures)}")
            if self.reasons and self.reasons != self.failures:
                words[-1] += f" ({_listed(self.reasons)})"
        return "; ".join(words)

    def _cost(self) -> str:
        words = []
        if self.bytes_up or self.bytes_down:
            words.append(f"{_bytes(self.bytes_up)} up, {_bytes(self.bytes_down)} down")
        if self.reads or self.writes:
            words.append(f"{_count(self.reads, 'read')} and {_count(self.writes, 'write')} of the store")
        if self.encode_seconds or self.decode_seconds:
            words.append(f"encode {_seconds(self.encode_seconds)}, decode {_seconds(self.decode_seconds)}")
        if self.polls:
            words.append(f"{self.polls} look{'s' if self.polls > 1 else ''} for partial results")
        if self.warmed:
            words.append(f"{_count(self.warmed, 'no-op invocation')} to warm up")
        return "; ".join(words)


_SUMMED = (
    *("issued", "used", "surplus", "failed", "voided", "elapsed", "awaited", "rounds", "retries", "throttles"),
    *("recovered", "late", "stale", "duplicates", "refused_writes", "slow_downs", "by_reference", "reads", "writes"),
    *("partial_messages", "polls"),
    *("bytes_up", "bytes_down", "warmed"),
    *("encode_seconds", "decode_seconds"),
)


def _worse(a: Certificate | None, b: Certificate | None) -> Certificate | None:
    if a is None or b is None:
        return a if b is None else b
    return max(a, b, key=_badness)


def _badness(certificate: Certificate) -> tuple[float, ...]:
    residual = certificate.residual or 0.0
    # A figure that could not be computed is the worst one.
    worst = [float("inf") if np.isnan(x) else x for x in (certificate.predicted_error, residual)]
    return round(certificate.error, 9), max(worst), certificate.amplification, len(certificate.warning)


def _answer(certificate: Certificate, notes: Sequence[str]) -> str:
    words = [f"predicted relative error {certificate.predicted_error:.1e} ({certificate.method})"]
    if certificate.surplus_checked and certificate.residual is not None:
        checked = _count(certificate.surplus_checked, "surplus result")
        words.append(
            f"{checked} agree{'s' if certificate.surplus_checked == 1 else ''} within {certificate.residual:.1e}"
        )
    if certificate.warning and certificate.warning not in notes:  # a note is printed anyway
        words.append(certificate.warning)
    return "; ".join(words)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _bytes(n: int) -> str:
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(len(units) - 1, (len(str(n)) - 1) // 3)
    size = n / 1000**power
    return f"{size:.3g} {units[power]}" if size < 1000 else f"{size:.0f} {units[power]}"


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return [value.real, value.imag] if isinstance(value, complex) else value
