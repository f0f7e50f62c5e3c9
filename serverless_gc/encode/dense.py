"""Dense sources: windows of an array, copied in the order that memory likes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from serverless_gc.encode.source import Source, check_numeric, check_range, check_shape, working_dtype
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["ArraySource", "DenseSource", "copy_tiled", "oriented"]

_TILE = (256, 64)  # measured: 4x faster than one transposing copy of the whole, which misses cache at every element


class DenseSource(Source):
    """A matrix whose pieces are dense arrays.

    ``content_dtype`` is the type of what `window` returns: the type of the values as given, in native byte order.
    """

    sparse: ClassVar[bool] = False
    content_dtype: np.dtype[Any]

    @abstractmethod
    def window(self, r0: int, r1: int, c0: int, c1: int) -> Array:
        """Return ``self[r0:r1, c0:c1]`` in ``content_dtype``; a view where possible. Bounds are not checked."""

    def whole(self) -> Array | None:
        """Return the array behind the matrix (any layout, type and byte order), or None when there is no one array."""
        return None

    def rows(self, lo: int, hi: int, out: Array | None = None) -> Array:
        """See `Source.rows`."""
        check_range(lo, hi, self.shape[0], "rows")
        return self._piece(0, lo, hi, out)

    def columns(self, lo: int, hi: int, out: Array | None = None) -> Array:
        """See `Source.columns`."""
        check_range(lo, hi, self.shape[1], "columns")
        return self._piece(1, lo, hi, out)

    def _piece(self, axis: int, lo: int, hi: int, out: Array | None) -> Array:
        width = self.shape[1 - axis]
        piece = oriented(self, axis, lo, hi, 0, width)
        if out is None:
            if piece.dtype == self.dtype:
                return piece
            out = np.empty(piece.shape, dtype=self.dtype)
        elif out.shape != piece.shape or out.dtype.kind not in "fc":
            raise InputError(f"out must be floating and of shape {piece.shape}, got {out.dtype} {out.shape}")
        copy_tiled(out, piece)
        return out


class ArraySource(DenseSource):
    """An ndarray or memmap of any layout, byte order and numeric type."""

    def __init__(self, array: Array, *, name: str = "X", labels: Sequence[object] | None = None) -> None:
        check_shape(array.shape, name)
        check_numeric(array.dtype, name)
        self.name = name
        self.labels = labels
        self.shape = (array.shape[0], array.shape[1])
        self.dtype = working_dtype(array.dtype)
        # Extended precision carries padding bytes that would make equal values look different.
        extended = array.dtype.kind in "fc" and array.dtype.itemsize > self.dtype.itemsize
        self.content_dtype = self.dtype if extended else array.dtype.newbyteorder("=")
        self._array = array.view(np.ndarray)  # neither memmap nor matrix semantics for the pieces
        self._array.setflags(write=False)
        step_row, step_column = (abs(s) for s in array.strides)
        self.order = "C" if array.shape[1] == 1 or (array.shape[0] > 1 and step_row >= step_column) else "F"

    def window(self, r0: int, r1: int, c0: int, c1: int) -> Array:
        """See `DenseSource.window`."""
        piece = self._array[r0:r1, c0:c1]
        if piece.dtype == self.content_dtype:
            return piece
        with np.errstate(over="ignore"):  # beyond double precision is infinity, which the scan refuses by row
            return piece.astype(self.content_dtype)

    def whole(self) -> Array | None:
        """See `DenseSource.whole`."""
        return self._array


def oriented(source: DenseSource, axis: int, lo: int, hi: int, start: int, stop: int) -> Array:
    """Return entries ``start..stop-1`` of rows ``lo..hi-1`` of the matrix (``axis=0``) or its transpose (1)."""
    if axis == 0:
        return source.window(lo, hi, start, stop)
    return source.window(start, stop, lo, hi).T


def copy_tiled(out: Array, values: Array) -> None:
    """Copy with conversion, ``out[...] = values``, by tiles when the two differ in memory order."""
    against = abs(values.strides[0]) < abs(values.strides[1])
    if not against or out.size <= _TILE[0] * _TILE[1]:
        np.copyto(out, values)
        return
    n, width = out.shape
    for r in range(0, n, _TILE[0]):
        for c in range(0, width, _TILE[1]):
            np.copyto(out[r : r + _TILE[0], c : c + _TILE[1]], values[r : r + _TILE[0], c : c + _TILE[1]])
