"""What the delays of a run say about waiting: copy what is late, let it finish, or do without it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.hazard import BoolArray, Hazard, hazard
from serverless_gc.stragglers.trace import Trace

__all__ = ["Diagnosis", "Persistence", "diagnose", "persistence"]

Advice: TypeAlias = Literal["copy", "let finish", "do without", "nothing"]

_FEWEST = 30
"""Slow slots that must have been seen again."""
_SLOTS = 4
_SURE = 3.0
_SLOW, _SLOW_OF_ALL = 4, 10
"""One in so many counts as slow: of a round's slots, and of all tasks where slow slots do fewer of them."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """Whether slots that were slow are slow again in the next round.

    Attributes
    ----------
    again
        Share of the slow slots that are slow again.
    chance
        The share if rounds did not depend on one another.
    seen
        How many slow slots were seen again.
    certain
        Whether ``again`` is above ``chance`` by more than three standard errors.
    """

    again: float
    chance: float
    seen: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the delays of a run say.

    Attributes
    ----------
    finished, given_up
        Tasks looked at.
    hazards
        One for each kind of round with enough tasks: kinds differ in how much a task has to do, so their durations are
        not mixed.
    slots
        Whether slow slots stay slow; None if too little was seen to tell.
    leftover
        What the run did with late tasks, if known.
    """

    finished: int
    given_up: int
    hazards: tuple[Hazard, ...]
    slots: Persistence | None
    leftover: Literal["keep", "cancel"] | None = None

    @property
    def hazard(self) -> Hazard | None:
        """The one that the advice follows: of those that are certain, if they agree; else None."""
        certain = [each for each in self.hazards if each.trend != "flat"]
        return certain[0] if len({each.trend for each in certain}) == 1 else None

    @property
    def persistent(self) -> bool:
        """Whether slow slots certainly stay slow."""
        return self.slots is not None and self.slots.certain

    @property
    def advice(self) -> Advice:
        """What to do with late tasks: ``"copy"``, ``"let finish"``, ``"do without"``; ``"nothing"`` if none is sure.

        Where slots stay slow, what a late task has still to go says nothing about a fresh one in its place.
        """
        if self.persistent:
            return "do without"
        if self.hazard is None:
            return "nothing"
        return "copy" if self.hazard.trend == "falling" else "let finish"

    def __str__(self) -> str:
        basis = f"{self.finished} tasks, {self.given_up} more given up"
        if self.slots is not None and self.slots.certain:
            return (
                f"slow slots stay slow: {self.slots.again:.0%} of them are slow again in the next round, by chance "
                f"{self.slots.chance:.0%} would be ({basis}). They are slow, start last or have more to do: a copy in "
                "the same slot meets the same, so do without the slowest, with a code or KSync"
            )
        found = self.hazard
        if found is None:
            return f"whether late tasks should be copied or left to finish cannot be told ({basis})"
        seen = f"{found.seen()} ({basis})"
        if found.trend == "falling":
            kept = "; this run kept them" if self.leftover == "keep" else ""
            return f"{seen}: copies of late tasks pay (Speculate), and so does giving them up (KSync){kept}"
        gone = "; this run gave them up" if self.leftover == "cancel" and self.given_up else ""
        return f"{seen}: a late task is best left to finish, a copy or a fresh one comes later{gone}"


def diagnose(trace: Trace) -> Diagnosis | None:
    """Tell from recorded delays how to deal with late tasks.

    Ignoring stragglers is wise if the law of the delays has the memory for it: a late task must have longer to go than
    a fresh one takes, see `hazard`, and a fresh one must not meet the same slow slot, see `persistence`.

    Parameters
    ----------
    trace
        Recorded rounds. Its ``about`` may say which ``"kinds"`` of rounds there are (a number for each),
        ``"leftover"``, and whether they were ``"overlapping"``, in which case its rows are in order of arrival.

    Returns
    -------
    Diagnosis or None
        None if there are too few tasks to tell anything.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [(k, slot, 0, 1, 0.0, 0.0, rng.weibull(0.5), 0.0) for k in range(60) for slot in range(8)]
    >>> diagnose(Trace(np.array(rows))).advice
    'copy'
    >>> diagnose(Trace(np.array(rows[:20]))) is None
    True
    """
    rows, totals, done = trace.rows, trace.totals, trace.finished > 0
    kinds = np.asarray(trace.about.get("kinds", np.zeros(trace.n_rounds)))[rows[:, 0].astype(int)]
    hazards = []
    for kind in sorted(set(kinds.tolist()), key=lambda kind: -np.count_nonzero(kinds == kind)):
        here = kinds == kind
        try:
            hazards.append(hazard(totals[here & done], totals[here & ~done]))
        except InputError:  # too few of this kind
            continue
    slots = persistence(trace)
    if not hazards and slots is None:
        return None
    n = int(np.count_nonzero(done))
    return Diagnosis(n, len(done) - n, tuple(hazards), slots, trace.about.get("leftover"))


def persistence(trace: Trace) -> Persistence | None:
    """Tell whether the slowest quarter of the slots is slow again in the next round.

    Slots are compared within their round only, so rounds may differ in what there is to do; where rounds overlap,
    the slowest tenth of all tasks is compared with the next ones of their slots. If rounds are independent
    and slots alike, every order of the slots is as likely: of ``a`` and ``b`` slow ones among ``m`` in two rounds
    ``a b / m`` are the same on average, with variance ``a (m - a) b (m - b) / (m**2 (m - 1))``; different pairs of
    rounds are uncorrelated.

    Parameters
    ----------
    trace
        Recorded rounds; what was given up counts as slowest.

    Returns
    -------
    Persistence or None
        None if fewer than 30 slow slots were seen again.

    Examples
    --------
    >>> rows = [(k, slot, 0, 1, 0.0, 0.0, 1.0 + (slot == 3), 0.0) for k in range(40) for slot in range(4)]
    >>> persistence(Trace(np.array(rows)))
    Persistence(again=1.0, chance=0.25, seen=39, certain=True)
    """
    hits, expected, variance, seen = 0, 0.0, 0.0, 0
    for was, now in _one_after_another(trace) if trace.about.get("overlapping") else _round_by_round(trace):
        m, a, b = len(was), int(was.sum()), int(now.sum())
        if m < _SLOTS:
            continue
        spread = a * (m - a) * b * (m - b) / (m * m * (m - 1))
        if not spread:
            continue  # all alike
        hits += int((was & now).sum())
        expected += a * b / m
        variance += spread
        seen += a
    if seen < _FEWEST:
        return None
    return Persistence(hits / seen, expected / seen, seen, bool(hits - expected > _SURE * np.sqrt(variance)))


def _round_by_round(trace: Trace) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield which slots were slow in a round, and which of the same in the next one."""
    rounds: list[dict[int, float]] = [{} for _ in range(trace.n_rounds)]
    for number, slot, seconds in _first_attempts(trace):
        rounds[number].setdefault(slot, seconds)
    for before, after in itertools.pairwise(rounds):
        both = sorted(before.keys() & after.keys())
        if both:
            yield _slow([before[slot] for slot in both]), _slow([after[slot] for slot in both])


def _one_after_another(trace: Trace) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield which tasks were slow and had a next one in their slot, and which of the next ones were."""
    tasks = list(_first_attempts(trace))
    latest: dict[int, int] = {}
    pairs = []
    for i, (_, slot, _) in enumerate(tasks):
        if slot in latest:
            pairs.append((latest[slot], i))
        latest[slot] = i
    if pairs:
        slow = _slow([seconds for *_, seconds in tasks], _SLOW_OF_ALL)
        first, second = np.array(pairs).T
        yield slow[first], slow[second]


def _first_attempts(trace: Trace) -> Iterator[tuple[int, int, float]]:
    """Yield round, slot and seconds of the first attempt at each task; infinite if it was given up."""
    for row, total in zip(trace.rows.tolist(), trace.totals.tolist(), strict=True):
        if not row[2]:
            yield int(row[0]), int(row[1]), total if row[3] else np.inf


def _slow(durations: Sequence[float], one_in: int = _SLOW) -> BoolArray:
    values = np.asarray(durations)
    return np.asarray(values >= np.sort(values)[-max(1, len(values) // one_in)])
