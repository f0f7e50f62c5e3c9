"""Products of a stored block, dense or sparse, with what the task brings.

Booleans, integers and float16 are promoted before any sum (integers to int64, or to float64 beside floats); a block of
lower precision than its operand is converted a strip at a time, so the block is never copied as a whole.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock

__all__ = ["multiply", "multiply_transposed", "squared", "take_rows"]

Array: TypeAlias = NDArray[Any]

_STRIP_BYTES = 1 << 20  # fits the second-level cache, and a temporary of this size costs nothing


def _work_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return the dtype of products of these: no narrower than any of them, and wide enough for sums."""
    dtype = np.result_type(*(a.dtype for a in arrays))
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    if dtype.kind == "u":
        return np.dtype(np.uint64 if dtype.itemsize == 8 else np.int64)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _strips(rows: int, row_bytes: int) -> range:
    return range(0, rows, max(1, _STRIP_BYTES // max(1, row_bytes)))


def _check_operand(inner: int, shape: tuple[int, ...], operand: Array) -> None:
    if operand.ndim not in {1, 2} or operand.shape[0] != inner:
        raise ValueError(
            f"a block of shape {shape} needs an operand of shape ({inner},) or ({inner}, c), got {operand.shape}"
        )


def multiply(block: Block, operand: Array) -> Array:
    """Return ``block @ operand``.

    Parameters
    ----------
    block
        Shape (m, p), dense or sparse.
    operand
        Shape (p,) or (p, c).

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> multiply(np.array([[1, 0], [2, -1]], dtype=np.int8), np.array([100, 100]))
    array([100, 100])
    """
    if isinstance(block, CsrBlock):
        return _csr_multiply(block, operand)
    if block.ndim != 2:
        raise ValueError(f"a block must be a matrix, got shape {block.shape}")
    _check_operand(block.shape[1], block.shape, operand)
    dtype = _work_dtype(block, operand)
    operand = operand.astype(dtype, copy=False)
    if block.dtype == dtype:
        product: Array = block @ operand
        return product
    out = np.empty((block.shape[0], *operand.shape[1:]), dtype)
    strips = _strips(len(block), block.shape[1] * dtype.itemsize)
    for start in strips:
        strip = slice(start, start + strips.step)
        np.matmul(block[strip].astype(dtype), operand, out=out[strip])
    return out


def multiply_transposed(block: Block, operand: Array) -> Array:
    """Return ``block.T @ operand`` (conjugated for complex blocks).

    Parameters
    ----------
    block
        Shape (m, p), dense or sparse.
    operand
        Shape (m,) or (m, c).

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> multiply_transposed(np.array([[1.0, 0.0], [2.0, -1.0]]), np.array([1.0, 1.0]))
    array([ 3., -1.])
    """
    rows, columns = block.shape
    _check_operand(rows, (columns, rows), operand)
    if isinstance(block, CsrBlock):
        return _csr_multiply_transposed(block, operand)
    dtype = _work_dtype(block, operand)
    operand = operand.astype(dtype, copy=False)
    if block.dtype == dtype:
        product: Array = block.conj().T @ operand
        return product
    out = np.zeros((columns, *operand.shape[1:]), dtype)
    strips = _strips(rows, columns * dtype.itemsize)
    for start in strips:
        strip = slice(start, start + strips.step)
        out += block[strip].astype(dtype).conj().T @ operand[strip]
    return out


def _csr_multiply(block: CsrBlock, operand: Array) -> Array:
    rows, columns = block.shape
    _check_operand(columns, block.shape, operand)
    dtype = _work_dtype(block.data, operand)
    operand = operand.astype(dtype, copy=False)
    out = np.zeros((rows, *operand.shape[1:]), dtype)
    width = dtype.itemsize * int(np.prod(operand.shape[1:], dtype=int))
    per_strip = max(1, _STRIP_BYTES // max(1, width))
    trailing = (1,) * (operand.ndim - 1)
    first = 0
    while first < rows:
        begin = int(block.indptr[first])
        # As many rows as fit a strip, but one at least.
        last = max(first + 1, int(np.searchsorted(block.indptr, begin + per_strip, side="right")) - 1)
        end = int(block.indptr[last])
        if end > begin:
            products = np.take(operand, block.indices[begin:end], axis=0)
            products *= block.data[begin:end].reshape(-1, *trailing)
            starts = block.indptr[first:last] - begin
            # reduceat takes an empty segment for a segment of one: leave the empty rows out, they own nothing.
            filled = np.flatnonzero(block.indptr[first + 1 : last + 1] > block.indptr[first:last])
            out[first + filled] = np.add.reduceat(products, starts[filled], axis=0)
        first = last
    return out


def _csr_multiply_transposed(block: CsrBlock, operand: Array) -> Array:
    columns = block.shape[1]
    dtype = _work_dtype(block.data, operand)
    row_of = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    flat = operand if operand.ndim == 2 else operand[:, None]
    out = np.empty((columns, flat.shape[1]), dtype)
    for c in range(flat.shape[1]):
        products = block.data.conj() * flat[row_of, c]
        if dtype.kind == "c":
            out[:, c] = np.bincount(block.indices, products.real, columns)
            out[:, c].imag = np.bincount(block.indices, products.imag, columns)
        else:
            out[:, c] = np.bincount(block.indices, products, columns)
    return out.reshape(columns, *operand.shape[1:])


def take_rows(block: Block, rows: Array) -> Block:
    """Return some rows of a block, or some entries of a vector, in the given order; a row may come again.

    Examples
    --------
    >>> sparse = CsrBlock(np.array([2.0, 3.0, 4.0]), np.array([1, 0, 1]), np.array([0, 1, 3]), (2, 2))
    >>> taken = take_rows(sparse, np.array([1, 0, 1]))
    >>> taken.data, taken.indices, taken.indptr, taken.shape
    (array([3., 4., 2., 3., 4.]), array([0, 1, 1, 0, 1]), array([0, 2, 3, 5]), (3, 2))
    """
    if not isinstance(block, CsrBlock):
        taken: Array = block[rows]
        return taken
    starts, lengths = block.indptr[rows], np.diff(block.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
    return CsrBlock(block.data[entries], block.indices[entries], indptr, (len(rows), block.shape[1]))


def squared(block: Block) -> Block:
    """Return a block with the squares of its entries, in double precision.

    Examples
    --------
    >>> squared(np.array([[1, -2]]))
    array([[1., 4.]])
    """
    if isinstance(block, CsrBlock):
        return CsrBlock(np.square(block.data, dtype=np.float64), block.indices, block.indptr, block.shape)
    squares: Array = np.square(block, dtype=np.float64)
    return squares
