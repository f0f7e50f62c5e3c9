"""Sums over nodes through a store: right, equal on all nodes to the last bit, and at the price that was said."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.errors import CorruptObject, InputError
from serverless_gc.gossip import driver_reduce, one_peer_gossip, ring_reduce, scatter_reduce
from serverless_gc.store import CountingStore, LocalStore, MemoryStore, S3Store
from serverless_gc.topologies import OnePeerExponential

REDUCTIONS = [driver_reduce, scatter_reduce, ring_reduce]


@pytest.mark.parametrize(
    ("reduce", "puts", "gets", "up", "down"),
    [
        (driver_reduce, 9, 16, 8 + 1, 8 + 8),
        (scatter_reduce, 16, 128, 8 * (1 + 1 / 8), 8 * 2),
        (ring_reduce, 112, 112, 8 * 2 * 7 / 8, 8 * 2 * 7 / 8),
        (one_peer_gossip, 8, 8, 8, 8),
    ],
)
async def test_requests_and_bytes_of_eight_nodes(reduce, puts, gets, up, down):
    store, size = CountingStore(MemoryStore()), 64_000
    await reduce(store, "r", np.ones((8, size)))
    assert (store.requests["put"], store.requests["get"]) == (puts, gets)
    assert set(store.requests) == {"put", "get"}
    assert store.bytes["put"] == pytest.approx(up * size * 8, rel=0.01)  # headers are the rest
    assert store.bytes["get"] == pytest.approx(down * size * 8, rel=0.01)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 6),
    shape=st.lists(st.integers(0, 5), min_size=0, max_size=2).map(tuple),
    dtype=st.sampled_from(["f8", "f4", "c16", "i2"]),
    seed=st.integers(0, 99),
)
async def test_all_nodes_get_the_sum(reduce, n, shape, dtype, seed):
    rng = np.random.default_rng(seed)
    vectors = (100 * rng.standard_normal((n, *shape))).astype(dtype)
    sums = await reduce(MemoryStore(), "r", list(vectors))
    assert len(sums) == n
    expected = vectors.sum(axis=0, dtype=np.result_type(vectors.dtype, np.float32))
    for found in sums:
        assert found.shape == shape
        assert found.dtype == expected.dtype
        assert found.tobytes() == sums[0].tobytes()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3 if dtype == "f4" else 1e-9)


@pytest.mark.parametrize("n", [2, 8])
async def test_one_peer_rounds_end_at_the_mean(n):
    start = np.random.default_rng(0).standard_normal((n, 5))
    store, vectors = MemoryStore(), list(start)
    for k in range(n.bit_length() - 1):
        mixed = await one_peer_gossip(store, "r", vectors, k)
        np.testing.assert_allclose(mixed, OnePeerExponential(n).matrix(k) @ vectors, rtol=0, atol=1e-15)
        vectors = mixed
    np.testing.assert_allclose(vectors, np.tile(start.mean(axis=0), (n, 1)), rtol=0, atol=1e-14)
    assert (await one_peer_gossip(store, "alone", [[1.0]]))[0].tolist() == [1.0]


@pytest.mark.parametrize("reduce", [*REDUCTIONS, one_peer_gossip])
async def test_on_files_and_on_s3(reduce, tmp_path, s3_bucket):
    vectors = np.random.default_rng(1).standard_normal((3, 50))
    expected = await reduce(MemoryStore(), "r", vectors)
    s3 = S3Store(s3_bucket[1], "base", endpoint=s3_bucket[0], region="us-east-1")
    for store in (LocalStore(tmp_path), s3):
        np.testing.assert_array_equal(await reduce(store, "r", vectors), expected)
        await store.close()


@pytest.mark.parametrize("reduce", REDUCTIONS)
async def test_damaged_objects_are_refused(reduce):
    class Damaging(MemoryStore):
        async def get(self, key):
            raw = bytearray(await super().get(key))
            raw[-1] ^= 1
            return bytes(raw)

    with pytest.raises(CorruptObject, match="damaged") as caught:
        await reduce(Damaging(), "r", np.ones((3, 9)))
    assert caught.value.key.startswith("r/")


@pytest.mark.parametrize("reduce", [*REDUCTIONS, one_peer_gossip])
async def test_vectors_must_fit(reduce):
    with pytest.raises(InputError, match="vectors must hold one array per node, got none"):
        await reduce(MemoryStore(), "r", [])
    with pytest.raises(InputError, match=r"vectors must all have one shape, got \(2,\), \(3,\)"):
        await reduce(MemoryStore(), "r", [np.ones(3), np.ones(2)])
