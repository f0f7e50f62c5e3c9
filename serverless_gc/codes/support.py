"""Which columns of the blocks messages need, for codes that place zeros by column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.types import Array

__all__ = ["Support"]


@dataclass(frozen=True, slots=True)
class Support:
    """Which columns of the blocks the messages of a code have entries in.

    Column ``j`` is of class ``j % period``, and a message needs all columns of a class or none. Blocks are stored, and
    entries of operands are sent, class by class: in this order what a message needs is a few stretches.

    Attributes
    ----------
    period
        Number of classes.
    classes
        For each message the classes that it needs, ascending. All messages of one worker need the same.

    Examples
    --------
    >>> support = Support(3, ((1, 2), (0, 2), (0, 1)))
    >>> support.columns(1, 7)
    array([0, 3, 6, 2, 5])
    >>> support.width(7), round(support.share(1), 2), support.runs(0), support.runs(1)
    (5, 0.67, [(1, 3)], [(0, 1), (2, 3)])
    """

    period: int
    classes: tuple[tuple[int, ...], ...]

    def columns(self, message: int, n_cols: int) -> Array:
        """Columns, out of ``n_cols``, that a message needs, in the order in which they are stored and sent."""
        needed = self.classes[message]
        return np.concatenate([np.arange(c, n_cols, self.period) for c in needed]) if needed else np.arange(0)

    def width(self, n_cols: int) -> int:
        """Most columns, out of ``n_cols``, that a message needs."""
        sizes = [len(range(c, n_cols, self.period)) for c in range(self.period)]
        return max(sum(sizes[c] for c in needed) for needed in self.classes)

    def share(self, message: int) -> float:
        """Share of the columns that a message needs."""
        return len(self.classes[message]) / self.period

    def runs(self, message: int) -> list[tuple[int, int]]:
        """Return the classes that a message needs as half-open ranges, as few as possible."""
        runs: list[tuple[int, int]] = []
        for c in self.classes[message]:
            first = runs.pop()[0] if runs and runs[-1][1] == c else c
            runs.append((first, c + 1))
        return runs
