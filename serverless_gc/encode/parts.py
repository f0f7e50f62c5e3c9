"""Cutting rows into partitions that are stored as they are: what gradient codes place on their workers.

A partition is stored once, however many workers compute on it. Nothing is padded: rows that are not there would change
the value of a loss.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.encode.documents import read_document, write_document
from serverless_gc.encode.plan import stored_dtype
from serverless_gc.encode.source import Source
from serverless_gc.encode.uploads import Uploads, check_objects
from serverless_gc.errors import CorruptObject, InputError, LimitError, ObjectNotFound
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Store
from serverless_gc.types import Array
from serverless_gc.wire import Block, CsrBlock, pack_block

__all__ = ["Parts", "StoredParts", "array_digest", "load_parts", "store_array_parts", "store_parts"]

_KIND = "parts"
_VERSION = 1
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
    row_shape
        Shape of one row: ``(p,)`` of a matrix, ``()`` of a vector.
    dtype
        Type of the stored entries.
    nbytes
        Bytes of all objects.
    stored_nnz
        Entries stored in all objects (for dense partitions: all entries).
    sent
        Bytes of the objects that this call wrote; the others were there already.
    """

    parts: Parts
    keys: dict[int, str]
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    stored_nnz: int
    sent: int


async def store_parts(
    source: Source,
    k: int,
    store: Store,
    prefix: str,
    *,
    dtype: Any = np.float64,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: Callable[[int, int], None] | None = None,
    resume: bool = False,
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
    resume
        Write a manifest at the end, ``{prefix}/manifest``, and pass over what is there already: everything if the
        manifest is, else partitions with the right checksum.

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
    about = _About(prefix, source.name, source.shape[1:], kept, row_bytes, limits, resume=resume)
    return await _store(cut, parts, store, about, on_progress)


async def store_array_parts(
    values: Array, k: int, store: Store, prefix: str, name: str, *, resume: bool = False
) -> StoredParts:
    """Store an array in ``k`` partitions along its first axis; otherwise as `store_parts`."""
    parts = Parts(len(values), k)

    def cut(part: int) -> Block:
        lo, hi = parts.range(part)
        return np.ascontiguousarray(values[lo:hi])

    row_bytes = values.nbytes // len(values)
    about = _About(prefix, name, values.shape[1:], values.dtype, row_bytes, DEFAULT_LIMITS, resume=resume)
    return await _store(cut, parts, store, about, None)


async def load_parts(store: Store, prefix: str) -> StoredParts:
    """Open partitions that were stored with a manifest.

    Raises
    ------
    ObjectNotFound
        If there is no manifest, or an object it names is missing or another one.
    CorruptObject
        If the manifest is damaged.
    """
    document = await read_document(store, f"{prefix}/manifest", _KIND, _VERSION)
    await check_objects(store, f"{prefix}/", document["sizes"], document["stamps"])
    parts = Parts(document["m"], document["k"])
    keys = _keys(prefix, parts)
    row_shape, nbytes = tuple(document["row_shape"]), sum(document["sizes"].values())
    return StoredParts(parts, keys, row_shape, np.dtype(document["dtype"]), nbytes, document["stored_nnz"], 0)


def array_digest(values: Array) -> str:
    """Return a digest of an array's type, shape and content."""
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _About:
    """What is being stored, and where; ``row_bytes`` of a dense row, 0 of a sparse one."""

    prefix: str
    name: str
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    row_bytes: int
    limits: Limits
    resume: bool


async def _store(
    cut: Callable[[int], Block],
    parts: Parts,
    store: Store,
    about: _About,
    on_progress: Callable[[int, int], None] | None,
) -> StoredParts:
    if about.resume:
        try:
            return await load_parts(store, about.prefix)
        except (ObjectNotFound, CorruptObject):
            uploads = await Uploads.resumed(store, about.prefix)
    else:
        uploads = Uploads(store)
    largest = max(hi - lo for lo, hi in _ranges(parts)) * about.row_bytes
    slots = asyncio.Semaphore(max(1, min(_CONCURRENCY, _IN_MEMORY // max(1, largest))))
    keys = _keys(about.prefix, parts)
    nnz = 0

    def packed(part: int) -> tuple[Sequence[bytes | memoryview], int]:
        block = cut(part)
        return pack_block(block), int(block.data.size if isinstance(block, CsrBlock) else block.size)

    async def put(part: int) -> None:
        nonlocal nnz
        async with slots:
            buffers, entries = await asyncio.to_thread(packed, part)
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            if size > about.limits.object_bytes:
                raise LimitError(
                    f"partition {part} of {about.name} is {size} bytes, the largest object is "
                    f"{about.limits.object_bytes} bytes. Use a code with more partitions (larger k)"
                )
            await uploads.put(keys[part], list(buffers))
        nnz += entries
        if on_progress is not None:
            on_progress(len(uploads.sizes), len(keys))

    await _all(put, tuple(keys))
    if about.resume:
        await write_document(store, f"{about.prefix}/manifest", _document(parts, about, uploads, nnz))
    nbytes = sum(uploads.sizes.values())
    return StoredParts(parts, keys, about.row_shape, about.dtype, nbytes, nnz, uploads.sent)


def _keys(prefix: str, parts: Parts) -> dict[int, str]:
    return {part: f"{prefix}/{part:05d}" for part in parts.filled}


def _document(parts: Parts, about: _About, uploads: Uploads, nnz: int) -> Mapping[str, Any]:
    return {
        "kind": _KIND,
        "version": _VERSION,
        "m": parts.m,
        "k": parts.k,
        "row_shape": list(about.row_shape),
        "dtype": about.dtype.str,
        "stored_nnz": nnz,
        "sizes": dict(sorted(uploads.sizes.items())),
        "stamps": dict(sorted(uploads.stamps.items())),
    }


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
