"""Who was late in a round, and clusters formed so that those who were are spread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.codes.gradient.clustered import ClusteredCode
from serverless_gc.codes.gradient.dynamic_clusters import StragglerPredictor
from serverless_gc.observe import Span
from serverless_gc.policies.words import numbers

__all__ = ["LATE", "late_workers", "regrouped"]

LATE = 2.0
"""How many times longer than the median of those that answered a late worker takes."""


def late_workers(spans: Sequence[Span], before: Collection[int] = ()) -> frozenset[int]:
    """Name the workers that were late in a round.

    One that gave no result although the round lasted long enough, one whose result took much longer than others, and
    one that was late before and has not shown since that it is prompt: a round that does without its late workers ends
    before it could tell.

    Parameters
    ----------
    spans
        The attempts of one round.
    before
        Who was late before it.

    Examples
    --------
    >>> spans = [Span(slot, 0, 1, 0.0, t) for slot, t in enumerate([1.0, 1.1, 9.0])]
    >>> spans += [Span(3, 0, 1, 0.0, 9.0, fate="voided"), Span(4, 0, 1, 0.0, 0.5, fate="failed")]
    >>> sorted(late_workers(spans)), sorted(late_workers(spans[:2] + [Span(5, 0, 1, 0.0, 1.1, fate="voided")], {1, 5}))
    ([2, 3, 4], [5])
    """
    begun: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for span in spans:
        begun[span.slot] = min(span.t_issued, begun.get(span.slot, span.t_issued))
    for span in spans:
        if span.fate in {"used", "surplus"}:
            seconds[span.slot] = span.t_end - begun[span.slot]
    if not seconds:
        return frozenset(begun)
    limit = LATE * median(seconds.values())
    silent = begun.keys() - seconds.keys()
    running = {span.slot for span in spans if span.fate == "voided" and span.t_end - begun[span.slot] <= limit}
    slow = {slot for slot, took in seconds.items() if took > limit}
    return frozenset(slow | (silent - running) | (silent & running & set(before)))


def regrouped(code: SumCode, latest: SumCode, late: Mapping[int, Collection[int]]) -> tuple[SumCode, str]:
    """Form the clusters of a code anew, so that workers that were late last time are spread over them.

    Parameters
    ----------
    code
        The code as it was made.
    latest
        The same code as it was used last.
    late
        Number of workers to those that were late in the last round with so many.

    Returns
    -------
    code, note
        The code of the coming round, and what to say of it; for codes without flexible clusters the one given.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> code = get("clustered", n_workers=6, clusters=2, stragglers=1, flexibility=2)
    >>> sorted(regrouped(code, code, {6: {0, 1}})[0].assignment[:2])
    [0, 1]
    """
    if not isinstance(code, ClusteredCode) or not isinstance(latest, ClusteredCode) or code.flexibility == 1:
        return code, ""
    expected = sorted(late.get(code.n_workers, ()))
    if not expected:
        return latest, ""
    assignment = code.assign(StragglerPredictor(code.n_workers).update(expected))
    away = sum(cluster != home for cluster, home in zip(assignment, code.assignment, strict=True))
    note = (
        f"workers {numbers(expected)} were late in the last round: clusters were formed so that each has its share of "
        f"them, {away} of {code.n_workers} workers serve away from home"
    )
    return latest if assignment == latest.assignment else code.with_assignment(assignment), note
