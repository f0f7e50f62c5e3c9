"""Partitions: every row in one of them, stored as it is."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from serverless_gc.encode import Parts, array_digest, as_source, store_array_parts, store_parts
from serverless_gc.errors import InputError, LimitError, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store import MemoryStore, StoreWrapper
from serverless_gc.wire import CsrBlock, unpack_block


@given(m=st.integers(1, 200), k=st.integers(1, 50))
def test_every_row_is_in_one_partition_and_sizes_differ_by_one(m, k):
    parts = Parts(m, k)
    ranges = [parts.range(j) for j in range(k)]
    assert [row for lo, hi in ranges for row in range(lo, hi)] == list(range(m))
    sizes = {hi - lo for lo, hi in ranges}
    assert max(sizes) - min(sizes) <= 1
    assert parts.filled == tuple(j for j, (lo, hi) in enumerate(ranges) if hi > lo)
    assert len(parts.filled) == min(m, k)


def test_what_is_no_partition_is_refused():
    with pytest.raises(InputError, match=r"part must be in 0\.\.2, got 3"):
        Parts(5, 3).range(3)
    with pytest.raises(InputError, match="k must be at least 1"):
        Parts(5, 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["dense", "fortran", "integers", "sparse", "complex"])
async def test_stored_partitions_are_the_rows(kind, dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((11, 3)) < 0.5, rng.integers(-9, 9, (11, 3)), 0.0)
    given = {
        "fortran": np.asfortranarray(X),
        "integers": X.astype(np.int8),
        "sparse": sp.csr_array(X),
        "complex": X + 1j,
    }.get(kind, X)
    store, seen = MemoryStore(), []
    stored = await store_parts(as_source(given), 4, store, "a/b", dtype=dtype, on_progress=lambda *n: seen.append(n))
    blocks = [unpack_block(await store.get(stored.keys[j])) for j in range(4)]
    assert all(isinstance(block, CsrBlock) == (kind == "sparse") for block in blocks)
    dense = [
        sp.csr_array((b.data, b.indices, b.indptr), shape=b.shape).toarray() if isinstance(b, CsrBlock) else b
        for b in blocks
    ]
    np.testing.assert_array_equal(np.vstack(dense), given.toarray() if kind == "sparse" else given)
    assert {block.data.dtype if kind == "sparse" else block.dtype for block in blocks} == {stored.dtype}
    assert stored.dtype.itemsize == np.dtype(dtype).itemsize * (2 if kind == "complex" else 1)
    assert stored.stored_nnz == (given.nnz if kind == "sparse" else X.size)
    assert sorted(seen) == [(n, 4) for n in range(1, 5)]
    assert stored.nbytes == sum([info.size async for info in store.list("a/b/")])


async def test_empty_partitions_are_not_stored():
    store = MemoryStore()
    stored = await store_parts(as_source(np.ones((2, 1))), 5, store, "x")
    assert [info.key async for info in store.list("")] == sorted(stored.keys.values())
    assert tuple(stored.keys) == stored.parts.filled == (2, 4)


async def test_labels_of_any_layout():
    store = MemoryStore()
    y = np.arange(20, dtype=">i4").reshape(10, 2)[:, ::-1]
    stored = await store_array_parts(y, 3, store, "y", "y")
    blocks = [unpack_block(await store.get(key)) for key in stored.keys.values()]
    np.testing.assert_array_equal(np.vstack(blocks), y)
    assert array_digest(y) == array_digest(y.copy())
    assert array_digest(y) != array_digest(y + 1)
    assert array_digest(y) != array_digest(y.reshape(5, 4))


async def test_a_partition_larger_than_an_object_is_refused():
    with pytest.raises(LimitError, match=r"partition 0 of X is 3328 bytes, the largest object is 2000 bytes.*larger k"):
        await store_parts(as_source(np.ones((4, 100))), 1, MemoryStore(), "x", limits=Limits(object_bytes=2000))


async def test_after_a_failure_nothing_goes_on_writing():
    class Broken(StoreWrapper):
        async def put(self, key, data, *, if_absent=False):
            if key.endswith("3"):
                raise StoreError("the disk is full", key=key)
            return await super().put(key, data, if_absent=if_absent)

    store = Broken(MemoryStore())
    with pytest.raises(StoreError, match="disk is full"):
        await store_parts(as_source(np.ones((400, 2))), 200, store, "x")
    there = len([info async for info in store.list("")])
    assert there < 200
