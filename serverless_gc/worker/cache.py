"""What a warm worker remembers: parsed, verified blocks up to a number of bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from serverless_gc.wire import Block

__all__ = ["BlockCache", "cache_bytes"]


def cache_bytes(environ: Mapping[str, str] = os.environ) -> int:
    """Return the bytes to keep: ``SERVERLESS_GC_CACHE_MB``, else a quarter of the function's memory, else 256 MiB.

    Examples
    --------
    >>> cache_bytes({"SERVERLESS_GC_CACHE_MB": "64"}) == 64 * 2**20
    True
    >>> cache_bytes({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "2048"}) == 512 * 2**20
    True
    """
    text = environ.get("SERVERLESS_GC_CACHE_MB", "")
    if text:
        try:
            megabytes = float(text)
        except ValueError:
            megabytes = -1.0
        if not 0 <= megabytes < float("inf"):
            raise ValueError(f"SERVERLESS_GC_CACHE_MB must be a number of MiB, at least 0, got {text!r}")
        return int(megabytes * 2**20)
    return int(environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024")) * 2**20 // 4


class BlockCache:
    """The least recently used blocks go first. Safe among threads.

    Keys are (store URL, object key). Blocks are written once under their key, so an entry never goes stale.

    Parameters
    ----------
    max_bytes
        Most bytes kept; a larger block is not kept at all, and 0 keeps nothing.

    Examples
    --------
    >>> import numpy as np
    >>> cache = BlockCache(100)
    >>> cache.put(("s", "a"), np.zeros(8)); cache.put(("s", "b"), np.zeros(8))
    >>> cache.get(("s", "a")) is None, cache.nbytes
    (True, 64)
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._blocks: OrderedDict[tuple[str, str], Block] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, key: tuple[str, str]) -> Block | None:
        """Return the block, or None if it is not here."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: tuple[str, str], block: Block) -> None:
        """Keep a block, dropping others as needed."""
        if block.nbytes > self.max_bytes:
            return
        with self._lock:
            old = self._blocks.pop(key, None)
            self.nbytes += block.nbytes - (0 if old is None else old.nbytes)
            self._blocks[key] = block
            while self.nbytes > self.max_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self.nbytes -= dropped.nbytes

    def forget(self, keys: Iterable[tuple[str, str]]) -> None:
        """Drop blocks that nobody will ask for again; those that are not here are passed over."""
        with self._lock:
            for key in keys:
                dropped = self._blocks.pop(key, None)
                self.nbytes -= 0 if dropped is None else dropped.nbytes
