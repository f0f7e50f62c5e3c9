"""A store in the driver's memory, for workers in the same process."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from serverless_gc.errors import ObjectNotFound
from serverless_gc.store.base import Blobs, ObjectInfo, Store
from serverless_gc.store.keys import check_key, joined, part_of
from serverless_gc.types import Buffer

__all__ = ["MemoryStore"]


class _Objects:
    """The objects themselves; a reader gets the stored bytes without a copy."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        found = self._objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(f"no object {key!r} in {self._name}", key=key)
        return found[0]

    def get_range(self, key: str, start: int, stop: int) -> memoryview:
        return part_of(key, self.get(key), start, stop)

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        entry = (joined(data), time.time())
        with self._lock:
            if if_absent and key in self._objects:
                return False
            self._objects[check_key(key)] = entry
        return True

    def exists(self, key: str) -> bool:
        return check_key(key) in self._objects

    def head(self, key: str) -> ObjectInfo | None:
        found = self._objects.get(check_key(key))
        return None if found is None else ObjectInfo(key, len(found[0]), found[1])

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._objects.pop(check_key(key), None)

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self._lock:
            found = [(key, entry) for key, entry in self._objects.items() if key.startswith(prefix)]
        return [ObjectInfo(key, len(data), modified) for key, (data, modified) in sorted(found)]


class MemoryStore(Store):
    """Objects in a dictionary. Safe among threads; gone with the object.

    Examples
    --------
    >>> import asyncio
    >>> async def example():
    ...     store = MemoryStore()
    ...     first = await store.put("a", b"1", if_absent=True)
    ...     second = await store.put("a", b"2", if_absent=True)
    ...     return first, second, await store.get("a")
    >>> asyncio.run(example())
    (True, False, b'1')
    """

    def __init__(self) -> None:
        self._url = f"memory://{uuid.uuid4().hex}"
        self._objects = _Objects(self._url)

    @property
    def url(self) -> str:
        """``memory://`` and a name that no other store has."""
        return self._url

    async def get(self, key: str) -> Buffer:
        """Read one object, without a copy."""
        return self._objects.get(key)

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; only a bytes object is kept without a copy."""
        return self._objects.put(key, data, if_absent=if_absent)

    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        return self._objects.head(key)

    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects; never fails."""
        self._objects.delete(keys)
        return {}

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over the objects that are there now."""
        for info in self._objects.list(prefix):
            yield info

    def blobs(self) -> Blobs:
        """Return the same objects for workers in this process."""
        return self._objects
