"""Rows of numbers gathered in column tiles that stay in cache, for sparse products with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from serverless_gc.types import Array

__all__ = ["gathered", "sparse_sums", "write_columns"]

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


def sparse_sums(matrix: sp.csr_array, rows: Sequence[Array] | Array) -> Iterator[tuple[slice, Array]]:
    """Yield columns and ``matrix @ rows`` there; rows that the matrix does not use are not read.

    Examples
    --------
    >>> matrix = sp.csr_array(np.array([[1.0, 0.0, 1.0]]))
    >>> [tile.tolist() for _, tile in sparse_sums(matrix, np.array([[1.0, 2.0], [5.0, 5.0], [10.0, 20.0]]))]
    [[[11.0, 22.0]]]
    """
    dtype = rows[0].dtype
    used, compact = np.unique(matrix.indices, return_inverse=True)
    if not len(used):
        yield slice(0, len(rows[0])), np.zeros((matrix.shape[0], len(rows[0])), dtype)
        return
    small = sp.csr_array(
        (matrix.data.astype(dtype, copy=False), compact, matrix.indptr), shape=(matrix.shape[0], len(used))
    )
    for columns, tile in gathered([rows[j] for j in used.tolist()], dtype):
        yield columns, small @ tile


def write_columns(targets: Array | Sequence[Array], places: Sequence[int] | Array, columns: slice, rows: Array) -> None:
    """Write row ``i`` to these columns of ``targets[places[i]]``."""
    if isinstance(targets, np.ndarray):
        targets[places, columns] = rows
        return
    for place, row in zip(places, rows, strict=True):
        targets[place][columns] = row
