"""Sparse sources: compressed rows, converted once, cut without copying the stored values."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from serverless_gc.encode.source import Source, check_numeric, check_range, check_shape, working_dtype
from serverless_gc.errors import InputError
from serverless_gc.types import Array
from serverless_gc.wire import CsrBlock

__all__ = ["SparseSource"]


class SparseSource(Source):
    """A SciPy sparse matrix or array of any format.

    Rows are kept in canonical CSR (sorted columns, duplicates summed); the given object is never modified. Columns
    are converted at the first request and kept: once the stored values again.
    """

    sparse: ClassVar[bool] = True

    def __init__(self, matrix: Any, *, name: str = "X") -> None:
        check_shape(matrix.shape, name)
        check_numeric(matrix.dtype, name)
        self.name = name
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.dtype = working_dtype(matrix.dtype)
        self._rows = _canonical(matrix, self.dtype, name)

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return int(self._rows.nnz)

    @cached_property
    def _columns(self) -> Any:
        return self._rows.T.tocsr()

    def csr(self, axis: int = 0) -> CsrBlock:
        """Return the whole matrix (``axis=0``) or its transpose (1) in compressed rows; read-only views."""
        return self._cut(axis, 0, self.shape[axis])

    def rows(self, lo: int, hi: int, out: Array | None = None) -> CsrBlock:
        """See `Source.rows`."""
        return self._piece(0, lo, hi, out)

    def columns(self, lo: int, hi: int, out: Array | None = None) -> CsrBlock:
        """See `Source.columns`."""
        return self._piece(1, lo, hi, out)

    def _piece(self, axis: int, lo: int, hi: int, out: Array | None) -> CsrBlock:
        check_range(lo, hi, self.shape[axis], ("rows", "columns")[axis])
        if out is not None:
            raise InputError(f"out is for dense sources; {self.name} is sparse")
        return self._cut(axis, lo, hi)

    def _cut(self, axis: int, lo: int, hi: int) -> CsrBlock:
        whole = self._rows if axis == 0 else self._columns
        start, stop = int(whole.indptr[lo]), int(whole.indptr[hi])
        pieces = (whole.data[start:stop], whole.indices[start:stop], whole.indptr[lo : hi + 1] - whole.indptr[lo])
        for piece in pieces:
            piece.setflags(write=False)
        return CsrBlock(*pieces, shape=(hi - lo, self.shape[1 - axis]))


def _canonical(matrix: Any, dtype: np.dtype[Any], name: str) -> Any:
    """Return sorted CSR without duplicates in the working type; shares memory with ``matrix`` when it is so already.

    Converts before summing, since duplicates of small integers would wrap around, and works on fresh objects, since
    SciPy sorts and sums in place and remembers having done so although the arrays may be edited later.
    """
    if matrix.format in {"csr", "csc"}:
        kind = sp.csr_array if matrix.format == "csr" else sp.csc_array
        fresh = kind((matrix.data.astype(dtype, copy=False), matrix.indices, matrix.indptr), shape=matrix.shape)
        try:
            fresh.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"{name} is not a valid sparse matrix: {error}") from error
        csr = fresh.tocsr()
    else:
        coo = matrix.tocoo()
        csr = sp.coo_array((coo.data.astype(dtype, copy=False), (coo.row, coo.col)), shape=matrix.shape).tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr
