"""How workers come by the operand of a round: inside their tasks, or from one object in the store."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from serverless_gc.errors import LimitError
from serverless_gc.limits import Limits
from serverless_gc.rounds.jobs import Job
from serverless_gc.store.base import Store
from serverless_gc.wire import pack_block

__all__ = ["ENVELOPE", "INLINE_OPERAND", "Operand", "publish_operand"]

INLINE_OPERAND = 32 * 1024
"""Operands of which no worker needs more bytes than this, if the request's limit has room, travel inside each task;
larger ones are stored once and read by key."""

ENVELOPE = 16 * 1024
"""Room for everything in a request or reply but the array."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The operand of a round, where its workers find it.

    Attributes
    ----------
    job
        The round's job.
    key
        Store key, empty if tasks carry what their workers need.
    uploaded
        Bytes that were stored.
    offsets
        Where in the object each class of the job's `Support` begins, and the end.
    """

    job: Job
    key: str = ""
    uploaded: int = 0
    offsets: tuple[int, ...] = ()

    def fields(self, slot: int) -> dict[str, Any]:
        """Return what the task of a slot says of the operand, fields of `serverless_gc.wire.Task`.

        A worker gets the entries that its blocks have columns for, in their order, and no others.
        """
        operand, support = self.job.operand, self.job.support
        if operand is None or support is None:
            return {"operand_key": self.key} if self.key else {"operand": operand}
        message = self.job.code.placement(slot)[0]
        if not self.key:
            return {"operand": operand[support.columns(message, len(operand))]}
        ranges = tuple((self.offsets[first], self.offsets[end]) for first, end in support.runs(message))
        return {"operand_key": self.key, "operand_ranges": ranges}


async def publish_operand(store: Store, limits: Limits, job: Job, key: str) -> Operand:
    """Store the operand of a job under ``key`` if it is too large to travel inside tasks.

    Where workers need parts of it the object holds one frame for each class of columns, so that each worker reads its
    part by one or two ranges, checksums included, and the driver sends the operand once.

    Raises
    ------
    LimitError
        If it is larger than an object may be.
    """
    operand, support = job.operand, job.support
    if operand is None:
        return Operand(job)
    needed = operand.nbytes if support is None else operand[:1].nbytes * support.width(len(operand))
    inline = min(INLINE_OPERAND, limits.request_bytes * 3 // 4 - ENVELOPE)
    if needed <= inline:
        return Operand(job)
    if operand.nbytes > limits.object_bytes:
        raise LimitError(f"the operand has {operand.nbytes} bytes, one object holds at most {limits.object_bytes}")
    pieces = [operand] if support is None else [operand[c :: support.period] for c in range(support.period)]
    frames = [pack_block(piece) for piece in pieces]
    offsets = (0, *accumulate(sum(memoryview(part).nbytes for part in frame) for frame in frames))
    await store.put(key, [part for frame in frames for part in frame])
    return Operand(job, key, offsets[-1], offsets)
