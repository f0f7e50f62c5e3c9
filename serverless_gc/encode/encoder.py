"""From a matrix to coded blocks, streaming: as an iterator, or into a store.

Memory beyond the source's own: at most about ``max_bytes`` of blocks (a group being computed, one being written,
source blocks kept when they had to be transposed) and 32 MiB of strips. Blocks that the code carries unchanged are
views of the source when its layout allows.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.encode.encoded import EncodedMatrix, axis_name, load_encoded, manifest_key, write_manifest
from serverless_gc.encode.fingerprint import Scan, scan
from serverless_gc.encode.plan import Group, Plan, make_plan
from serverless_gc.encode.sources import as_source
from serverless_gc.encode.uploads import Uploads
from serverless_gc.errors import CorruptObject, InputError, LimitError, ObjectNotFound
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Store
from serverless_gc.wire import Block, CsrBlock, pack_block

__all__ = ["DEFAULT_MAX_BYTES", "encode_rows", "store_encoded"]

_Run: TypeAlias = Callable[..., Awaitable[Any]]

DEFAULT_MAX_BYTES = 2**30
"""Bytes of finished blocks that may be in memory at a time, by default."""


def encode_rows(
    X: Any,
    code: Code,
    *,
    axis: int = 0,
    dtype: Any = np.float64,
    max_bytes: int = DEFAULT_MAX_BYTES,
    scanned: Scan | None = None,
) -> Iterator[tuple[int, Block]]:
    """Encode a matrix and yield ``(message, block)`` for every message of the code, in order of making.

    Parameters
    ----------
    X
        A `Source` or anything `as_source` takes, shape ``(m, p)``.
    code
        A data code over ``k`` blocks.
    axis
        0 encodes blocks of ``ceil(m / k)`` rows; 1 encodes blocks of ``ceil(p / k)`` rows of the transpose.
    dtype
        Type of the blocks: float64 or float32; for complex data the complex type of that precision. Sums are formed
        in double precision either way.
    max_bytes
        Bytes of blocks that are made ahead. When the coded blocks exceed it the source is read several times.
    scanned
        Result of an earlier `scan` of the same content, to save the pass.

    Returns
    -------
    Iterator[tuple[int, Block]]
        Dense blocks of shape ``(b, p)`` (``(b, m)`` for axis 1) or `CsrBlock`; of a code with a `Code.support` the
        columns that the message needs, in its order. Blocks may be read-only views of ``X``; messages of equal content
        give the same object.

    Raises
    ------
    InputError
        If an entry is not finite or an argument is wrong.

    Examples
    --------
    >>> from serverless_gc.encode import encode_rows
    >>> class Sum(Code):  # two blocks and their sum
    ...     name = "sum"
    ...
    ...     def _build_generator(self):
    ...         return np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    ...
    ...     def tracker(self):
    ...         raise NotImplementedError
    ...
    ...     def decode(self, values, *, out=None, tolerance=None):
    ...         raise NotImplementedError
    >>> for message, block in encode_rows([[1, 2], [3, 4]], Sum(3, 2)):
    ...     print(message, block)
    0 [[1. 2.]]
    1 [[3. 4.]]
    2 [[4. 6.]]
    """
    budget = _share(max_bytes)
    plan = make_plan(as_source(X), code, axis=axis, dtype=dtype)
    plan.check_range(scanned or scan(plan.source))
    return _generate(plan, budget)


def _generate(plan: Plan, budget: int) -> Iterator[tuple[int, Block]]:
    alike: dict[int, list[int]] = {}
    for message, first in enumerate(plan.first):
        alike.setdefault(first, []).append(message)
    for group in plan.groups(budget):
        for message, block in zip(group.messages, plan.make(group), strict=True):
            for same in alike[message]:
                yield same, block


async def store_encoded(
    X: Any,
    code: Code,
    store: Store,
    prefix: str,
    *,
    axis: int = 0,
    dtype: Any = np.float64,
    concurrency: int = 16,
    max_bytes: int = DEFAULT_MAX_BYTES,
    scanned: Scan | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    resume: bool = False,
) -> EncodedMatrix:
    """Encode a matrix into a store. Writing overlaps computing; the manifest is written last.

    When the same content was encoded under the prefix before, with the same code and type, and is still whole,
    nothing is written.

    Parameters
    ----------
    X, code, axis, dtype, max_bytes, scanned
        See `encode_rows`.
    store
        Where to write.
    prefix
        Keys are ``{prefix}/rows/00012`` (``columns`` for axis 1) and ``{prefix}/rows/manifest``. Give every matrix a
        prefix of its own.
    concurrency
        Most objects being written at a time.
    on_progress
        Called with (objects written, objects in all) after each one.
    limits
        Limits of the services.
    resume
        Whether blocks that a call before wrote may be there although its manifest is not: equal ones are not written
        again, by their checksums. The same is then asked of an encoding that is whole.

    Raises
    ------
    InputError
        If an entry is not finite, an argument is wrong, or the prefix holds the encoding of something else. Nothing
        was written then.
    LimitError
        If a block is larger than an object may be.
    StoreError
        If an object could not be written; what was written has no manifest and is replaced by the next call.
    """
    _check_prefix(prefix)
    if concurrency < 1:
        raise InputError(f"concurrency must be at least 1, got {concurrency}")
    budget = _share(max_bytes)
    # Few threads: one computes, the others checksum. Each thread reserves address space of its own.
    pool = ThreadPoolExecutor(1 + min(3, os.cpu_count() or 1), thread_name_prefix="sgc-encode")
    stop = threading.Event()
    try:
        run: _Run = partial(asyncio.get_running_loop().run_in_executor, pool)
        plan: Plan = await run(lambda: make_plan(as_source(X), code, axis=axis, dtype=dtype, limits=limits, stop=stop))
        found: Scan = scanned or await run(lambda: scan(plan.source, stop=stop))
        plan.check_range(found)
        existing = await _existing(plan, store, prefix, found, stamped=resume)
        if existing is not None:
            return existing
        folder = f"{prefix}/{axis_name(axis)}"
        uploads = await Uploads.resumed(store, folder) if resume else Uploads(store)
        writer = _Writer(plan, found, uploads, prefix, run, concurrency, on_progress)
        await writer.write(await run(lambda: list(plan.groups(budget))))
        encoded = writer.result()
        await write_manifest(store, encoded)
        return encoded
    finally:  # what still runs gives up at its next strip; nobody waits for it
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _share(max_bytes: int) -> int:
    """Return the budget of a group: one is computed, one written, and transposed source blocks may be kept."""
    if max_bytes < 1:
        raise InputError(f"max_bytes must be at least 1, got {max_bytes}")
    return max(1, max_bytes // 3)


def _check_prefix(prefix: str) -> None:
    if not prefix or prefix.startswith("/") or prefix.endswith("/"):
        raise InputError(f"prefix must be a non-empty key without leading or trailing slash, got {prefix!r}")


async def _existing(plan: Plan, store: Store, prefix: str, found: Scan, *, stamped: bool) -> EncodedMatrix | None:
    """Return the encoding that is there already, or None if there is none or it is not whole."""
    try:
        there = await load_encoded(store, prefix, plan.code, axis=plan.axis, stamped=stamped)
    except (ObjectNotFound, CorruptObject):
        return None
    if (there.fingerprint, there.dtype) != (found.fingerprint, plan.dtype):
        raise InputError(
            f"{manifest_key(prefix, plan.axis)} describes the encoding of another matrix or type; "
            "use another prefix, or delete that encoding first"
        )
    return there


class _Writer:
    """Computes groups on a thread and writes their blocks while the next group is computed."""

    def __init__(
        self,
        plan: Plan,
        found: Scan,
        uploads: Uploads,
        prefix: str,
        run: _Run,
        concurrency: int,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self._plan = plan
        self._found = found
        self._uploads = uploads
        self._prefix = prefix
        self._run = run
        self._slots = asyncio.Semaphore(concurrency)
        self._on_progress = on_progress
        self._total = len(set(plan.first))
        self._nnz = 0

    async def write(self, groups: Sequence[Group]) -> None:
        """Make and write all groups; at most two are alive at a time."""
        writing: list[asyncio.Task[None]] = []
        try:
            for group in groups:
                blocks = await self._run(self._plan.make, group)
                await asyncio.gather(*writing)
                pairs = zip(group.messages, blocks, strict=True)
                writing = [asyncio.ensure_future(self._put(message, block)) for message, block in pairs]
                del blocks, pairs
            await asyncio.gather(*writing)
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)

    async def _put(self, message: int, block: Block) -> None:
        async with self._slots:
            meta = {"message": message, "axis": axis_name(self._plan.axis), "matrix": self._found.fingerprint}
            parts = await self._run(pack_block, block, meta)
            size = sum(memoryview(part).nbytes for part in parts)
            if size > self._plan.limits.object_bytes:
                raise LimitError(
                    f"block {message} of {self._plan.source.name} is {size} bytes, the largest object is "
                    f"{self._plan.limits.object_bytes} bytes. Use a code with more blocks (larger k)"
                )
            await self._uploads.put(self._key(message), parts)
        self._nnz += int(block.data.size if isinstance(block, CsrBlock) else block.size)
        if self._on_progress is not None:
            self._on_progress(len(self._uploads.sizes), self._total)

    def _key(self, message: int) -> str:
        return f"{self._prefix}/{axis_name(self._plan.axis)}/{message:05d}"

    def result(self) -> EncodedMatrix:
        """Describe what was written."""
        plan = self._plan
        rows, columns = plan.source.shape
        return EncodedMatrix(
            n_rows=rows,
            n_cols=columns,
            axis=plan.axis,
            partition=plan.partition,
            code=plan.code,
            keys=tuple(self._key(first) for first in plan.first),
            dtype=plan.dtype,
            real=plan.source.dtype.kind != "c",
            sparse=plan.source.sparse,
            fingerprint=self._found.fingerprint,
            largest=self._found.largest,
            prefix=self._prefix,
            nbytes=sum(self._uploads.sizes.values()),
            stored_nnz=self._nnz,
            sizes=dict(sorted(self._uploads.sizes.items())),
            stamps=dict(sorted(self._uploads.stamps.items())),
            sent=self._uploads.sent,
        )
