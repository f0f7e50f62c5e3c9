"""Partitions of a matrix in the store, and the labels and row weights that came with it: each stored once."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

import numpy as np

from serverless_gc.encode import Source, StoredParts, array_digest, store_array_parts, store_parts
from serverless_gc.errors import ServerlessGCError
from serverless_gc.observe import Report
from serverless_gc.rounds.resources import Location, Owner, Resources
from serverless_gc.types import Array

__all__ = ["LABELS", "PartitionedMatrix"]

LABELS = "y"
"""What the column of labels is called."""

_KEPT_COLUMNS = 4
"""Labels and row weights that nobody uses at the moment and that are kept for the next call."""


@dataclass(eq=False, slots=True)
class _Column:
    """Labels or row weights, stored beside the matrix; kept ones stay."""

    stored: StoredParts
    kept: bool
    users: int = 0


class PartitionedMatrix:
    """One matrix in ``k`` stored partitions, and the labels and weights that came with it, each stored once.

    ``content`` is the matrix, or what is stored of one that is kept. Labels of a kept set are kept with it, weights are
    not: they may be others in each call.
    """

    def __init__(
        self, owner: Owner, content: Source | StoredParts, k: int, location: Location, dtype: np.dtype[Any]
    ) -> None:
        self.owner = owner
        self.k = k
        self.location = location
        self.dtype = dtype
        self.complex = content.dtype.kind == "c"
        self._source: Source | None = None
        self._stored: StoredParts | None = None
        self.shape: tuple[int, int]
        if isinstance(content, Source):
            self._source, self.shape = content, content.shape
        else:
            self._stored, self.shape = content, (content.parts.m, content.row_shape[0])
        self.holders: WeakSet[Any] = WeakSet()
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
                    raise ServerlessGCError("the partitions of this data set were let go or deleted; encode it again")
                res = await self.owner.resources()
                store = store_parts(
                    source,
                    self.k,
                    res.store,
                    f"{self.location.prefix(res)}/rows",
                    dtype=self.dtype,
                    limits=res.limits,
                    on_progress=res.progress.on_encode if res.progress else None,
                    resume=bool(self.location.name),
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
                kept = bool(self.location.name) and name == LABELS
                prefix = f"{self.location.prefix(res)}/labels-{digest[:32]}"
                if not kept:
                    prefix = f"{self._scratch(res)}/{digest[:16]}-{next(self._numbers)}"
                storing = store_array_parts(values, self.k, res.store, prefix, name, resume=kept)
                column = self._columns[digest] = _Column(await self._timed(storing), kept)
            self._columns.move_to_end(digest)
            column.users += 1
        try:
            yield column.stored
        finally:
            column.users -= 1
            res.chore(self._forget(res))

    async def _forget(self, res: Resources) -> None:
        """Delete the columns used longest ago, of those that nobody uses, until a few are left."""
        idle = [digest for digest, column in self._columns.items() if not column.users and not column.kept]
        for digest in idle[: max(0, len(idle) - _KEPT_COLUMNS)]:
            await res.discard(self._columns.pop(digest).stored.keys.values())

    async def _timed(self, storing: Coroutine[Any, Any, StoredParts]) -> StoredParts:
        """Store, and keep account of what it cost."""
        res = await self.owner.resources()
        stored, cost = await res.timed(storing)
        self._unreported = self._unreported.merge(cost)
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
        """Whether its partitions were deleted, or let go, for good."""
        return self._source is None and self._stored is None

    async def remove(self) -> None:
        """Delete everything that is stored; what is kept is let go."""
        res = await self.owner.resources()
        async with self._lock:
            stored, self._stored, self._source = self._stored, None, None
            columns = [column.stored for column in self._columns.values() if not column.kept]
            self._columns.clear()
        for each in columns if stored is None or self.location.name else [stored, *columns]:
            await res.discard(each.keys.values())

    def _scratch(self, res: Resources) -> str:
        return replace(self.location, name="").prefix(res)
