"""Blocks as rows of numbers: checks, copies, and linear combinations of rows."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = [
    "Output",
    "as_row",
    "as_rows",
    "check_blocks",
    "combine",
    "copy_blocks",
    "output_array",
    "promoted",
    "put",
    "same_memory",
]

_TILE = 4096
"""Columns combined at a time: wide enough for BLAS, narrow enough that the gathered rows stay in cache."""

_SHARE = 2**25
"""Multiplications worth a thread."""


def promoted(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which sums of values of ``dtype`` are safe: integers, bool and float16 become float64.

    Raises
    ------
    InputError
        If ``dtype`` is not numeric.

    Examples
    --------
    >>> promoted(np.dtype("int32")), promoted(np.dtype("complex64"))
    (dtype('float64'), dtype('complex64'))
    """
    if dtype.kind in "biu" or dtype == np.float16:
        return np.dtype(np.float64)
    if dtype.kind not in "fc":
        raise InputError(f"blocks and messages must be numeric, got dtype {dtype}")
    return dtype


def same_memory(a: Array, b: Array) -> bool:
    """Whether two arrays are one and the same memory, read in the same way.

    Examples
    --------
    >>> rows = np.zeros((2, 3))
    >>> same_memory(rows[0], rows[0]), same_memory(rows[0], rows[1]), same_memory(rows[0, :2], rows[0, 1:])
    (True, False, False)
    """
    if not np.may_share_memory(a, b) or a.dtype != b.dtype or a.shape != b.shape or a.strides != b.strides:
        return False
    first = (slice(1),) * a.ndim  # bounds, which are all that is compared, say everything of a single number
    return a.ndim == 0 or np.may_share_memory(a[first], b[first])


def put(rows: Array, j: int, block: Array) -> None:
    """Write ``block`` to ``rows[j]``; nothing is copied where it is that memory already."""
    if not same_memory(rows[j, ...], block):
        rows[j] = block


def as_row(block: Array, dtype: np.dtype[Any]) -> Array:
    """View a block as one row of real numbers, two per complex entry; copies only if it is not contiguous."""
    row = np.ascontiguousarray(block, dtype=dtype).reshape(-1)
    return row.view(row.real.dtype) if dtype.kind == "c" else row


