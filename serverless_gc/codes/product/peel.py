"""Peeling over lines: which cells follow from those that arrived, and by which sums.

Structure while waiting (`PeelTracker`), one numeric pass when the answer is asked for (`plan_repairs`). Lines are
repaired breadth first: chains of repairs stay short, and with them the errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.product.layout import Layout, Line
from serverless_gc.types import FloatArray

__all__ = ["PeelTracker", "Repair", "Repairs", "plan_repairs"]


class PeelTracker(Tracker):
    """Decodable when peeling over the lines reaches every source block.

    Counts the unknown cells of every line. A line with no more of them than it has parity is repaired, which may
    complete the lines that cross it. Each cell becomes known once: all arrivals together cost ``O(n)``.
    """

    __slots__ = ("_is_source", "_known", "_layout", "_left", "_open")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known = bytearray(layout.n_cells)
        self._left = [len(line.cells) for line in layout.lines]
        self._open = len(layout.sources)
        self._is_source = bytearray(layout.n_cells)
        for cell in layout.sources:
            self._is_source[cell] = 1
        for cell in layout.zeros:
            self._mark(cell)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._layout.n_cells)
        self._mark(message)
        return Verdict(self._open == 0, self.missing)

    def _mark(self, cell: int) -> None:
        known, left, lines = self._known, self._left, self._layout.lines
        queue = deque([cell])
        while queue:
            cell = queue.popleft()
            if known[cell]:
                continue
            known[cell] = 1
            self._open -= self._is_source[cell]
            for number in self._layout.crossing[cell]:
                left[number] -= 1
                if 0 < left[number] <= lines[number].spare:
                    queue.extend(c for c in lines[number].cells if not known[c])

    @property
    def decodable(self) -> bool:
        """Whether every source block arrived or can be repaired."""
        return self._open == 0

    def missing(self) -> tuple[int, ...]:
        """Source blocks that can not be repaired yet."""
        return tuple(j for j, cell in enumerate(self._layout.sources) if not self._known[cell])

    def known(self) -> tuple[int, ...]:
        """Source blocks that arrived or can be repaired from what arrived."""
        return tuple(j for j, cell in enumerate(self._layout.sources) if self._known[cell])

    def stuck(self) -> tuple[int, ...]:
        """Cells that are not known: each line that holds one lacks more cells than it can repair."""
        return tuple(cell for cell, known in enumerate(self._known) if not known)


@dataclass(frozen=True, slots=True)
class Repair:
    """Cells ``targets`` are ``coefficients @ sources``, within one line."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    coefficients: FloatArray


@dataclass(frozen=True, slots=True)
class Repairs:
    """Repairs in order, and the variance with which each wanted cell is known, in units of rounding errors."""

    steps: tuple[Repair, ...]
    variances: tuple[float, ...]


def plan_repairs(layout: Layout, present: Iterable[int], wanted: Sequence[int]) -> Repairs:
    """Work out how to get the wanted cells from the present ones, breadth first; drop what they do not need.

    Rounding errors are followed as variances: a received cell has as many units as blocks were summed in it, a
    repaired one those of the cells it is computed from, and those of the additions.

    Every wanted cell must be reachable: ask a `PeelTracker` first.
    """
    arrived = frozenset(present)
    known = arrived.union(layout.zeros)
    variance = {cell: layout.weights[cell] for cell in known}
    left = [sum(cell not in variance for cell in line.cells) for line in layout.lines]
    queue = deque(number for number, line in enumerate(layout.lines) if 0 < left[number] <= line.spare)
    steps: list[Repair] = []
    zeros = frozenset(layout.zeros)
    while queue:
        line = layout.lines[queue.popleft()]
        lost = [place for place, cell in enumerate(line.cells) if cell not in variance]
        if not lost:
            continue
        repair = _repair(line, lost, zeros)
        steps.append(repair)
        # A sum of n terms has n roundings, each of the size of what was added up so far: on average half of the sum
        # of all terms. A quarter of that per term is what measured errors show.
        own = len(repair.sources) / 4
        each = [variance[cell] + own * layout.weights[cell] for cell in repair.sources]
        for cell, units in zip(repair.targets, (np.square(repair.coefficients) @ each).tolist(), strict=True):
            variance[cell] = units
            for number in layout.crossing[cell]:
                left[number] -= 1
                if 0 < left[number] <= layout.lines[number].spare:
                    queue.append(number)
    return Repairs(_needed(steps, known, wanted), tuple(variance[cell] for cell in wanted))


def _repair(line: Line, lost: Sequence[int], zeros: frozenset[int]) -> Repair:
    """Solve for the lost places of a line from all its other cells."""
    spare, k = line.parity.shape
    gone = set(lost)
    kept = [i for i in range(k) if i not in gone and line.cells[i] not in zeros]
    rows = [r for r in range(spare) if k + r not in gone]
    data = [i for i in lost if i < k]
    checks = [i - k for i in lost if i >= k]
    known = line.parity[:, kept]
    if data:
        # z = S (y_R - P[R, K] y_K), S the (pseudo-)inverse of P[R, lost]
        solve = np.linalg.pinv(line.parity[np.ix_(rows, data)]) if spare > 1 else 1 / line.parity[:, data]
        found = np.concatenate([-solve @ known[rows], solve], axis=1)
    else:
        rows = []
        found = np.empty((0, len(kept)))
    direct = np.concatenate([known[checks], np.zeros((len(checks), len(rows)))], axis=1)
    coefficients = np.concatenate([found, direct + line.parity[np.ix_(checks, data)] @ found])
    cells = line.cells
    return Repair(tuple(cells[i] for i in [*kept, *(k + r for r in rows)]), tuple(cells[i] for i in lost), coefficients)


def _needed(steps: Sequence[Repair], known: frozenset[int], wanted: Sequence[int]) -> tuple[Repair, ...]:
    """Keep the repairs, and of them the targets, that the wanted cells depend on."""
    needed = set(wanted) - known
    kept: list[Repair] = []
    for step in reversed(steps):
        rows = [row for row, cell in enumerate(step.targets) if cell in needed]
        if rows:
            needed.update(cell for cell in step.sources if cell not in known)
            kept.append(Repair(step.sources, tuple(step.targets[row] for row in rows), step.coefficients[rows]))
    return tuple(reversed(kept))
