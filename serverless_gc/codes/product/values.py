"""Run repairs on values, a slab of columns at a time, so that what one line reads is in cache for the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from serverless_gc.codes.product.peel import Repair
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array, FloatArray

__all__ = ["Check", "Sweep"]

_SLAB_BYTES = 16 << 20
"""Bytes of all rows of one slab: half of a last-level cache."""

_LEAST, _MOST = 4096, 16384
"""Columns of a slab: below, the cost of a NumPy call shows; above, nothing is gained."""


@dataclass(frozen=True, slots=True)
class Check:
    """A combination that vanishes if all messages agree: ``answer`` rows with one set of weights, others with another.

    ``answer`` is a matrix where the blocks follow one another in memory, else a list of rows.
    """

    answer: Array | Sequence[Array]
    answer_weights: FloatArray
    others: Sequence[Array]
    other_weights: FloatArray

    def sums(self, start: int, stop: int) -> tuple[float, float]:
        """Return the sums of squares of the combination and of everything that enters it, over a slab."""
        blocks = [row[start:stop] for row in self.answer]
        others = np.stack([row[start:stop] for row in self.others])
        answer = self.answer[:, start:stop] if isinstance(self.answer, np.ndarray) else np.stack(blocks)
        real = answer.dtype
        total = self.answer_weights.astype(real) @ answer + self.other_weights.astype(real) @ others
        # In double precision: squares of large single-precision numbers overflow.
        return _square(total), math.fsum(_square(row) for row in [*blocks, *others])


@dataclass(frozen=True, slots=True)
class Sweep:
    """Everything to do with the columns of some rows.

    Attributes
    ----------
    rows
        Row of each cell that is read or asked for, all of one length and type. Cells between are kept in passing.
    steps
        Repairs in order.
    copies
        ``(source row, target row)``.
    dtype
        Real type of the sums.
    check
        What to verify once the repairs are done, or None.
    """

    rows: Mapping[int, Array]
    steps: Sequence[Repair]
    copies: Sequence[tuple[Array, Array]]
    dtype: np.dtype[Any]
    check: Check | None = None

    def run(self, scale: float = 0.0) -> float:
        """Compute; return the root mean square of the check relative to its terms or, if larger, to ``scale``."""
        row = next(iter(self.rows.values()))
        length, touched = len(row), len({cell for step in self.steps for cell in [*step.sources, *step.targets]})
        touched = max(touched, len(self.copies), 1)
        width = int(np.clip(_SLAB_BYTES // (touched * row.itemsize), _LEAST, _MOST))
        # One thread, BLAS included: two of them shared the columns without gain, the rows are read at memory speed.
        # What is not finite shows in the sums and is refused by name afterwards.
        with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            mismatch, squares = self._columns(length, width)
        if self.check is None or mismatch == 0:
            return 0.0
        terms = (len(self.check.answer_weights) + len(self.check.other_weights)) * length
        size = max(math.sqrt(squares / terms), scale)
        return math.sqrt(mismatch / length) / size if size else math.inf

    def _columns(self, length: int, width: int) -> tuple[float, float]:
        targets = {cell for step in self.steps for cell in step.targets}
        touched = targets.union(*(step.sources for step in self.steps))
        # Sums in double precision of single-precision rows: what is repaired is kept in double until the slab is done.
        wider = next(iter(self.rows.values())).dtype != self.dtype
        between = sorted(cell for cell in targets if wider or cell not in self.rows)
        results = [cell for cell in between if cell in self.rows]
        direct = touched.difference(between)
        scratch = np.empty((len(between), max(1, min(width, length))), self.dtype)
        terms = [_terms(step) for step in self.steps]
        places = {cell: self.rows[cell].__array_interface__["data"][0] for cell in direct}
        strides = [_stride([places.get(cell, -1) for cell in step.sources]) for step in self.steps]
        mismatch = squares = 0.0
        for start in range(0, length, width):
            stop = min(start + width, length)
            for source, target in self.copies:
                target[start:stop] = source[start:stop]
            here = {cell: self.rows[cell][start:stop] for cell in direct}
            here.update(zip(between, scratch[:, : stop - start], strict=True))
            for step, signed, stride in zip(self.steps, terms, strides, strict=True):
                if wider or not signed:
                    _multiply(step, here, stride, self.dtype)
                else:
                    _add_up(signed, here, here[step.targets[0]])
            for cell in results:
                self.rows[cell][start:stop] = here[cell]
            if self.check is not None:
                wrong, terms_here = self.check.sums(start, stop)
                mismatch += wrong
                squares += terms_here
        return mismatch, squares


def _square(row: Array) -> float:
    wide = row.astype(np.float64, copy=False)
    return float(wide @ wide)


def _stride(places: Sequence[int]) -> int:
    """Return the distance of rows that follow one another in memory at equal ones, so that BLAS reads them as they are.

    Zero if they do not, or if one of them (place -1) is kept elsewhere.
    """
    stride = places[1] - places[0] if len(places) > 1 else 0
    regular = stride > 0 and all(b - a == stride for a, b in pairwise(places)) and min(places) >= 0
    return stride if regular else 0


def _multiply(step: Repair, rows: Mapping[int, Array], stride: int, dtype: np.dtype[Any]) -> None:
    first = rows[step.sources[0]]
    if stride:
        sources = as_strided(first, (len(step.sources), len(first)), (stride, first.itemsize), writeable=False)
    else:
        sources = np.stack([rows[cell] for cell in step.sources])
    for cell, row in zip(step.targets, step.coefficients.astype(dtype) @ sources, strict=True):
        rows[cell][...] = row


def _terms(step: Repair) -> list[tuple[np.ufunc, int]]:
    """Write a repair of one cell as additions and subtractions, one with a plus sign first; empty if it is not one."""
    if len(step.targets) > 1 or not (np.abs(step.coefficients) == 1).all():
        return []
    signs = step.coefficients[0].tolist()
    pairs = [(np.add if sign > 0 else np.subtract, cell) for cell, sign in zip(step.sources, signs, strict=True)]
    return sorted(pairs, key=lambda pair: pair[0] is np.subtract)


def _add_up(terms: Sequence[tuple[np.ufunc, int]], rows: Mapping[int, Array], target: Array) -> None:
    (_, first), *others = terms
    if not others:
        np.copyto(target, rows[first])
        return
    total = rows[first]
    for function, cell in others:
        function(total, rows[cell], out=target)
        total = target
