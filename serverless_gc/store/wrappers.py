"""Stores around a store: count requests, add latency, inject faults, try again.

Each wraps the asynchronous face and the workers' `blobs`, so that what is injected reaches both sides.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from serverless_gc.errors import InputError, StoreError
from serverless_gc.inject import Faults, draw
from serverless_gc.store.base import Blobs, ObjectInfo, Store
from serverless_gc.store.keys import parts_of
from serverless_gc.store.retry import Retrier, StoreRetry, StoreStats
from serverless_gc.types import Buffer

__all__ = ["CountingStore", "FaultyStore", "LatencyStore", "RetryingStore", "StoreWrapper", "message_of"]


def _size(data: Buffer | Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in parts_of(data))


class StoreWrapper(Store):
    """Passes everything on. Subclasses change ``_before`` (each request) and ``_after_get`` (what is read)."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self.inner.url

    def _before(self, operation: str, key: str, size: int) -> float:  # noqa: ARG002 - for subclasses
        """Act on a request: raise, or return the seconds to wait first. Called from any thread."""
        return 0.0

    def _after_get(self, key: str, data: Buffer) -> Buffer:  # noqa: ARG002 - for subclasses
        """Return what a reader is given. Called from any thread."""
        return data

    async def _wait(self, operation: str, key: str, size: int = 0) -> None:
        seconds = self._before(operation, key, size)
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def get(self, key: str) -> Buffer:
        """Read one object."""
        await self._wait("get", key)
        return self._after_get(key, await self.inner.get(key))

    async def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read a part of one object; a request like any other read."""
        await self._wait("get", key)
        return self._after_get(key, await self.inner.get_range(key, start, stop))

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object."""
        await self._wait("put", key, _size(data))
        return await self.inner.put(key, data, if_absent=if_absent)

    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        await self._wait("head", key)
        return await self.inner.head(key)

    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects."""
        names = list(keys)
        await self._wait("delete", names[0] if names else "")
        return await self.inner.delete(names)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over objects."""
        await self._wait("list", prefix)
        async for info in self.inner.list(prefix):
            yield info

    def blobs(self) -> Blobs | None:
        """Return the inner store's synchronous access, wrapped alike."""
        inner = self.inner.blobs()
        return None if inner is None else _WrappedBlobs(self, inner)

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()


class _WrappedBlobs:
    def __init__(self, wrapper: StoreWrapper, inner: Blobs) -> None:
        self._wrapper = wrapper
        self._inner = inner

    def _wait(self, operation: str, key: str, size: int = 0) -> None:
        seconds = self._wrapper._before(operation, key, size)  # noqa: SLF001 - the wrapper's own other face
        if seconds > 0:
            time.sleep(seconds)

    def get(self, key: str) -> Buffer:
        self._wait("get", key)
        return self._wrapper._after_get(key, self._inner.get(key))  # noqa: SLF001 - as above

    def get_range(self, key: str, start: int, stop: int) -> Buffer:
        self._wait("get", key)
        return self._wrapper._after_get(key, self._inner.get_range(key, start, stop))  # noqa: SLF001 - as above

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        self._wait("put", key, _size(data))
        return self._inner.put(key, data, if_absent=if_absent)

    def exists(self, key: str) -> bool:
        self._wait("head", key)
        return self._inner.exists(key)


