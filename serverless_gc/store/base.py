"""The store seam: bytes under keys, written once or overwritten, listed by prefix.

The driver uses the asynchronous `Store`; a worker that runs in the driver's process uses `Store.blobs`, a
worker elsewhere opens `Store.url` by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from serverless_gc.store.keys import check_range, part_of
from serverless_gc.types import Buffer

__all__ = ["Blobs", "ObjectInfo", "Store"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of one object. ``modified`` is seconds since the epoch."""

    key: str
    size: int
    modified: float


class Blobs(Protocol):
    """Synchronous access for a worker. Same meaning as the store's own methods."""

    def get(self, key: str) -> Buffer: ...
    def get_range(self, key: str, start: int, stop: int) -> Buffer: ...
    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool: ...
    def exists(self, key: str) -> bool: ...


class Store(ABC):
    """Bytes under keys. Keys are relative to the store's root, use ``/`` and no leading slash."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the store is: ``memory://id``, ``file:///dir`` or ``s3://bucket/prefix``; no secrets."""

    @abstractmethod
    async def get(self, key: str) -> Buffer:
        """Read one object.

        Raises
        ------
        ObjectNotFound
            If there is none.
        StoreError
            If it cannot be read; ``retryable`` says whether trying again makes sense.
        """

    async def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read the bytes of one object from ``start`` up to, not including, ``stop``.

        Raises
        ------
        InputError
            Unless ``0 <= start < stop``.
        ObjectNotFound
            If there is no such object.
        StoreError
            If it ends before ``stop``, or cannot be read.
        """
        check_range(start, stop)
        return part_of(key, await self.get(key), start, stop)

    @abstractmethod
    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object atomically; a sequence of buffers is written as their concatenation.

        Returns
        -------
        bool
            True if written; False if ``if_absent`` and an object was there already (it is left alone).
        """

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object, or None if there is none."""

    @abstractmethod
    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects in batches. Missing ones count as deleted.

        Returns
        -------
        Mapping[str, str]
            Key to reason for each object that could not be deleted; empty when all are gone.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over all objects under ``prefix``, page by page, in key order."""

    def blobs(self) -> Blobs | None:
        """Return synchronous access for workers in this process, or None if they must open ``url``."""
        return None

    async def close(self) -> None:
        """Release connections. Objects stay."""
