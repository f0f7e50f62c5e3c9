"""Recorded delays: taken from the reports of real runs, saved, loaded and replayed through the same engine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.empirical import Empirical
from serverless_gc.types import FloatArray, TaskSpec, Timing

__all__ = ["COLUMNS", "Replay", "Trace"]

COLUMNS = ("round", "slot", "attempt", "finished", "queued", "read", "compute", "write")
"""What is kept of an attempt: which one, whether its result arrived (else it was given up), and seconds by phase."""

_FIRST_LINE = "# serverless-gc trace 1 "
_PHASES = slice(4, 8)


class _Span(Protocol):
    """What is read of `serverless_gc.observe.Span`."""

    @property
    def slot(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def t_issued(self) -> float: ...
    @property
    def t_end(self) -> float: ...
    @property
    def read(self) -> float: ...
    @property
    def compute(self) -> float: ...
    @property
    def write(self) -> float: ...
    @property
    def fate(self) -> str: ...


class _Reported(Protocol):
    @property
    def spans(self) -> tuple[_Span, ...]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Attempts of recorded rounds.

    Parameters
    ----------
    rows
        ``(n_attempts, 8)``, one row for each attempt; see `COLUMNS`.
    about
        Where it comes from: JSON types.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> with sgc.Session("simulated", seed=1) as s:
    ...     data = s.encode(np.eye(8), code="mds", n_workers=6, k=4)
    ...     reports = [data.matvec(np.ones(8), with_report=True)[1] for _ in range(5)]
    >>> trace = Trace.from_reports(reports)
    >>> trace.n_rounds, trace.n_slots, int(trace.finished.sum())
    (5, 6, 20)
    """

    rows: FloatArray
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.rows
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
            raise InputError(f"rows must have the columns {', '.join(COLUMNS)}, got an array of shape {rows.shape}")
        if not len(rows) or not rows[:, 3].any():
            raise InputError("a trace must hold at least one attempt whose result arrived")
        if not np.isfinite(rows).all() or rows.min() < 0:
            bad = int(np.argwhere(~(np.isfinite(rows) & (rows >= 0)))[0][0])
            raise InputError(f"a trace holds finite numbers of at least 0 only; attempt {bad} has others")

    @classmethod
    def from_reports(cls, reports: Iterable[_Reported], **about: Any) -> Trace:
        """Take the delays from reports, `serverless_gc.Report`; rounds are numbered anew, in order.

        Failed attempts are left out. What was given up counts as longer than it was watched.

        Parameters
        ----------
        reports
            Of one or many calls.
        **about
            What to note of them, such as ``function="..."``.

        Raises
        ------
        InputError
            If no result arrived in any of them.
        """
        rows, n_rounds = [], 0
        for report in reports:
            numbers = {number: n_rounds + i for i, number in enumerate(sorted({s.round for s in report.spans}))}
            n_rounds += len(numbers)
            rows += [_row(numbers[s.round], s) for s in report.spans if s.fate != "failed"]
        return cls(np.array(rows, dtype=np.float64).reshape(len(rows), len(COLUMNS)), about)

    def __repr__(self) -> str:
        here = int(self.finished.sum())
        about = "".join(f", {name}={value!r}" for name, value in self.about.items())
        return (
            f"<Trace: {len(self.rows)} attempts, {here} results, {self.n_slots} slots, {self.n_rounds} rounds{about}>"
        )

    @property
    def n_rounds(self) -> int:
        """Number of rounds, numbered from 0."""
        return int(self.rows[:, 0].max()) + 1

    @property
    def n_slots(self) -> int:
        """Number of slots."""
        return int(self.rows[:, 1].max()) + 1

    @property
    def finished(self) -> FloatArray:
        """1 for each attempt whose result arrived, else 0."""
        return self.rows[:, 3]

    @property
    def totals(self) -> FloatArray:
        """Seconds from issue to arrival, or to being given up."""
        return np.asarray(self.rows[:, _PHASES].sum(axis=1))

    def law(self) -> Empirical:
        """Return the law of one task, those given up taken into account."""
        done = self.finished > 0
        return Empirical.of(self.totals[done], self.totals[~done])

    def replay(self, how: Literal["slots", "resample"] = "slots") -> Replay:
        """Make a delay model that gives the recorded delays again; see `Replay`."""
        return Replay(self, how)

    def save(self, path: str | Path) -> None:
        """Write it as a table of text; ``.gz`` at the end of the name compresses it."""
        first = _FIRST_LINE + json.dumps(self.about) + "\n" + ",".join(COLUMNS)
        np.savetxt(path, self.rows, fmt=["%d"] * 4 + ["%.6g"] * 4, delimiter=",", header=first, comments="")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, a folder, or no trace of this version.
        """
        opener = gzip.open if str(path).endswith(".gz") else open
        try:
            lines = opener(path, "rt", encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"there is no trace {path}") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read as a trace: {error.strerror}") from error
        with lines:
            try:
                first, header = lines.readline(), lines.readline().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{path} is no trace: {error}") from error
            if not first.startswith(_FIRST_LINE) or header != ",".join(COLUMNS):
                raise InputError(f"{path} is no trace of version 1: its first line must begin {_FIRST_LINE.strip()!r}")
            try:
                rows = np.loadtxt(lines, delimiter=",", ndmin=2)
                return cls(rows, json.loads(first.removeprefix(_FIRST_LINE)))
            except ValueError as error:
                raise InputError(f"{path} is damaged: {error}") from error


def _row(number: int, span: _Span) -> tuple[float, ...]:
    arrived = span.fate in {"used", "surplus"}
    queued = max(0.0, span.t_end - span.t_issued - (span.read + span.compute + span.write))
    return (number, span.slot, span.attempt, arrived, queued, span.read, span.compute, span.write)


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Recorded delays as a delay model.

    Parameters
    ----------
    trace
        The record.
    how
        ``"slots"``: the first attempt of slot ``i`` in round ``k`` takes what it took in the record (slots and rounds
        are counted around). ``"resample"``: any task takes what a task of the record took, drawn at random.

    Notes
    -----
    A recorded attempt that was given up, or is missing, takes a duration drawn from the record's longer ones. The
    computation scales with the work, one unit being the recorded task.
    """

    trace: Trace
    how: Literal["slots", "resample"] = "slots"
    _law: Empirical = field(init=False, repr=False)
    _at: dict[tuple[int, int], int] = field(init=False, repr=False)
    _by_total: Any = field(init=False, repr=False)
    _size: tuple[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.how not in {"slots", "resample"}:
            raise InputError(f"how must be 'slots' or 'resample', got {self.how!r}")
        rows = self.trace.rows
        at = {(int(r[0]), int(r[1])): i for i, r in reversed(list(enumerate(rows))) if r[2] == 0}
        done = np.flatnonzero(self.trace.finished)
        order = done[np.argsort(self.trace.totals[done], kind="stable")]
        object.__setattr__(self, "_law", self.trace.law())
        object.__setattr__(self, "_at", at)
        object.__setattr__(self, "_by_total", (self.trace.totals[order], order))
        object.__setattr__(self, "_size", (self.trace.n_rounds, self.trace.n_slots))

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Return the timing of a first attempt."""
        at = self._at.get((k % self._size[0], slot % self._size[1])) if self.how == "slots" else None
        if at is None:
            return self._like(self._law.draw(rng), work)
        if self.trace.rows[at, 3]:
            return self._timing(at, work)
        watched = float(self.trace.rows[at, _PHASES].sum())
        return self._like(self._law.longer_than(watched, rng), work)

    def sample_task(self, task: TaskSpec, rng: np.random.Generator) -> Timing:
        """Return the timing of any attempt: a retry or copy is drawn at random."""
        if task.attempt:
            return self._like(self._law.draw(rng), task.work)
        return self.sample(task.slot, task.version, task.work, rng)

    def _like(self, total: float, work: float) -> Timing:
        """Split a total into phases as the recorded attempt of nearest duration did."""
        totals, order = self._by_total
        near = min(int(np.searchsorted(totals, total)), len(totals) - 1)
        timing = self._timing(int(order[near]), 1.0)
        stretch = total / timing.total if timing.total else 1.0
        return Timing(
            timing.start * stretch, timing.read * stretch, work * timing.compute * stretch, timing.write * stretch
        )

    def _timing(self, at: int, work: float) -> Timing:
        start, read, compute, write = self.trace.rows[at, _PHASES].tolist()
        return Timing(start, read, work * compute, write)
