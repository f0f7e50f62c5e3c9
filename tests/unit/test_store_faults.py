"""Wrappers and retries: what is injected is what arrives, and nothing waits in lock-step."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import numpy as np
import pytest

from serverless_gc.errors import InputError, ObjectNotFound, StoreError
from serverless_gc.inject import Faults
from serverless_gc.store import (
    CountingStore,
    FaultyStore,
    LatencyStore,
    LocalStore,
    MemoryStore,
    Retrier,
    RetryingStore,
    S3Store,
    StoreRetry,
    open_store,
)
from serverless_gc.wire import FrameError, pack_block, unpack_block

BLOCK = pack_block(np.arange(50.0).reshape(10, 5))


class Clock:
    """Time passes only while someone waits."""

    def __init__(self):
        self.now = 0.0
        self.waits = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.waits.append(seconds)
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


def retrying(inner, clock, **policy):
    return RetryingStore(inner, retrier=Retrier(StoreRetry(**policy), rng=random.Random(0), sleep=clock.sleep))


async def test_slow_down_is_survived_by_many_at_once():
    """A21: 503 to half of the requests of the first second, 256 writers."""
    clock = Clock()
    faulty = FaultyStore(MemoryStore(), Faults(slow_down=0.5, slow_down_seconds=1.0, seed=7), clock=clock)
    store = retrying(faulty, clock)
    await asyncio.gather(*(store.put(f"k/{i}", b"x") for i in range(256)))
    assert len([i async for i in store.list("k/")]) == 256
    assert store.stats.slow_downs == faulty.injected["slow_down"] > 100
    assert store.stats.retries == store.stats.slow_downs
    assert len(set(clock.waits)) == len(clock.waits)
    first = sorted(clock.waits[:100])
    assert first[10] < 0.015  # spread over the whole [0, 0.05]
    assert first[-10] > 0.035


async def test_injection_repeats_exactly_whatever_the_order():
    async def refused(order, seed=3):
        store = FaultyStore(MemoryStore(), Faults(slow_down=0.5, seed=seed), clock=lambda: 0.0)
        hits = []
        for key in order:
            try:
                await store.put(key, b"x")
            except StoreError as error:
                hits.append((error.key, error.status, error.retryable))
        return sorted(hits)

    keys = [f"k/{i}" for i in range(40)]
    one = await refused(keys)
    assert one == await refused(keys[::-1])
    assert one != await refused(keys, seed=4)
    assert 10 < len(one) < 30
    assert all(hit == (hit[0], 503, True) and hit[0] in keys for hit in one)


async def test_the_store_recovers_after_the_time_given():
    clock = Clock()
    store = FaultyStore(MemoryStore(), Faults(slow_down=1.0, slow_down_seconds=2.0), clock=clock)
    clock.now = 100.0
    for now in (100.0, 101.9):
        clock.now = now
        with pytest.raises(StoreError, match="503 SlowDown"):
            await store.put("a", b"")
    clock.now = 102.0
    assert await store.put("a", b"")


@pytest.mark.parametrize("how", ["flip", "prefix", "truncate"])
async def test_corruption_reaches_both_faces_and_only_the_blocks_named(how):
    store = FaultyStore(MemoryStore(), Faults(corrupt=[7], corrupt_how=how, seed=1))
    for key in ("run/rows/00007", "run/columns/00008", "run/results/7"):
        await store.put(key, BLOCK)
    for face in (store.get, None):
        for key in ("run/columns/00008", "run/results/7"):
            data = await face(key) if face else store.blobs().get(key)
            np.testing.assert_array_equal(unpack_block(data), np.arange(50.0).reshape(10, 5))
        data = await face("run/rows/00007") if face else store.blobs().get("run/rows/00007")
        with pytest.raises(FrameError):
            unpack_block(data)
    np.testing.assert_array_equal(unpack_block(await store.inner.get("run/rows/00007"))[0], np.arange(5.0))
    assert store.injected["corrupt"] == 2


async def test_retries_are_bounded_and_only_for_what_may_pass():
    clock = Clock()
    store = retrying(FaultyStore(MemoryStore(), Faults(slow_down=1.0), clock=lambda: 0.0), clock, attempts=5)
    with pytest.raises(StoreError, match="503"):
        await store.get("k")
    assert (len(clock.waits), store.stats.retries, store.stats.slow_downs) == (4, 4, 5)
    counting = CountingStore(MemoryStore())
    with pytest.raises(ObjectNotFound):
        await retrying(counting, clock).get("k")
    assert counting.requests["get"] == 1


async def test_waits_grow_to_the_cap():
    clock = Clock()

    class Top(random.Random):
        def uniform(self, low, high):
            assert low == 0.0
            return high

    faulty = FaultyStore(MemoryStore(), Faults(slow_down=1.0), clock=lambda: 0.0)
    retrier = Retrier(StoreRetry(attempts=6, base=0.1, cap=0.5), rng=Top(), sleep=clock.sleep)
    with pytest.raises(StoreError):
        await RetryingStore(faulty, retrier=retrier).head("k")
    assert clock.waits == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


async def test_counts_by_operation_on_both_faces():
    store = CountingStore(MemoryStore())
    await store.put("a", [b"123", b"45"])
    await store.get("a")
    await store.head("a")
    store.blobs().put("b", b"1234567")
    store.blobs().get("b")
    store.blobs().exists("b")
    assert [i.key async for i in store.list()] == ["a", "b"]
    await store.delete(["a", "b"])
    assert store.requests == {"put": 2, "get": 2, "head": 2, "list": 1, "delete": 1}
    assert (store.bytes["put"], store.bytes["get"]) == (12, 12)


async def test_latency_may_depend_on_the_request():
    asked = []

    def seconds(operation, key, size):
        asked.append((operation, key, size))
        return 0.0

    store = LatencyStore(MemoryStore(), seconds)
    await store.put("a", [b"12", b"3"])
    await store.get("a")
    store.blobs().exists("a")
    assert asked == [("put", "a", 3), ("get", "a", 0), ("head", "a", 0)]
    with pytest.raises(InputError, match="seconds must be at least 0"):
        LatencyStore(MemoryStore(), -1.0)


@pytest.mark.parametrize("bad", [{"attempts": 0}, {"base": -1.0}, {"base": 3.0, "cap": 1.0}])
def test_retry_policies_that_make_no_sense(bad):
    with pytest.raises(InputError):
        StoreRetry(**bad)


def test_urls_open_the_store_they_name(tmp_path):
    root = tmp_path / "a b%20c" / "ü"
    assert open_store(LocalStore(root).url).url == LocalStore(root).url
    assert isinstance(open_store("memory://"), MemoryStore)
    s3 = S3Store("bucket", "p/q r", region="eu-west-1", endpoint="http://127.0.0.1:5")
    again = open_store(s3.url, concurrency=3)
    assert isinstance(again, S3Store)
    assert again.url == s3.url == "s3://bucket/p/q%20r?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A5"
    for bad in ("memory://abc", "file:relative", "file://host/dir", "s3:///p", "s3://b/p?secret=1", "http://x", ""):
        with pytest.raises(InputError, match="URL"):
            open_store(bad)
    with pytest.raises(InputError, match="only s3:// stores take options"):
        open_store("memory://", concurrency=3)


@pytest.mark.parametrize(
    "bad",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"prefix": "/p"},
        {"prefix": "p/"},
        {"endpoint": "http://user:pw@h"},
        {"endpoint": "h:1"},
        {"concurrency": 0},
    ],
)
def test_s3_parameters_that_make_no_sense(bad):
    with pytest.raises(InputError):
        S3Store(**{"bucket": "b", **bad})


async def test_a_key_cannot_be_another_keys_folder_in_a_directory(tmp_path):
    store = LocalStore(tmp_path)
    await store.put("a/b", b"1")
    with pytest.raises(StoreError, match="cannot write 'a'"):
        await store.put("a", b"2", if_absent=True)
    with pytest.raises(StoreError, match="cannot write 'a/b/c'"):
        await store.put("a/b/c", b"2")
    assert [i.key async for i in store.list()] == ["a/b"]
    assert list((tmp_path / ".tmp").iterdir()) == []


async def test_deleting_leaves_no_empty_folders(tmp_path):
    store = LocalStore(tmp_path)
    await store.put("run/blocks/1", b"")
    await store.put("run/x", b"")
    await store.delete(["run/blocks/1"])
    assert not (tmp_path / "run" / "blocks").exists()
    await store.delete(["run/x"])
    assert not (tmp_path / "run").exists()


WRITER = """
import asyncio, sys
from serverless_gc.store import LocalStore
from serverless_gc.worker.opening import open_blobs
store = LocalStore(sys.argv[1])
blobs = open_blobs(store.url)
sys.stdin.readline()
won = [blobs.put(f"race/{i}", sys.argv[2].encode() * 1000, if_absent=True) for i in range(200)]
print(sum(won))
"""


def test_of_writers_in_several_processes_one_wins_each_key(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name], stdin=-1, stdout=-1, text=True, env={"PYTHONPATH": "."}
        )
        for name in "abc"
    ]
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    won = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    assert sum(won) == 200
    blobs = LocalStore(tmp_path).blobs()
    bodies = [blobs.get(f"race/{i}") for i in range(200)]
    assert [sum(body == name.encode() * 1000 for body in bodies) for name in "abc"] == won
