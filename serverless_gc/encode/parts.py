"""Cutting rows into partitions that are stored as they are: what gradient codes place on their workers.

A partition is stored once, however many workers compute on it. Nothing is padded: rows that are not there would change
the value of a loss.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.encode.plan import stored_dtype
from serverless_gc.encode.source import Source
from serverless_gc.errors import InputError, LimitError
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Store
from serverless_gc.types import Array
from serverless_gc.wire import Block, CsrBlock, pack_block

__all__ = ["Parts", "StoredParts", "array_digest", "store_array_parts", "store_parts"]

_CONCURRENCY = 16
_IN_MEMORY = 2**30  # bytes of partitions being written at a time, unless one alone has more


@dataclass(frozen=True, slots=True)
class Parts:
    """``m`` rows in ``k`` partitions of consecutive rows, whose sizes differ by one at most.

    With fewer rows than partitions some are empty.

    Examples
    --------
    >>> parts = Parts(7, 3)
    >>> [parts.range(j) for j in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    >>> Parts(2, 4).filled
    (1, 3)
    """

    m: int
    k: int

    def __post_init__(self) -> None:
        for label, value in (("m", self.m), ("k", self.k)):
            if value < 1:
                raise InputError(f"{label} must be at least 1, got {value}")

    def range(self, part: int) -> tuple[int, int]:
        """Return the half-open range of rows of a partition."""
        if not 0 <= part < self.k:
            raise InputError(f"part must be in 0..{self.k - 1}, got {part}")
        return part * self.m // self.k, (part + 1) * self.m // self.k

    @property
    def filled(self) -> tuple[int, ...]:
        """Partitions that hold a row."""
        bounds = (self.range(part) for part in range(self.k))
        return tuple(part for part, (lo, hi) in enumerate(bounds) if lo < hi)


@dataclass(frozen=True, slots=True)
class StoredParts:
    """The partitions of one matrix or array in a store.

    Attributes
    ----------
    parts
        How the rows were cut.
    keys
        Object key of each partition that holds a row, by its number.
    dtype
        Type of the stored entries.
    nbytes
        Bytes of all objects.
    stored_nnz
        Entries stored in all objects (for dense partitions: all entries).
    """

    parts: Parts
    keys: dict[int, str]
    dtype: np.dtype[Any]
    nbytes: int
    stored_nnz: int


async def store_parts(
    source: Source,
    k: int,
    store: Store,
    prefix: str,
    *,
    dtype: Any = np.float64,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: Callable[[int, int], None] | None = None,
) -> StoredParts:
    """Store a matrix in ``k`` partitions under ``{prefix}/00000`` and so on; sparse ones stay sparse.

    Parameters
    ----------
    source
        What to read, piece by piece. Its entries must have been scanned.
    k
        Number of partitions.
    store, prefix
        Where to write.
    dtype
        Type of the entries, float64 or float32; for complex data the complex type of that precision.
    limits
        Limits of the services.
    on_progress
        Called with (objects written, objects in all) after each one.

    Raises
    ------
    InputError
        If the type cannot be used.
    LimitError
        If a partition is larger than an object may be.
    StoreError
        If an object could not be written.
    """
    kept = stored_dtype(source, dtype)
    parts = Parts(source.shape[0], k)

    def cut(part: int) -> Block:
        lo, hi = parts.range(part)
        if source.sparse:
            rows = source.rows(lo, hi)
            assert isinstance(rows, CsrBlock)  # noqa: S101 - what sparse sources give
            return CsrBlock(rows.data.astype(kept, copy=False), rows.indices, rows.indptr, rows.shape)
        if kept == source.dtype:
            return source.rows(lo, hi)
        return source.rows(lo, hi, np.empty((hi - lo, source.shape[1]), kept))

    row_bytes = source.shape[1] * kept.itemsize if not source.sparse else 0
    return await _store(cut, parts, store, prefix, kept, (source.name, row_bytes), limits, on_progress)


async def store_array_parts(values: Array, k: int, store: Store, prefix: str, name: str) -> StoredParts:
    """Store an array in ``k`` partitions along its first axis; otherwise as `store_parts`."""
    parts = Parts(len(values), k)

    def cut(part: int) -> Block:
        lo, hi = parts.range(part)
        return np.ascontiguousarray(values[lo:hi])

    row_bytes = values.nbytes // len(values)
    return await _store(cut, parts, store, prefix, values.dtype, (name, row_bytes), DEFAULT_LIMITS, None)


def array_digest(values: Array) -> str:
    """Return a digest of an array's type, shape and content."""
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


async def _store(
    cut: Callable[[int], Block],
    parts: Parts,
    store: Store,
    prefix: str,
    dtype: np.dtype[Any],
    what: tuple[str, int],
    limits: Limits,
    on_progress: Callable[[int, int], None] | None,
) -> StoredParts:
    name, row_bytes = what
    largest = max(hi - lo for lo, hi in _ranges(parts)) * row_bytes
    slots = asyncio.Semaphore(max(1, min(_CONCURRENCY, _IN_MEMORY // max(1, largest))))
    filled = parts.filled
    sizes: list[int] = []
    nnz = 0

    def packed(part: int) -> tuple[Sequence[bytes | memoryview], int]:
        block = cut(part)
        return pack_block(block), int(block.data.size if isinstance(block, CsrBlock) else block.size)

    async def put(part: int) -> None:
        nonlocal nnz
        async with slots:
            buffers, entries = await asyncio.to_thread(packed, part)
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            if size > limits.object_bytes:
                raise LimitError(
                    f"partition {part} of {name} is {size} bytes, the largest object is {limits.object_bytes} bytes. "
                    "Use a code with more partitions (larger k)"
                )
            await store.put(f"{prefix}/{part:05d}", list(buffers))
        sizes.append(size)
        nnz += entries
        if on_progress is not None:
            on_progress(len(sizes), len(filled))

    await _all(put, filled)
    return StoredParts(parts, {part: f"{prefix}/{part:05d}" for part in filled}, dtype, sum(sizes), nnz)


async def _all(put: Callable[[int], Any], parts: Sequence[int]) -> None:
    """Write all; when one fails or the call is given up, nothing goes on writing behind it."""
    writing = [asyncio.ensure_future(put(part)) for part in parts]
    try:
        await asyncio.gather(*writing)
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


def _ranges(parts: Parts) -> Iterator[tuple[int, int]]:
    return (parts.range(part) for part in range(parts.k))