def output_array(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return ``out`` after checking that it can hold the result, or a new array.

    Raises
    ------
    InputError
        If ``out`` has another shape, or a dtype that cannot hold the result.
    """
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape:
        raise InputError(f"out must have shape {shape}, got {out.shape}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise InputError(f"out must hold {dtype}, its dtype is {out.dtype}")
    return out


@dataclass(frozen=True, slots=True)
class Output:
    """Where a result is written: ``array`` is what is filled, ``out`` what the caller gets."""

    array: Array
    out: Array

    @classmethod
    def prepare(cls, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Output:
        """Check ``out``; fill it directly where its memory allows, else a new array that `finish` copies.

        Raises
        ------
        InputError
            If ``out`` has another shape or a dtype that cannot hold the answer.
        """
        given = output_array(out, shape, dtype)
        direct = given.dtype == dtype and given[:1].flags.c_contiguous
        return cls(given if direct else np.empty(shape, dtype), given)

    def rows(self, ids: Sequence[int]) -> Array | list[Array]:
        """Return these entries as writable rows; as one matrix where they follow one another."""
        run = bool(ids) and list(ids) == list(range(ids[0], ids[0] + len(ids)))
        if run and self.array.flags.c_contiguous:
            return _as_matrix(self.array[ids[0] : ids[0] + len(ids)])
        return [as_row(self.array[j, ...], self.array.dtype) for j in ids]

    def finish(self) -> Array:
        """Return the caller's array, filled."""
        if self.array is not self.out:
            self.out[...] = self.array
        return self.out


def combine(
    coefficients: FloatArray,
    sources: Array | Sequence[Array],
    targets: Sequence[Array] | Array,
    *,
    checks: FloatArray | None = None,
    dtype: np.dtype[Any] | None = None,
    scale: float = 0.0,
) -> float:
    """Write ``targets[i] = sum_j coefficients[i, j] * sources[j]``, a tile of columns at a time.

    Parameters
    ----------
    coefficients
        Shape ``(t, s)``, real.
    sources
        ``s`` rows of one length, or one array of shape ``(s, length)``.
    targets
        ``t`` rows to write. Each may be the same memory as a source: a tile is read before it is written.
    checks
        Shape ``(c, s)``: combinations that vanish if the sources are consistent.
    dtype
        In which the sums are taken; the sources' own by default.
    scale
        What the checks are relative to, if it is larger than the root mean square of the sources.

    Returns
    -------
    float
        Root mean square of the checks relative to that of the sources, or to ``scale``; 0.0 without checks.

    Examples
    --------
    >>> total = np.empty((1, 3))
    >>> combine(np.ones((1, 2)), np.array([[1.0, 2, 3], [10, 20, 30]]), total)
    0.0
    >>> total
    array([[11., 22., 33.]])
    """
    if not len(sources):
        return 0.0
    work = sources[0].dtype if dtype is None else dtype
    if (
        checks is None
        and isinstance(sources, np.ndarray)
        and isinstance(targets, np.ndarray)
        and work == sources.dtype == targets.dtype
    ):
        np.matmul(coefficients.astype(work, copy=False), sources, out=targets)
        return 0.0
    matrix = (coefficients if checks is None else np.concatenate([coefficients, checks])).astype(work, copy=False)
    length = sources[0].shape[0]
    parts = max(1, min(os.cpu_count() or 1, matrix.size * length // _SHARE))
    bounds = [length * i // parts for i in range(parts + 1)]
    # BLAS on one thread and columns on several: its own threads wait for one another at every tile, which takes
    # many times longer than the product as soon as a processor is busy with something else.
    with single_blas_thread():
        if parts == 1:
            sums = [_combine_columns(matrix, sources, targets, 0, length)]
        else:
            with ThreadPoolExecutor(parts) as pool:
                jobs = [pool.submit(_combine_columns, matrix, sources, targets, *ends) for ends in pairwise(bounds)]
                sums = [job.result() for job in jobs]
    mismatch, squares = (math.fsum(column) for column in zip(*sums, strict=True))
    if checks is None or mismatch == 0:
        return 0.0
    size = max(math.sqrt(squares / (len(sources) * length)), scale)
    return math.sqrt(mismatch / (len(checks) * length)) / size if size else math.inf


def _combine_columns(
    matrix: Array, sources: Array | Sequence[Array], targets: Sequence[Array] | Array, first: int, last: int
) -> tuple[float, float]:
    """Combine a range of columns; return the sums of squares of what has no target, and then of the sources."""
    width = max(1, min(last - first, _TILE))
    memory = np.empty(len(sources) * width, matrix.dtype)
    mismatch = scale = 0.0
    for start in range(first, last, width):
        stop = min(start + width, last)
        tile = memory[: len(sources) * (stop - start)]
        np.concatenate([row[start:stop] for row in sources], out=tile, casting="same_kind")
        result = matrix @ tile.reshape(len(sources), -1)
        for target, row in zip(targets, result, strict=False):
            target[start:stop] = row
        if len(result) > len(targets):
            # In double precision, so that squares of large single-precision numbers do not overflow into an alarm.
            surplus = result[len(targets) :].reshape(-1).astype(np.float64, copy=False)
            mismatch += float(surplus @ surplus)
            scale += float(tile @ tile)
    return mismatch, scale


def as_rows(blocks: Sequence[Array] | Array, arrays: Sequence[Array], dtype: np.dtype[Any]) -> Array | list[Array]:
    """View blocks as rows of real numbers; as one matrix where they are one array already."""
    if isinstance(blocks, np.ndarray) and blocks.dtype == dtype and blocks.flags.c_contiguous:
        return _as_matrix(blocks)
    return [as_row(a, dtype) for a in arrays]


def _as_matrix(array: Array) -> Array:
    matrix = array.reshape(len(array), -1)
    return matrix.view(matrix.real.dtype) if array.dtype.kind == "c" else matrix


def check_blocks(blocks: Sequence[Array] | Array, k: int) -> tuple[list[Array], np.dtype[Any]]:
    """Return the blocks as a list, without copying, and the dtype of their sums.

    Raises
    ------
    InputError
        If there are not ``k`` blocks, their shapes differ, or a dtype is not numeric.
    """
    if len(blocks) != k:
        raise InputError(f"expected k={k} blocks, got {len(blocks)}")
    if isinstance(blocks, np.ndarray):
        return [blocks[j, ...] for j in range(k)], promoted(blocks.dtype)
    arrays = [np.asarray(b) for b in blocks]
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise InputError(f"all blocks must have one shape, got {sorted(shapes)}")
    return arrays, np.result_type(*{promoted(a.dtype) for a in arrays})


def copy_blocks(blocks: Sequence[Array] | Array, k: int, sources: Sequence[int], out: Array | None) -> Array:
    """Write block ``sources[i]`` to ``out[i]``; nothing is copied where it is the same memory already.

    Raises
    ------
    InputError
        If the blocks or ``out`` do not fit.
    """
    arrays, dtype = check_blocks(blocks, k)
    result = output_array(out, (len(sources), *arrays[0].shape), dtype)
    for i, j in enumerate(sources):
        put(result, i, arrays[j])
    return result
