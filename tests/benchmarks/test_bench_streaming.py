"""From a matrix to coded blocks: rates, each beside a bound measured in the same run.

``ratio_to_copy`` is time divided by that of one ``np.copyto`` of the matrix on one thread.
"""

import asyncio
import hashlib
import os
import tracemalloc

import numpy as np
import pytest
from measured import fastest, ratio

from serverless_gc.codes.base import Code
from serverless_gc.encode import Partition, as_source, encode_rows, scan, store_encoded
from serverless_gc.errors import ObjectNotFound
from serverless_gc.store.base import Store
from serverless_gc.wire import pack_block

M, P = 96_000, 250  # 192 MB
N, K = 64, 48


class Systematic(Code):
    """Dense random parity below the identity: what an MDS code costs."""

    name = "bench-systematic"

    def _build_generator(self):
        parity = np.random.default_rng(0).standard_normal((self.n_workers - self.k, self.k))
        return np.vstack([np.eye(self.k), parity])

    def tracker(self):
        raise NotImplementedError

    def decode(self, values, *, out=None, tolerance=None):
        raise NotImplementedError


class Discard(Store):
    """Takes every object and keeps none."""

    url = "memory://discard"

    async def get(self, key):
        raise ObjectNotFound(key, key=key)

    async def put(self, key, data, *, if_absent=False):
        return bool(key and data) or if_absent

    async def head(self, key):
        raise ObjectNotFound(key, key=key)

    async def delete(self, keys):
        return dict.fromkeys(keys, "kept nothing")

    async def list(self, prefix=""):
        for key in (prefix,)[:0]:
            yield key


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).standard_normal((M, P))


def copy_seconds(matrix):
    out = np.empty_like(matrix)
    out.fill(0)  # the pages are there
    return fastest(lambda: np.copyto(out, matrix), 3)


def run(benchmark, job, nbytes, **bounds):
    """Measure a job and note its rate and its ratio to each bound (in seconds)."""
    benchmark.pedantic(job, rounds=3, warmup_rounds=1)
    seconds = benchmark.stats.stats.min
    benchmark.extra_info["GB_per_s"] = round(nbytes / seconds / 1e9, 2)
    for name, bound in bounds.items():
        benchmark.extra_info[name] = round(seconds / bound, 2)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("threads", [1, 2])
def test_bench_fingerprint_and_finite_check(benchmark, matrix, layout, threads):
    source = as_source(np.asarray(matrix, order=layout))
    digest = fastest(lambda: hashlib.sha256(matrix.data).digest())
    run(benchmark, lambda: scan(source, threads=threads), matrix.nbytes, ratio_to_bare_sha256_one_thread=digest)


@pytest.mark.parametrize(("layout", "axis"), [("C", 0), ("C", 1), ("F", 0), ("F", 1)])
def test_bench_encode_systematic(benchmark, matrix, layout, axis):
    source = as_source(np.asarray(matrix, order=layout))
    code, scanned = Systematic(N, K), scan(source)
    blocks = Partition(M, K).split(matrix).reshape(K, -1)
    parity, out = code.generator[K:], np.empty((N - K, blocks.shape[1]))
    product = fastest(lambda: np.matmul(parity, blocks, out=out))

    def encode():
        for _ in encode_rows(source, code, axis=axis, scanned=scanned):
            pass

    run(benchmark, encode, matrix.nbytes, ratio_to_copy=copy_seconds(matrix), ratio_to_bare_matmul=product)


@pytest.mark.parametrize("axis", [0, 1])
def test_bench_out_of_core_hot_page_cache(benchmark, hold, matrix, axis, tmp_path):
    np.save(tmp_path / "x.npy", matrix)
    code = Systematic(N, K)

    def encode(x):
        source = as_source(x)
        for _ in encode_rows(source, code, axis=axis, scanned=scanned):
            pass

    scanned = scan(as_source(matrix))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    run(benchmark, lambda: encode(mapped), matrix.nbytes)
    hold(
        f"encode along axis {axis}: rate from memory, in rates from a memory map",
        lambda: ratio(lambda: encode(matrix), lambda: encode(mapped), 3),
        at_least=0.6,
        tolerance=1,
    )


def test_bench_working_memory(benchmark, hold, matrix):
    """What encoding needs beyond the matrix and the blocks it gives."""
    source, code = as_source(matrix), Systematic(N, K)
    scanned = scan(source)

    def encode():
        return {id(block): block for _, block in encode_rows(source, code, scanned=scanned)}

    benchmark.pedantic(encode, rounds=1)
    tracemalloc.start()
    try:
        made = encode()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    given = sum(block.nbytes for block in made.values() if not np.shares_memory(block, matrix))
    block_row = matrix.nbytes // K
    hold(
        "memory of encoding beyond input and output, in block rows for each core",
        (peak - given) / (block_row * (os.cpu_count() or 1)),
        at_most=1,
        tolerance=1,
    )


def test_bench_store_encoded(benchmark, matrix):
    code = Systematic(N, K)
    source = as_source(matrix)
    scanned = scan(source)
    blocks = [block for _, block in encode_rows(source, code, scanned=scanned)]
    packing = fastest(lambda: [pack_block(block) for block in blocks])

    def encode():
        return asyncio.run(store_encoded(source, code, Discard(), "x", scanned=scanned))

    run(benchmark, encode, matrix.nbytes * N // K, ratio_to_checksums_alone=packing, ratio_to_copy=copy_seconds(matrix))
