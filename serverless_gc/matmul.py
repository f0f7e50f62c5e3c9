"""``A @ B`` with both operands coded: cut, encode, store, one round, and the stored blocks are removed again.

``A`` is ``At.T`` of the codes' ``At.T @ B``: a block of ``At``, transposed, is a block of ``A``, and that is how it is
stored, so that workers multiply what they read as it is.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.matmul import MatmulCode, Operand
from serverless_gc.codes.registry import get
from serverless_gc.encode import Partition, as_source, scan
from serverless_gc.encode.dense import DenseSource
from serverless_gc.errors import InputError, LimitError
from serverless_gc.limits import Limits
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.rounds.jobs import Job
from serverless_gc.rounds.resources import Owner, Resources
from serverless_gc.types import Array, TaskSpec
from serverless_gc.wire import pack_block

__all__ = ["choose_matmul_code", "multiply"]

GROUP_BYTES = 2**28
"""Bytes of combinations that are computed, and then written, at a time."""

WRITES = 16
"""Most objects being written at a time."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand, how it is cut, and how its blocks are combined."""

    name: str
    source: DenseSource
    rows: Partition
    columns: Partition
    order: Sequence[tuple[int, int]]
    operand: Operand
    encode: Callable[..., Array]
    largest: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the coded blocks."""
        return np.result_type(self.source.dtype, self.operand.generator.dtype)

    @property
    def block_bytes(self) -> int:
        """Bytes of one coded block."""
        return self.rows.b * self.columns.b * self.dtype.itemsize

    def blocks(self) -> list[Array]:
        """Cut the operand; views where its memory allows, else copies, padded with zeros to one shape."""
        return [self._block(i, j) for i, j in self.order]

    def _block(self, i: int, j: int) -> Array:
        (top, bottom), (first, last) = self.rows.range(i), self.columns.range(j)
        shape = (self.rows.b, self.columns.b)
        if (bottom - top, last - first) == shape and self.source.content_dtype == self.source.dtype:
            return self.source.window(top, bottom, first, last)
        block = np.zeros(shape, self.source.dtype)
        if bottom > top and last > first:
            block[: bottom - top, : last - first] = self.source.window(top, bottom, first, last)
        return block


async def multiply(owner: Owner, A: Any, B: Any, code: MatmulCode, deadline: float | None) -> tuple[Array, Report]:
    """Compute ``A @ B`` without waiting for stragglers.

    Parameters
    ----------
    owner
        The session.
    A, B
        ``(m, l)`` and ``(l, c)``, dense and numeric.
    code
        How both are coded.
    deadline
        Seconds after which the round fails; the session's by default.

    Returns
    -------
    array, report
        ``(m, c)``, fresh and writable, and what it cost.

    Raises
    ------
    InputError
        If shapes do not fit, an entry is not finite, or an operand is sparse or not numeric; nothing was stored.
    NotDecodableError, DeadlineExceeded
        If too few results arrived (in time).
    """
    begun = time.perf_counter()
    left, right = await asyncio.to_thread(_sides, A, B, code)
    res = await owner.resources()
    for side in (left, right):
        _check_size(side, res.limits)
    base = f"{res.prefix}/matmul/{next(res.rounds):07d}"
    keys = {id(side): [f"{base}/{side.name}/{i:05d}" for i in range(side.operand.n_coded)] for side in (left, right)}
    try:
        sent = [await _store(res, side, keys[id(side)]) for side in (left, right)]
        encoded = Report(rounds=0, bytes_up=sum(size for size, _ in sent), encode_seconds=time.perf_counter() - begun)
        job = _job(code, left, right, keys[id(left)], keys[id(right)], power=sent[1][1])
        answer, report = await run_round(res, job, lambda code: owner.policy_for(code, deadline, dtype=job.stored))
    finally:
        res.chore(_remove(res, [*keys[id(left)], *keys[id(right)]]))
    return answer, report.merge(encoded)


def choose_matmul_code(code: str | Code, sizes: dict[str, int | None], params: dict[str, Any]) -> MatmulCode:
    """Make the code that ``code`` names.

    Parameters
    ----------
    code
        A name, or a code.
    sizes
        Numbers of workers and of blocks that the caller gave, by name; None where not.
    params
        Further parameters.

    Raises
    ------
    InputError
        If it is no code for matrix products, or an object comes with parameters.
    """
    given = {label: size for label, size in sizes.items() if size is not None} | params
    if isinstance(code, Code):
        if given:
            raise InputError(f"a code object brings its own parameters; {', '.join(given)} go with a name")
        chosen = code
    else:
        chosen = get(code, **given)
    if not isinstance(chosen, MatmulCode):
        raise InputError(f"{chosen.name!r} is a {chosen.kind} code; coded_matmul needs one for products, 'khatri-rao'")
    return chosen


def _sides(A: Any, B: Any, code: MatmulCode) -> tuple[_Side, _Side]:
    """Check both operands and cut them as the code wants."""
    sources = [_dense(X, name) for X, name in ((A, "A"), (B, "B"))]
    a, b = sources
    if a.shape[1] != b.shape[0]:
        raise InputError(f"A has {a.shape[1]} columns and B {b.shape[0]} rows: these must be equal for A @ B")
    largest = [scan(source).largest for source in sources]
    p, q, inner = code.split.p, code.split.q, code.split.inner
    between = Partition(a.shape[1], inner)
    pairs = itertools.product
    return (
        _Side(
            "left",
            a,
            Partition(a.shape[0], p),
            between,
            [(i, s) for s, i in pairs(range(inner), range(p))],
            code.left,
            code.encode_left,
            largest[0],
        ),
        _Side(
            "right",
            b,
            between,
            Partition(b.shape[1], q),
            list(pairs(range(inner), range(q))),
            code.right,
            code.encode_right,
            largest[1],
        ),
    )


def _dense(X: Any, name: str) -> DenseSource:
    source = as_source(X, name=name)
    if not isinstance(source, DenseSource):
        raise InputError(
            f"{name} is sparse, its combinations would not be: pass {name}.toarray(), or multiply on this machine"
        )
    return source


def _check_size(side: _Side, limits: Limits) -> None:
    if side.block_bytes > limits.object_bytes:
        raise LimitError(
            f"a coded block of {side.source.name} is {side.block_bytes} bytes, the largest object is "
            f"{limits.object_bytes} bytes; cut it into more blocks (larger p, q or k)"
        )


async def _store(res: Resources, side: _Side, keys: Sequence[str]) -> tuple[int, float]:
    """Encode and write one operand; return the bytes written and the sum of the squares of its entries."""
    blocks = await asyncio.to_thread(side.blocks)
    copies = {i: source for i in range(len(keys)) if (source := side.operand.source_of(i)) is not None}
    combined = [i for i in range(len(keys)) if i not in copies]
    step = max(1, GROUP_BYTES // side.block_bytes)
    slots = asyncio.Semaphore(WRITES)

    async def put(i: int, block: Array) -> int:
        async with slots:
            parts = await asyncio.to_thread(pack_block, np.ascontiguousarray(block))
            await res.store.put(keys[i], parts)
            return sum(memoryview(part).nbytes for part in parts)

    sizes = await _all(put(i, blocks[source]) for i, source in copies.items())
    for start in range(0, len(combined), step):
        group = combined[start : start + step]
        made = await asyncio.to_thread(side.encode, blocks, coded=group)
        sizes += await _all(put(i, block) for i, block in zip(group, made, strict=True))
    power = await asyncio.to_thread(lambda: math.fsum(float(np.linalg.norm(block)) ** 2 for block in blocks))
    return sum(sizes), power


async def _all(writes: Iterable[Coroutine[Any, Any, int]]) -> list[int]:
    """Await all writes; none is under way any more when one has failed, so that nothing is written after a clean-up."""
    tasks = [asyncio.ensure_future(write) for write in writes]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _job(
    code: MatmulCode,
    left: _Side,
    right: _Side,
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    *,
    power: float,
) -> Job:
    """Make the job; ``power`` is the sum of the squares of the entries of ``B``."""
    rows, columns = left.source.shape[0], right.source.shape[1]
    real = left.source.dtype.kind != "c" and right.source.dtype.kind != "c"

    def blocks(spec: TaskSpec) -> tuple[str, str]:
        i, j = code.operands(spec.slot)
        return left_keys[i], right_keys[j]

    def finish(answer: Array) -> Array:
        whole = code.assemble(answer)[:rows, :columns]
        whole = whole.real if real else whole
        return whole if whole.base is None else np.array(whole, order="C")

    return Job(
        code=code,
        label="A @ B",
        kernel="matmul",
        blocks=blocks,
        shape=(left.rows.b, right.columns.b),
        dtype=np.result_type(left.dtype, right.dtype),
        stored=left.dtype,
        scale=left.largest * math.sqrt(power / columns),
        finish=finish,
    )


async def _remove(res: Resources, keys: Sequence[str]) -> None:
    """Delete the stored blocks; workers that come too late find nothing, and nobody waits for them."""
    await res.discard(keys)
