"""What a task reads: blocks, results of other tasks, the operand; parsed, verified, counted, and kept where it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock, FrameError, Reply, Task, split, unpack_block
from serverless_gc.worker.blobs import Blobs, Buffer
from serverless_gc.worker.cache import BlockCache

__all__ = ["Reads"]


class Reads:
    """The reading side of one attempt.

    Attributes
    ----------
    bytes_read, cache_hits
        Bytes that came from the store, and objects that did not have to.
    """

    def __init__(self, task: Task, blobs: Blobs, blocks: BlockCache, operands: BlockCache) -> None:
        self._task = task
        self._blobs = blobs
        self._blocks = blocks
        self._operands = operands
        self.bytes_read = 0
        self.cache_hits = 0

    def blocks(self) -> list[Block]:
        """Read the task's blocks, and behind them the results that it combines."""
        return [self._block(self._blocks, key) for key in self._task.blocks] + [
            self._result(key) for key in self._task.results
        ]

    def operand(self) -> NDArray[Any] | None:
        """Return the operand: the task's own, an object, or the blocks in some ranges of an object, joined."""
        task = self._task
        if not task.operand_key:
            return task.operand
        if task.operand_ranges:
            pieces = [piece for span in task.operand_ranges for piece in self._pieces(task.operand_key, *span)]
        else:
            pieces = [self._block(self._operands, task.operand_key)]
        dense = [piece for piece in pieces if not isinstance(piece, CsrBlock)]
        if len(dense) < len(pieces):
            raise FrameError(f"operand {task.operand_key!r} is sparse, a dense array is expected", "header")
        return dense[0] if len(dense) == 1 else np.concatenate(dense)

    def _block(self, cache: BlockCache, key: str) -> Block:
        name = (self._task.store, key)
        block = cache.get(name)
        if block is not None:
            self.cache_hits += 1
            return block
        block = _block_of(self._counted(self._blobs.get(key)), key)
        cache.put(name, block)
        return block

    def _pieces(self, key: str, start: int, stop: int) -> list[Block]:
        """Read the blocks in a range of an object; they are for this slot alone, so none is kept."""
        data = self._counted(self._blobs.get_range(key, start, stop))
        if len(data) < stop - start:
            raise FrameError(f"stored object {key!r} is damaged: it ends before byte {stop}", "length")
        return [_block_of(frame, key) for frame in split(data)]

    def _result(self, key: str) -> NDArray[Any]:
        """Read what another task of this round stored."""
        stored = Reply.from_bytes(self._counted(self._blobs.get(key)))
        if (stored.run, stored.round) != (self._task.run, self._task.round) or stored.value is None:
            raise FrameError(f"stored object {key!r} is no result of round {self._task.round}", "header")
        return stored.value

    def _counted(self, data: Buffer) -> Buffer:
        self.bytes_read += len(data)
        return data


def _block_of(frame: Buffer, key: str) -> Block:
    """Parse a block that is in an object, and name the object if it is damaged."""
    try:
        return unpack_block(frame)
    except FrameError as error:
        raise FrameError(f"stored object {key!r} is damaged: {error}", error.reason) from error
