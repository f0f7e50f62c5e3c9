"""What a worker can compute, by name.

A kernel takes the task's blocks, its operand and its parameters and returns one array. One that makes several
messages also comes as a stream that gives one after the other, so that a worker can publish the first before it works
on the next. Booleans, integers and
float16 are promoted before any sum (integers to int64, or to float64 beside floats); a block of lower precision
than its operand is converted a strip at a time, so the block is never copied as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock
from serverless_gc.worker import losses

__all__ = ["KERNELS", "STREAMS", "Kernel", "Stream", "get", "multiply", "multiply_transposed", "stream"]

Array: TypeAlias = NDArray[Any]
Kernel: TypeAlias = Callable[[Sequence[Block], Array | None, Mapping[str, Any]], Array]


class Stream(Protocol):
    """A kernel that gives its messages one after the other, from the ``first`` wanted one on."""

    def __call__(
        self, blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
    ) -> Iterator[Array]:
        """Give the messages."""
        ...


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


def _need_operand(kernel: str, operand: Array | None) -> Array:
    if operand is None:
        raise ValueError(f"kernel {kernel!r} needs an operand, the task carries none")
    return operand


def matvec(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return the task's block times its operand; for several blocks the stack of their products."""
    products = list(matvec_messages(blocks, operand, params))
    return products[0] if len(products) == 1 else np.stack(products)


def matvec_messages(
    blocks: Sequence[Block],
    operand: Array | None,
    params: Mapping[str, Any],  # noqa: ARG001 - one signature for all streams
    first: int = 0,
) -> Iterator[Array]:
    """Yield the product of each block with the operand, from block ``first`` on."""
    operand = _need_operand("matvec", operand)
    if not blocks:
        raise ValueError("kernel 'matvec' needs a block, the task names none")
    for block in blocks[first:]:
        yield multiply(block, operand)


def gradient(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return the gradient of a loss over the task's data parts at the weights ``operand``, a sum over rows.

    ``blocks`` is ``X, y`` for each part, or ``X, y, sample_weight`` if ``params["weighted"]``. ``params["loss"]``
    names the loss, ``params["loss_params"]`` are its parameters, and ``params["coefficients"]`` the factor of each
    part in the sum, 1 by default (a pair is a complex number).
    """
    w = _need_operand("gradient", operand)
    loss = losses.get(params.get("loss", "squared"), **params.get("loss_params", {}))
    per_part = 3 if params.get("weighted") else 2
    parts = len(blocks) // per_part
    if not parts or len(blocks) % per_part:
        raise ValueError(f"kernel 'gradient' takes {per_part} blocks for each part, the task names {len(blocks)}")
    factors = [complex(*c) if isinstance(c, (list, tuple)) else c for c in params.get("coefficients", [1] * parts)]
    if len(factors) != parts:
        raise ValueError(f"kernel 'gradient' needs a coefficient for each of {parts} parts, got {len(factors)}")
    total: Array | None = None
    for i, factor in enumerate(factors):
        X, *labels = blocks[i * per_part : (i + 1) * per_part]
        dense = [a for a in labels if not isinstance(a, CsrBlock)]
        if len(dense) != len(labels):
            raise ValueError("kernel 'gradient': labels and weights must be dense arrays")
        part = multiply_transposed(X, loss.residual(multiply(X, w), dense[0], dense[1] if len(dense) > 1 else None))
        if factor != 1:
            part = factor * part
        total = part if total is None else total + part
    assert total is not None  # noqa: S101 - parts is at least 1
    return total


def noop(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:  # noqa: ARG001 - one signature for all kernels
    """Return ``params["size"]`` zeros, for measuring everything but the work.

    It stays for ``params["hold"]`` seconds, at most 1: a busy environment makes the next call start another.
    """
    time.sleep(min(1.0, params.get("hold", 0.0)))
    return np.zeros(int(params.get("size", 0)))


KERNELS: Mapping[str, Kernel] = {"matvec": matvec, "gradient": gradient, "noop": noop}
"""Name -> function."""

STREAMS: Mapping[str, Stream] = {"matvec": matvec_messages}
"""Name -> function, for kernels that can give one message after the other."""


def get(name: str) -> Kernel:
    """Return a kernel by name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in KERNELS:
        raise ValueError(f"this worker has no kernel {name!r}; it has {', '.join(sorted(KERNELS))}")
    return KERNELS[name]


def stream(
    name: str, blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Give the messages of a kernel one after the other; of one that has no stream, its whole result as one.

    Raises
    ------
    ValueError
        If there is no such kernel, or it refuses the blocks or the operand; when the first message is asked for.

    Examples
    --------
    >>> list(stream("matvec", [np.eye(2), np.ones((1, 2))], np.array([1.0, 2.0]), {}))
    [array([1., 2.]), array([3.])]
    """
    if name in STREAMS:
        yield from STREAMS[name](blocks, operand, params, first)
    else:
        yield get(name)(blocks, operand, params)
