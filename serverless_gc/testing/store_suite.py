"""What every store must do. A test class for an implementation inherits `StoreSuite` and gives a store.

::

    class TestMyStore(StoreSuite):
        def make_store(self):
            return MyStore(...)

Call ``pytest.register_assert_rewrite("serverless_gc.testing.store_suite")`` in ``conftest.py`` for readable failures.
"""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import asyncio
import hashlib
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from serverless_gc.errors import InputError, ObjectNotFound
from serverless_gc.store import Blobs, Store
from serverless_gc.types import Buffer
from serverless_gc.wire import pack_block, unpack_block
from serverless_gc.worker.opening import open_blobs

__all__ = ["ODD_KEYS", "StoreSuite"]

ODD_KEYS = (
    "plain",
    "with space",
    "a+b&c=d?e#f%20g",
    "ünï/cödé/鍵",
    "~tilde/-dash_/.hidden",
    "(par)[br]{cu}!*'\"<>|;:@$,^`",
    "back\\slash",
    "deep/" * 20 + "end",
    "trailing.",
    "UPPER",
    "%2F",
)
"""Names that S3 and file systems both allow, each of which has broken some store."""


@pytest.mark.asyncio
class StoreSuite:
    """Laws of `Store`. Attributes scale the suite to slow backends.

    Attributes
    ----------
    many
        Objects of the listing and deletion tests: more than a page of a thousand.
    big
        Bytes of the largest object.
    writers
        Simultaneous writers of one key.
    overwrites_at_once
        Whether the backend stands simultaneous overwriting of one key (moto does not).
    """

    many: int = 2300
    big: int = 32 * 2**20
    writers: int = 16
    overwrites_at_once: bool = True

    @abstractmethod
    def make_store(self) -> Store:
        """Return a new, empty store."""

    def worker_blobs(self, store: Store) -> Blobs:
        """Return what a worker would use: the store's own synchronous access, or its URL opened."""
        return store.blobs() or open_blobs(store.url)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """Open a store for one test, and empty it afterwards."""
        store = self.make_store()
        try:
            yield store
            await store.delete([info.key async for info in store.list()])
        finally:
            await store.close()

    async def test_what_is_put_is_read(self) -> None:
        async with self.opened() as store:
            assert await store.put("a/b", b"\x00payload\xff") is True
            assert bytes(await store.get("a/b")) == b"\x00payload\xff"

    async def test_a_missing_object_is_an_error_that_names_the_key(self) -> None:
        async with self.opened() as store:
            with pytest.raises(ObjectNotFound, match="no/such") as caught:
                await store.get("no/such")
            assert caught.value.key == "no/such"
            assert not caught.value.retryable
            assert await store.head("no/such") is None

    async def test_ranges(self) -> None:
        async with self.opened() as store:
            body = bytes(range(256)) * 40
            await store.put("k", body)
            for start, stop in ((0, 1), (0, len(body)), (5000, 5003), (len(body) - 1, len(body))):
                assert bytes(await store.get_range("k", start, stop)) == body[start:stop]
            with pytest.raises(ObjectNotFound, match="no/such"):
                await store.get_range("no/such", 0, 1)
            for start, stop in ((1, 1), (-1, 2), (3, 2)):
                with pytest.raises(InputError, match="range"):
                    await store.get_range("k", start, stop)

    async def test_put_replaces_unless_told_otherwise(self) -> None:
        async with self.opened() as store:
            assert await store.put("k", b"one") is True
            assert await store.put("k", b"twotwo") is True
            assert bytes(await store.get("k")) == b"twotwo"
            assert await store.put("k", b"three", if_absent=True) is False
            assert bytes(await store.get("k")) == b"twotwo"

    async def test_head_gives_size_and_time(self) -> None:
        async with self.opened() as store:
            await store.put("k", b"12345")
            info = await store.head("k")
            assert info is not None
            assert (info.key, info.size) == ("k", 5)
            assert info.modified > 1.7e9  # seconds since the epoch, not milliseconds or zero

    async def test_empty_objects(self) -> None:
        async with self.opened() as store:
            assert await store.put("empty", b"", if_absent=True) is True
            assert await store.put("none", [], if_absent=True) is True
            assert await store.put("empty", b"x", if_absent=True) is False
            assert bytes(await store.get("empty")) == b""
            assert bytes(await store.get("none")) == b""
            assert [(i.key, i.size) async for i in store.list()] == [("empty", 0), ("none", 0)]

    async def test_kinds_of_buffers(self) -> None:
        async with self.opened() as store:
            array = np.arange(6, dtype=np.uint8)
            parts: list[Buffer] = [b"ab", bytearray(b"cd"), memoryview(b"ef")[1:], b"", array.data]
            await store.put("parts", parts)
            assert bytes(await store.get("parts")) == b"abcdf" + bytes(range(6))
            for i, part in enumerate(parts):
                await store.put(f"one/{i}", part)
                assert bytes(await store.get(f"one/{i}")) == bytes(part)

    async def test_a_later_change_of_the_buffer_does_not_reach_the_object(self) -> None:
        async with self.opened() as store:
            mine = bytearray(b"before")
            await store.put("k", mine)
            await store.put("view", memoryview(mine))
            mine[:] = b"after!"
            assert bytes(await store.get("k")) == b"before"
            assert bytes(await store.get("view")) == b"before"

    async def test_blocks_survive(self) -> None:
        async with self.opened() as store:
            block = np.random.default_rng(0).standard_normal((37, 11))
            await store.put("blocks/0", pack_block(block))
            read = unpack_block(await store.get("blocks/0"))
            assert isinstance(read, np.ndarray)
            np.testing.assert_array_equal(read, block)

    async def test_odd_key_names(self) -> None:
        async with self.opened() as store:
            for i, key in enumerate(ODD_KEYS):
                assert await store.put(key, str(i).encode(), if_absent=True) is True, key
            for i, key in enumerate(ODD_KEYS):
                assert bytes(await store.get(key)) == str(i).encode(), key
            assert [info.key async for info in store.list()] == sorted(ODD_KEYS)
            assert await store.delete(ODD_KEYS) == {}
            assert [info.key async for info in store.list()] == []

    @pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a/..", "a\0b", "x" * 256, ".tmp/a"])
    async def test_keys_that_no_store_takes(self, key: str) -> None:
        async with self.opened() as store:
            with pytest.raises(InputError, match="key"):
                await store.put(key, b"1")
            with pytest.raises(InputError, match="key"):
                await store.get(key)

    async def test_listing_is_whole_and_in_key_order(self) -> None:
        async with self.opened() as store:
            keys = ["a-b", "a/b", "a/c/2", "a0", "ab", "b", "Z", "é", "a/c-1"]
            for key in keys:
                await store.put(key, key.encode())
            found = [info async for info in store.list()]
            assert [info.key for info in found] == sorted(keys)
            assert [info.size for info in found] == [len(key.encode()) for key in sorted(keys)]

    async def test_prefixes_are_plain_strings(self) -> None:
        async with self.opened() as store:
            for key in ("run-1/a", "run-1/b", "run-10/a", "run-2/a"):
                await store.put(key, b"1")
            assert [i.key async for i in store.list("run-1")] == ["run-1/a", "run-1/b", "run-10/a"]
            assert [i.key async for i in store.list("run-1/")] == ["run-1/a", "run-1/b"]
            assert [i.key async for i in store.list("run-1/a")] == ["run-1/a"]
            assert [i.key async for i in store.list("nothing/")] == []

    async def test_more_than_a_page_is_listed_and_deleted(self) -> None:
        async with self.opened() as store:
            keys = [f"old/{i:05d}" for i in range(self.many)]
            gate = asyncio.Semaphore(16)

            async def write(key: str) -> None:
                async with gate:
                    await store.put(key, b"x")

            await asyncio.gather(*(write(key) for key in keys))
            await store.put("other/run", b"x")
            assert [info.key async for info in store.list("old/")] == keys
            assert await store.delete(keys) == {}
            assert [info.key async for info in store.list()] == ["other/run"]

    async def test_deleting_what_is_not_there_is_fine(self) -> None:
        async with self.opened() as store:
            await store.put("a/b", b"1")
            assert await store.delete(["missing", "a/b", "a/b/c", "missing"]) == {}
            assert await store.delete([]) == {}
            assert await store.head("a/b") is None

    async def test_of_simultaneous_writers_one_wins(self) -> None:
        async with self.opened() as store:
            for round_ in range(5):
                key = f"race/{round_}"
                bodies = [bytes([w]) * 1000 for w in range(self.writers)]
                won = await asyncio.gather(*(store.put(key, body, if_absent=True) for body in bodies))
                assert sum(won) == 1
                assert bytes(await store.get(key)) == bodies[won.index(True)]

    async def test_readers_see_whole_objects(self) -> None:
        async with self.opened() as store:
            if not self.overwrites_at_once:
                pytest.skip("the backend cannot overwrite one key from several writers at once")
            size = 1 << 18
            versions = [bytes([w]) * size for w in range(self.writers)]
            await store.put("k", versions[0])

            async def read() -> bool:
                data = bytes(await store.get("k"))
                return len(data) == size and data.count(data[0]) == size

            _, whole = await asyncio.gather(
                asyncio.gather(*(store.put("k", body) for body in versions)),
                asyncio.gather(*(read() for _ in range(2 * self.writers))),
            )
            assert all(whole)

    async def test_big_objects(self) -> None:
        async with self.opened() as store:
            body = np.random.default_rng(1).integers(0, 256, self.big, dtype=np.uint8)
            await store.put("big", [b"head", body.data])
            data = await store.get("big")
            assert memoryview(data).nbytes == 4 + self.big
            assert hashlib.sha256(data).digest() == hashlib.sha256(b"head" + body.tobytes()).digest()

    async def test_the_workers_face_agrees(self) -> None:
        async with self.opened() as store:
            blobs = await asyncio.to_thread(self.worker_blobs, store)

            def work() -> None:
                assert blobs.exists("w/1") is False
                with pytest.raises(KeyError):
                    blobs.get("w/1")
                assert blobs.put("w/1", [b"from ", bytearray(b"the "), memoryview(b"worker")], if_absent=True) is True
                assert blobs.put("w/1", b"again", if_absent=True) is False
                assert blobs.exists("w/1") is True
                assert bytes(blobs.get("w/1")) == b"from the worker"
                for i, key in enumerate(ODD_KEYS):
                    blobs.put(f"w/odd/{key}", str(i).encode())
                assert bytes(blobs.get("driver/1")) == b"from the driver"
                assert bytes(blobs.get("driver/empty")) == b""

            await store.put("driver/1", b"from the driver")
            await store.put("driver/empty", b"")
            await asyncio.to_thread(work)
            assert bytes(await store.get("w/1")) == b"from the worker"
            assert await store.put("w/1", b"driver", if_absent=True) is False
            assert [i.key async for i in store.list("w/odd/")] == sorted(f"w/odd/{key}" for key in ODD_KEYS)

    async def test_of_workers_in_threads_one_wins(self) -> None:
        async with self.opened() as store:
            blobs = await asyncio.to_thread(self.worker_blobs, store)
            won: list[int] = []
            barrier = threading.Barrier(self.writers)

            def work(i: int) -> None:
                barrier.wait(timeout=30)
                if blobs.put("race", bytes([i]) * 1000, if_absent=True):
                    won.append(i)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(self.writers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert len(won) == 1
            assert bytes(await store.get("race")) == bytes([won[0]]) * 1000
