"""Writing the objects of one data set, and looking whether those that should be there are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from serverless_gc.errors import ObjectNotFound
from serverless_gc.store.base import Store
from serverless_gc.types import Buffer
from serverless_gc.wire import STAMP_BYTES, stamp

__all__ = ["Uploads", "check_objects"]

_CONCURRENCY = 64


class Uploads:
    """Writes frames, and passes over those that are there already.

    Parameters
    ----------
    store
        Where to write.
    there
        Sizes of the objects that may be what is to be written, by key; see `resumed`.

    Attributes
    ----------
    sizes, stamps
        Of each object so far, by key.
    sent
        Bytes written.
    """

    def __init__(self, store: Store, there: Mapping[str, int] | None = None) -> None:
        self._store = store
        self._there = there or {}
        self.sizes: dict[str, int] = {}
        self.stamps: dict[str, str] = {}
        self.sent = 0

    @classmethod
    async def resumed(cls, store: Store, prefix: str) -> Uploads:
        """Take over what was written under a prefix before; a stopped upload goes on where it was."""
        return cls(store, {info.key: info.size async for info in store.list(f"{prefix}/")})

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Write one frame, given as its head and its arrays, unless the store has it."""
        size = sum(memoryview(part).nbytes for part in parts)
        mark = stamp(parts[0])
        if self._there.get(key) != size or await _stamp_of(self._store, key) != mark:
            await self._store.put(key, parts)
            self.sent += size
        self.sizes[key], self.stamps[key] = size, mark


async def check_objects(store: Store, prefix: str, sizes: Mapping[str, int], stamps: Mapping[str, str]) -> None:
    """Look whether the objects under a prefix are those that a manifest names.

    Parameters
    ----------
    store, prefix
        Where they are.
    sizes, stamps
        What they should be, by key; stamps of those whose first bytes are to be read.

    Raises
    ------
    ObjectNotFound
        If one is missing, of another size or with another stamp.
    """
    there = {info.key: info.size async for info in store.list(prefix)}
    wrong = [key for key, size in sizes.items() if there.get(key) != size]
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def look(key: str, mark: str) -> None:
        async with slots:
            if await _stamp_of(store, key) != mark:
                wrong.append(key)

    if not wrong:
        await asyncio.gather(*(look(key, mark) for key, mark in stamps.items()))
    if wrong:
        raise ObjectNotFound(
            f"{len(wrong)} of {len(sizes)} objects of the encoding under {prefix} are missing or not those that were "
            f"stored, the first is {min(wrong)}; encode again",
            key=min(wrong),
        )


async def _stamp_of(store: Store, key: str) -> str:
    """Return the stamp of a frame; empty if it is not there any more."""
    try:
        return stamp(await store.get_range(key, 0, STAMP_BYTES))
    except ObjectNotFound:
        return ""
