"""What a warm worker keeps, and the keys it does not follow."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serverless_gc.worker.blobs import BlobError, FileBlobs
from serverless_gc.worker.cache import BlockCache, cache_bytes
from serverless_gc.worker.entry import Warm


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans()), max_size=60))
def test_the_cache_is_a_bounded_least_recently_used_table(steps):
    cache, model = BlockCache(20), {}
    for name, size, write in steps:
        key = ("store", str(name))
        if write:
            cache.put(key, np.zeros(size, np.uint8))
            model.pop(key, None)
            model[key] = size
            while sum(model.values()) > 20:
                del model[next(iter(model))]
        else:
            block = cache.get(key)
            assert (None if block is None else block.nbytes) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        assert cache.nbytes == sum(model.values()) <= 20
        assert len(cache) == len(model)


def test_larger_blocks_are_not_kept_and_evict_nothing():
    cache = BlockCache(10)
    cache.put(("s", "a"), np.zeros(10, np.uint8))
    cache.put(("s", "b"), np.zeros(11, np.uint8))
    assert cache.get(("s", "a")) is not None
    assert cache.get(("s", "b")) is None


def test_stores_are_told_apart():
    cache = BlockCache(100)
    cache.put(("s1", "a"), np.zeros(1))
    assert cache.get(("s2", "a")) is None


def test_threads_do_not_spoil_the_count():
    cache = BlockCache(500)

    def work(seed):
        rng = np.random.default_rng(seed)
        for name, size in rng.integers(0, 60, (500, 2)).tolist():
            cache.put(("s", str(name)), np.zeros(size, np.uint8))
            cache.get(("s", str(size)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.nbytes == sum(block.nbytes for block in cache._blocks.values()) <= 500


def test_room_comes_from_the_environment():
    assert cache_bytes({"SERVERLESS_GC_CACHE_MB": "0"}) == 0
    assert cache_bytes({"SERVERLESS_GC_CACHE_MB": "0.5", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128"}) == 2**19
    assert cache_bytes({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024"}) == 256 * 2**20
    assert cache_bytes({}) == 256 * 2**20
    for bad in ("many", "-1", "nan", "inf"):
        with pytest.raises(ValueError, match="SERVERLESS_GC_CACHE_MB must be a number"):
            cache_bytes({"SERVERLESS_GC_CACHE_MB": bad})
    warm = Warm.of(800)
    assert (warm.blocks.max_bytes, warm.operands.max_bytes) == (800, 100)


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "."])
def test_files_outside_the_store_are_not_reached(tmp_path, key):
    blobs = FileBlobs(tmp_path)
    for request in (blobs.get, blobs.exists, lambda k: blobs.put(k, b"")):
        with pytest.raises(BlobError, match="not a key"):
            request(key)
