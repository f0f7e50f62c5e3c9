"""Parts of objects: what the one suite of stores does not ask."""

import pytest

from serverless_gc.errors import StoreError
from serverless_gc.inject import Faults
from serverless_gc.store import (
    CountingStore,
    FaultyStore,
    LocalStore,
    MemoryStore,
    RetryingStore,
    S3Store,
    StoreRetry,
)


async def test_a_range_that_is_not_inside_is_an_error(tmp_path, s3_bucket):
    s3 = S3Store(s3_bucket[1], endpoint=s3_bucket[0], region="us-east-1", retry=StoreRetry(attempts=1))
    for store in (MemoryStore(), LocalStore(tmp_path), s3):
        await store.put("k", b"12345")
        for start, stop in ((3, 6), (5, 6), (7, 9)):
            with pytest.raises(StoreError):
                await store.get_range("k", start, stop)
        await store.close()


async def test_a_range_of_memory_is_not_copied():
    store, body = MemoryStore(), bytes(1000)
    await store.put("k", body)
    part = await store.get_range("k", 10, 20)
    assert isinstance(part, memoryview)
    assert part.obj is body


async def test_ranges_are_counted_with_their_own_bytes_and_tried_again():
    counting = CountingStore(MemoryStore())
    faulty = FaultyStore(counting, Faults(slow_down=0.5, seed=1))
    store = RetryingStore(faulty, StoreRetry(base=0.0, cap=0.0, attempts=20))
    await store.put("k", bytes(100))
    for start in range(20):
        assert len(await store.get_range("k", start, start + 3)) == 3
    assert (counting.requests["get"], counting.bytes["get"]) == (20, 60)
    assert store.stats.retries == faulty.injected["slow_down"] > 0
