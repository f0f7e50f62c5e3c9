"""Sums of rows: sparse products with column tiles of gathered rows, or row operations where rows are long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from serverless_gc.codes.program import ZERO, Program, Recorder, Row
from serverless_gc.types import Array

__all__ = ["LONG", "add_up", "gathered", "record_sum", "write_columns"]

LONG = 2048
"""Numbers in a row from which on row operations repay their preparation."""

_TILE_BYTES = 16 << 20
"""Rows of one tile: a good part of a last-level cache."""
_TILE_MIN, _TILE_MAX = 128, 8192


def gathered(rows: Sequence[Array] | Array, dtype: np.dtype[Any]) -> Iterator[tuple[slice, Array]]:
    """Yield columns and a fresh copy of the rows there, as a matrix; its memory is used again for the next one.

    Examples
    --------
    >>> [(columns, tile.shape) for columns, tile in gathered([np.ones(8192)] * 3, np.dtype(float))]
    [(slice(0, 8192, None), (3, 8192))]
    """
    n, length = len(rows), len(rows[0])
    width = int(min(max(_TILE_BYTES // (n * dtype.itemsize), _TILE_MIN), _TILE_MAX, max(length, 1)))
    memory = np.empty(n * width, dtype)
    for start in range(0, length, width):
        columns = slice(start, min(start + width, length))
        tile = memory[: n * (columns.stop - start)]
        np.concatenate([row[columns] for row in rows], out=tile, casting="same_kind")
        yield columns, tile.reshape(n, -1)


def write_columns(targets: Array | Sequence[Array], places: Sequence[int] | Array, columns: slice, rows: Array) -> None:
    """Write row ``i`` to these columns of ``targets[places[i]]``."""
    if isinstance(targets, np.ndarray):
        targets[places, columns] = rows
        return
    for place, row in zip(places, rows, strict=True):
        targets[place][columns] = row


def record_sum(recorder: Recorder, rows: Sequence[Row]) -> Row:
    """Record the sum of rows from left to right."""
    total = ZERO
    for row in rows:
        total = recorder.add(total, row)
    return total


def add_up(
    matrix: sp.csr_array,
    rows: Sequence[Array] | Array,
    targets: Sequence[Array] | Array,
    *,
    places: Sequence[int] | None = None,
    chained: bool = False,
) -> None:
    """Write sums of rows: target ``i`` is sum ``places[i]``, which adds up the rows where the matrix has ones.

    Parameters
    ----------
    matrix
        Zeros and ones, shape ``(n_sums, n_rows)``.
    rows
        Vectors of one type and length.
    targets
        Vectors to write.
    places
        Which sum each target gets; by default one after the other.
    chained
        Whether a sum is minus those rows and minus the sum before.

    Examples
    --------
    >>> matrix = sp.csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> rows, sums = np.array([[1.0, 2.0], [5.0, 5.0], [10.0, 20.0]]), np.empty((2, 2))
    >>> add_up(matrix, rows, sums)
    >>> sums.tolist()
    [[11.0, 22.0], [15.0, 25.0]]
    """
    chosen = range(len(targets)) if places is None else places
    if len(rows[0]) >= LONG:
        recorder = Recorder(len(rows))
        names = _record(recorder, matrix, chained)
        Program.build(recorder, [names[i] for i in chosen]).run(list(rows), list(targets), rows[0].dtype)
        return
    used, compact = np.unique(matrix.indices, return_inverse=True)
    weights = np.ones(len(compact), rows[0].dtype)
    small = sp.csr_array((weights, compact, matrix.indptr), shape=(matrix.shape[0], len(used)))
    for columns, tile in gathered([rows[j] for j in used.tolist()] or rows[:1], rows[0].dtype):
        sums = small @ tile[: len(used)]
        if chained:
            _chain(sums)
        write_columns(targets, range(len(targets)), columns, sums if places is None else sums[chosen])


def _record(recorder: Recorder, matrix: sp.csr_array, chained: bool) -> list[Row]:
    names: list[Row] = []
    for members in np.split(matrix.indices, matrix.indptr[1:-1]):
        total = record_sum(recorder, members.tolist())
        if chained:
            total = recorder.sub(ZERO, recorder.add(total, names[-1]) if names else total)
        names.append(total)
    return names


def _chain(sums: Array) -> None:
    np.negative(sums[0], sums[0])
    for before, here in pairwise(sums):
        np.add(before, here, here)
        np.negative(here, here)
