"""In which order to peel: the same blocks come out, with errors that differ by many orders of magnitude.

Each elimination adds the errors of its operands, so long chains of derivations blow rounding up exponentially. A last
in, first out order makes the longest chains. Breadth first keeps them short, the order of least variance shorter
still; a certificate of the variances is computed from structure alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from serverless_gc.codes.peeling.equations import Equations
from serverless_gc.types import Array

__all__ = ["Order", "Schedule", "make_schedule"]

Order: TypeAlias = Literal["breadth-first", "minimum-variance"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which equation determines which variable, in rounds: a round needs earlier rounds only.

    Attributes
    ----------
    equations, variables
        One pair a step, in order.
    bounds
        Round ``r`` is the steps ``bounds[r]:bounds[r + 1]``; round 0 is what messages carry unchanged.
    known
        Per variable, whether a step determines it.
    """

    equations: Array
    variables: Array
    bounds: tuple[int, ...]
    known: Array


def make_schedule(equations: Equations, present: Array, order: Order, rounds: int | None = None) -> Schedule:
    """Peel on structure alone.

    Parameters
    ----------
    equations
        Of the code.
    present
        Which equations hold.
    order
        ``"breadth-first"``: a round uses all equations that had one unknown left when it began, for each variable the
        first of them. ``"minimum-variance"``: always the variable with the smallest expected error next.
    rounds
        Stop after so many rounds beyond round 0; breadth first only.
    """
    if order == "breadth-first":
        return _breadth_first(equations, present, rounds)
    return _minimum_variance(equations, present)


def _breadth_first(equations: Equations, present: Array, rounds: int | None) -> Schedule:
    count, index_sum = equations.degrees.copy(), equations.index_sums.copy()
    known = np.zeros(equations.n_variables, dtype=bool)
    chosen: list[Array] = []
    variables: list[Array] = []
    ready = np.flatnonzero((count == 1) & present)
    while len(ready) and (rounds is None or len(chosen) <= rounds):
        fresh, first = np.unique(index_sum[ready], return_index=True)
        known[fresh] = True
        chosen.append(ready[first])
        variables.append(fresh)
        touched, times = equations.containing(fresh)
        np.subtract.at(count, touched, 1)
        np.subtract.at(index_sum, touched, np.repeat(fresh, times))
        ready = np.unique(touched[(count[touched] == 1) & present[touched]])
    bounds = np.cumsum([0, *map(len, chosen)]).tolist()
    nothing = np.empty(0, dtype=np.int64)
    return Schedule(np.concatenate([nothing, *chosen]), np.concatenate([nothing, *variables]), tuple(bounds), known)


def _minimum_variance(equations: Equations, present: Array) -> Schedule:
    count, combined, of = equations.lists
    count, combined = count.copy(), combined.copy()
    own, start = equations.variances
    variance = (own + start).tolist()
    """Of what the equation determines, as far as its variables are known."""
    round_of = [0] * len(equations)
    holds = present.tolist()
    known = np.zeros(equations.n_variables, dtype=bool)
    heap = [(variance[e], e) for e in np.flatnonzero((equations.degrees == 1) & present).tolist()]
    heapq.heapify(heap)
    steps: list[tuple[int, int, int]] = []
    while heap:
        error, e = heapq.heappop(heap)
        if count[e] == 0:
            continue
        v = combined[e]
        known[v] = True
        level = round_of[e]
        steps.append((level, e, v))
        for q in of[v]:
            combined[q] ^= v
            count[q] -= 1
            variance[q] += error
            round_of[q] = max(round_of[q], level + 1)
            if count[q] == 1 and holds[q]:
                heapq.heappush(heap, (variance[q], q))
    return _in_rounds(steps, known)


def _in_rounds(steps: Iterable[tuple[int, int, int]], known: Array) -> Schedule:
    table = np.array(sorted(steps, key=lambda step: step[0]), dtype=np.int64).reshape(-1, 3)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(table[:, 0]))]).tolist()
    return Schedule(table[:, 1], table[:, 2], tuple(bounds), known)