class CountingStore(StoreWrapper):
    """Counts requests and bytes by operation (``get``, ``put``, ``head``, ``delete``, ``list``).

    Examples
    --------
    >>> from serverless_gc.store import MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> asyncio.run(store.put("a", [b"12", b"3"]))
    True
    >>> store.requests["put"], store.bytes["put"]
    (1, 3)
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _before(self, operation: str, key: str, size: int) -> float:  # noqa: ARG002 - counts do not look at the key
        with self._lock:
            self.requests[operation] += 1
            self.bytes[operation] += size
        return 0.0

    def _after_get(self, key: str, data: Buffer) -> Buffer:  # noqa: ARG002 - as above
        with self._lock:
            self.bytes["get"] += memoryview(data).nbytes
        return data


class LatencyStore(StoreWrapper):
    """Adds a wait before each request.

    Parameters
    ----------
    inner
        The store.
    seconds
        How long: a number, or a function of operation, key and size in bytes.
    """

    def __init__(self, inner: Store, seconds: float | Callable[[str, str, int], float]) -> None:
        super().__init__(inner)
        if not callable(seconds) and not seconds >= 0:
            raise InputError(f"seconds must be at least 0, got {seconds}")
        self._seconds = seconds

    def _before(self, operation: str, key: str, size: int) -> float:
        return self._seconds(operation, key, size) if callable(self._seconds) else self._seconds


_MESSAGE = re.compile(r"(?:^|/)(?:rows|columns|blocks)/([0-9]+)$")


def message_of(key: str) -> int | None:
    """Return the message id of a block's key, a number in a folder ``rows``, ``columns`` or ``blocks``; else None.

    Examples
    --------
    >>> message_of("run/rows/00007"), message_of("blocks/12"), message_of("run/rows/manifest"), message_of("results/3")
    (7, 12, None, None)
    """
    match = _MESSAGE.search(key)
    return int(match.group(1)) if match else None


class FaultyStore(StoreWrapper):
    """Answers 503 and damages blocks, as `Faults` says.

    The draws depend on the seed, the operation, the key and how often that was asked before, so a run repeats
    exactly whatever the order of its requests.

    Parameters
    ----------
    inner
        The store.
    faults
        ``slow_down``, ``slow_down_seconds``, ``corrupt`` and ``corrupt_how`` are looked at.
    clock
        Seconds that only go forward.
    message_of
        Gives the message id of a block's key, None for other objects.
    """

    def __init__(
        self,
        inner: Store,
        faults: Faults,
        *,
        clock: Callable[[], float] = time.monotonic,
        message_of: Callable[[str], int | None] = message_of,
    ) -> None:
        super().__init__(inner)
        self.faults = faults
        self.injected: Counter[str] = Counter()
        self._clock = clock
        self._message_of = message_of
        self._first: float | None = None
        self._asked: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def _before(self, operation: str, key: str, size: int) -> float:  # noqa: ARG002 - size does not matter
        faults = self.faults
        with self._lock:
            now = self._clock()
            if self._first is None:
                self._first = now
            self._asked[operation, key] += 1
            identity = (operation, key, self._asked[operation, key])
            slow = now - self._first < faults.slow_down_seconds
            if not slow or draw(faults.seed, "slow_down", *identity) >= faults.slow_down:
                return 0.0
            self.injected["slow_down"] += 1
        raise StoreError(f"503 SlowDown (injected) to {operation} {key!r}", key=key, retryable=True, status=503)

    def _after_get(self, key: str, data: Buffer) -> Buffer:
        if not self.faults.corrupt or self._message_of(key) not in self.faults.corrupt:
            return data
        with self._lock:
            self.injected["corrupt"] += 1
        raw = bytes(data)
        if self.faults.corrupt_how == "prefix":
            return b"4000;chunk-signature\r\n" + raw
        if self.faults.corrupt_how == "truncate":
            return raw[:-8]
        bit = int(draw(self.faults.seed, "flip", key) * 8 * len(raw))
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        return bytes(damaged)


class RetryingStore(StoreWrapper):
    """Repeats the driver's requests that fail for the moment; workers repeat their own.

    Parameters
    ----------
    inner
        The store.
    policy
        How often and how long.
    retrier
        Instead of a policy: where counts, jitter and waiting come from.

    Examples
    --------
    >>> from serverless_gc.store import MemoryStore
    >>> faulty = FaultyStore(MemoryStore(), Faults(slow_down=0.5, seed=3))
    >>> store = RetryingStore(faulty, StoreRetry(base=0.0, cap=0.0))
    >>> asyncio.run(store.put("a", b"1"))
    True
    >>> store.stats.retries == faulty.injected["slow_down"]
    True
    """

    def __init__(self, inner: Store, policy: StoreRetry | None = None, *, retrier: Retrier | None = None) -> None:
        super().__init__(inner)
        self._retrier = retrier or Retrier(policy or StoreRetry())

    @property
    def stats(self) -> StoreStats:
        """Repeated requests and answers 503 so far."""
        return self._retrier.stats

    async def get(self, key: str) -> Buffer:
        """Read one object."""
        return await self._retrier.run(lambda: self.inner.get(key), "read")

    async def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read a part of one object."""
        return await self._retrier.run(lambda: self.inner.get_range(key, start, stop), "read")

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object."""
        return await self._retrier.run(lambda: self.inner.put(key, data, if_absent=if_absent), "write")

    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        return await self._retrier.run(lambda: self.inner.head(key), "read")

    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects."""
        names = list(keys)
        return await self._retrier.run(lambda: self.inner.delete(names), "free")

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over objects; a listing that breaks is begun again before anything is given out."""

        async def whole() -> tuple[ObjectInfo, ...]:
            return tuple([info async for info in self.inner.list(prefix)])

        for info in await self._retrier.run(whole, "write"):
            yield info

    def blobs(self) -> Blobs | None:
        """Return the inner store's synchronous access as it is."""
        return self.inner.blobs()
