"""Partitions of a matrix in the store, and the labels and row weights that came with it: each stored once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np

from serverless_gc.encode import Source, StoredParts, array_digest, store_array_parts, store_parts
from serverless_gc.errors import ServerlessGCError
from serverless_gc.observe import Report
from serverless_gc.resources import Owner, Resources
from serverless_gc.types import Array

__all__ = ["PartitionedMatrix"]

_KEPT_COLUMNS = 4
"""Labels and row weights that nobody uses at the moment and that are kept for the next call."""


@dataclass(eq=False, slots=True)
class _Column:
    """Labels or row weights, stored beside the matrix."""

    stored: StoredParts
    users: int = 0


class PartitionedMatrix:
    """One matrix in ``k`` stored partitions, and the labels and weights that came with it, each stored once."""

    def __init__(self, owner: Owner, source: Source, k: int, key: str, dtype: np.dtype[Any]) -> None:
        self.owner = owner
        self.shape = source.shape
        self.k = k
        self.key = key
        self.dtype = dtype
        self.complex = source.dtype.kind == "c"
        self._source: Source | None = source
        self.holders: WeakSet[Any] = WeakSet()
        self._stored: StoredParts | None = None
        self._columns: OrderedDict[str, _Column] = OrderedDict()
        self._unreported = Report(rounds=0)
        self._numbers = itertools.count()
        self._lock = asyncio.Lock()

    async def parts(self) -> StoredParts:
        """Return the stored partitions, storing them if need be."""
        async with self._lock:
            if self._stored is None:
                source = self._source
                if source is None:
                    raise ServerlessGCError("the partitions of this data set were deleted; encode it again")
                res = await self.owner.resources()
                store = store_parts(
                    source,
                    self.k,
                    res.store,
                    f"{self._prefix(res)}/rows",
                    dtype=self.dtype,
                    limits=res.limits,
                    on_progress=res.progress.on_encode if res.progress else None,
                )
                self._stored = await self._timed(store)
                self._source = None  # it is stored: the matrix itself is needed no longer
            return self._stored

    @asynccontextmanager
    async def column(self, values: Array, name: str) -> AsyncIterator[StoredParts]:
        """Lend the stored partitions of labels or weights, storing them if they are new."""
        digest = await asyncio.to_thread(array_digest, values)
        res = await self.owner.resources()
        async with self._lock:
            column = self._columns.get(digest)
            if column is None:
                prefix = f"{self._prefix(res)}/{digest[:16]}-{next(self._numbers)}"
                column = _Column(await self._timed(store_array_parts(values, self.k, res.store, prefix, name)))
                self._columns[digest] = column
            self._columns.move_to_end(digest)
            column.users += 1
        try:
            yield column.stored
        finally:
            column.users -= 1
            res.chore(self._forget(res))

    async def _forget(self, res: Resources) -> None:
        """Delete the columns used longest ago, of those that nobody uses, until a few are left."""
        idle = [digest for digest, column in self._columns.items() if not column.users]
        for digest in idle[: max(0, len(idle) - _KEPT_COLUMNS)]:
            await res.store.delete(self._columns.pop(digest).stored.keys.values())

    async def _timed(self, storing: Coroutine[Any, Any, StoredParts]) -> StoredParts:
        """Store, and keep account of what it cost."""
        res = await self.owner.resources()
        start = time.perf_counter()
        slow_downs = res.store_stats.slow_downs if res.store_stats else 0
        stored = await storing
        self._unreported = self._unreported.merge(
            Report(
                rounds=0,
                bytes_up=stored.nbytes,
                encode_seconds=time.perf_counter() - start,
                slow_downs=(res.store_stats.slow_downs if res.store_stats else 0) - slow_downs,
            )
        )
        return stored

    def reported(self, report: Report) -> Report:
        """Add what storing cost since the last report: it belongs to the call that caused it."""
        unreported, self._unreported = self._unreported, Report(rounds=0)
        return report.merge(unreported)

    @property
    def stored_nnz(self) -> int:
        """Entries of the matrix that are stored."""
        return 0 if self._stored is None else self._stored.stored_nnz

    @property
    def removed(self) -> bool:
        """Whether its partitions were deleted for good."""
        return self._source is None and self._stored is None

    async def remove(self) -> None:
        """Delete everything that is stored."""
        res = await self.owner.resources()
        async with self._lock:
            stored, self._stored, self._source = self._stored, None, None
            columns = [column.stored for column in self._columns.values()]
            self._columns.clear()
        for each in columns if stored is None else [stored, *columns]:
            await res.store.delete(each.keys.values())

    def _prefix(self, res: Resources) -> str:
        return f"{res.prefix}/data/{self.key}"
