"""One figure for each promise about speed: a ratio to a bound measured in the same run.

Ceilings are three to four times what two busy cores measured: they notice a change of kind, not of degree.
"""

import asyncio
import sys
import timeit
from functools import partial

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.encode import as_source, scan, store_encoded
from serverless_gc.store import LocalStore

seconds = partial(timeit.timeit, number=1)


def best(function, repeat=5):
    return min(timeit.repeat(function, number=1, repeat=repeat))


@pytest.fixture
def told(capsys, benchmark):
    """Say a ratio, keep it, and hold it below its ceiling."""

    def tell(what, ratio, ceiling):
        benchmark.extra_info.update(ratio=round(ratio, 2), ceiling=ceiling)
        with capsys.disabled():
            sys.stdout.write(f"\n{what}: {ratio:.2f}, ceiling {ceiling}\n")
        assert ratio < ceiling

    return tell


def first_decodable(code, seed=0):
    """Return the messages of a random order up to the one that makes them decodable."""
    tracker, order = code.tracker(), np.random.default_rng(seed).permutation(code.n_messages).tolist()
    return order[: next(count for count, i in enumerate(order, 1) if tracker.add(i))]


@pytest.mark.parametrize(
    ("name", "params", "width", "ceiling"),
    [
        ("polar", {"n_workers": 1024, "k": 512, "systematic": False}, 10_000, 15),
        ("polar", {"n_workers": 64, "k": 48}, 100_000, 12),
        ("product", {"n_workers": 256, "k": 225}, 20_000, 30),
        ("ldpc", {"n_workers": 1024, "k": 768}, 5_000, 45),
    ],
    ids=str,
)
def test_encode_in_copies_of_the_coded_bytes(benchmark, told, name, params, width, ceiling):
    code = get(name, **params)
    blocks = np.random.default_rng(0).standard_normal((code.k, width))
    out, other = np.ones((code.n_messages, width)), np.ones((code.n_messages, width))
    benchmark.pedantic(lambda: code.encode(blocks, out), rounds=5, warmup_rounds=2)
    copy = best(lambda: np.copyto(other, out))
    told(f"{name} encode {params}, in copies of the coded bytes", benchmark.stats.stats.min / copy, ceiling)


def test_mds_encode_in_products_with_the_parity(benchmark, told):
    code, width = get("mds", n_workers=256, k=192), 20_000
    blocks = np.random.default_rng(0).standard_normal((code.k, width))
    out, parity = np.ones((256, width)), np.ones((64, width))
    benchmark.pedantic(lambda: code.encode(blocks, out), rounds=5, warmup_rounds=2)
    bare = best(lambda: np.matmul(code.generator[192:], blocks, out=parity)) + best(
        lambda: np.copyto(out[:192], blocks)
    )
    told("mds encode (256, 192), in bare products and copies", benchmark.stats.stats.min / bare, 4)


@pytest.mark.parametrize(
    ("name", "params", "width", "ceiling"),
    [
        ("polar", {"n_workers": 1024, "k": 768}, 5_000, 150),
        ("polar", {"n_workers": 64, "k": 48}, 50_000, 20),
        ("mds", {"n_workers": 64, "k": 48}, 50_000, 40),
        ("product", {"n_workers": 256, "k": 225}, 20_000, 30),
        ("product", {"n_workers": 1024, "k": 961}, 5_000, 60),
    ],
    ids=str,
)
def test_decode_in_passes_over_the_results(benchmark, told, name, params, width, ceiling):
    """In a pass every result is read and the answer is written, once."""
    code = get(name, **params)
    sent = code.encode(np.random.default_rng(0).standard_normal((code.k, width)))
    ids = first_decodable(code)
    out = np.ones((code.k, width))
    values = {i: sent[i] for i in ids}
    benchmark.pedantic(lambda: code.decode(values, out=out), rounds=5, warmup_rounds=2)
    one_pass = best(lambda: np.copyto(out, sent[: code.k]))
    told(f"{name} decode {params}, in passes", benchmark.stats.stats.min / one_pass, ceiling)


@pytest.mark.parametrize(
    ("name", "params", "ceiling"),
    [
        ("polar", {"n_workers": 1024, "k": 512}, 800),
        ("polar", {"n_workers": 4096, "k": 2048}, 2000),
        ("mds", {"n_workers": 4096, "k": 2048}, 60),
        ("ldpc", {"n_workers": 4096, "k": 3072}, 300),
        ("lt", {"n_workers": 16, "k": 10_000}, 1500),
    ],
    ids=str,
)
def test_tracker_in_additions_to_a_set(benchmark, told, name, params, ceiling):
    """Per arrival, over all arrivals until decodable."""
    code = get(name, **params)
    ids = first_decodable(code)

    def follow(tracker):
        for i in ids:
            tracker.add(i)

    def collect():
        seen = set()
        for i in ids:
            seen.add(i)

    benchmark.pedantic(follow, setup=lambda: ((code.tracker(),), {}), rounds=5, warmup_rounds=1)
    taken = benchmark.stats.stats.min
    told(f"{name} tracker {params}, {1e6 * taken / len(ids):.2f} us each, in set.add", taken / best(collect), ceiling)


@pytest.mark.parametrize("name", ["mds", "polar"])
def test_out_of_core_beside_in_memory(benchmark, told, name, tmp_path):
    """From a file to a directory: at least 60 % of the rate from memory, best of three."""
    matrix = np.random.default_rng(0).standard_normal((48_000, 250))  # 96 MB
    np.save(tmp_path / "x.npy", matrix)
    code, scanned = get(name, n_workers=16, k=12), scan(as_source(matrix))
    numbers = iter(range(100))

    def encode(x):
        store = LocalStore(tmp_path / f"store-{next(numbers)}")
        asyncio.run(store_encoded(x, code, store, "x", scanned=scanned))

    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    encode(matrix)
    inside, outside = [], []
    for _ in range(3):
        inside.append(seconds(lambda: encode(matrix)))
        outside.append(seconds(lambda: encode(mapped)))
    benchmark.pedantic(encode, args=(mapped,), rounds=1)
    told(f"{name}: memory map to local store, in times from memory", min(outside) / min(inside), 1 / 0.6)
