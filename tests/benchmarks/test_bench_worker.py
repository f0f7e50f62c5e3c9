"""The worker against what bounds it: NumPy's product, SciPy's product, a checksum, NumPy's own import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from measured import fastest, ratio

from serverless_gc.store import MemoryStore
from serverless_gc.wire import CsrBlock, Task, pack_block
from serverless_gc.wire.sigv4 import Credentials, Signer
from serverless_gc.worker.curvature import buckets_and_signs, sketched_columns, sketched_rows
from serverless_gc.worker.entry import Warm, run
from serverless_gc.worker.kernels import multiply, multiply_transposed


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense_matvec_is_numpys(benchmark, hold, dtype):
    block = np.random.default_rng(0).standard_normal((2000, 2000)).astype(dtype)
    operand = np.ones(2000, dtype)
    benchmark(multiply, block, operand)
    hold(
        f"worker, product with {np.dtype(dtype)}: its rate, in those of np.dot",
        lambda: ratio(lambda: np.dot(block, operand), lambda: multiply(block, operand), 30),
        at_least=0.9,
        tolerance=1,
    )


def test_mixed_precision_matvec(benchmark):
    block = np.random.default_rng(0).standard_normal((2000, 2000)).astype(np.float32)
    operand = np.ones(2000)
    benchmark(multiply, block, operand)
    whole = fastest(lambda: block @ operand, 7)
    benchmark.extra_info["times faster than converting the block as a whole"] = round(
        whole / fastest(lambda: multiply(block, operand)), 2
    )


@pytest.mark.parametrize("columns", [0, 8])
def test_sparse_matvec(benchmark, columns):
    matrix = scipy.sparse.random_array((20000, 5000), density=0.005, rng=np.random.default_rng(0), format="csr")
    block = CsrBlock(matrix.data, matrix.indices, matrix.indptr, matrix.shape)
    operand = np.random.default_rng(1).standard_normal((5000, columns) if columns else 5000)
    benchmark(multiply, block, operand)
    bound = fastest(lambda: matrix @ operand)
    benchmark.extra_info["of SciPy"] = round(bound / fastest(lambda: multiply(block, operand)), 3)


@pytest.mark.parametrize("warm", [True, False])
def test_one_task_through_memory(benchmark, warm):
    """4 MiB block, cold or kept; beside its product alone."""
    block = np.random.default_rng(0).standard_normal((512, 1024))
    store = MemoryStore()
    blobs = store.blobs()
    blobs.put("blocks/0", pack_block(block))
    kept = Warm.of((64 << 20) if warm else 0)
    operand = np.ones(1024)
    numbers = iter(range(10**9))

    def task():
        n = next(numbers)
        return run(
            Task(
                "r", 0, "t", 0, 0, "matvec", ("blocks/0",), f"r/{n}", store.url, operand, inline_limit=1 << 20
            ).to_bytes(),
            lambda _: blobs,
            warm=kept,
        )

    benchmark(task)
    benchmark.extra_info["times the product alone"] = round(fastest(task, 20) / fastest(lambda: block @ operand, 20), 2)


def test_signing(benchmark):
    signer, credentials = Signer("s3", "eu-west-1"), Credentials("AKID", "secret", "token")
    benchmark(lambda: signer.sign("GET", "b.s3.eu-west-1.amazonaws.com", "/runs/1/blocks/7", credentials=credentials))


def test_importing_the_worker_beside_importing_numpy(benchmark):
    def importing(module):
        return fastest(lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True), 5)

    nothing, numpy, worker = importing("sys"), importing("numpy"), importing("serverless_gc.worker.entry")
    benchmark.extra_info["of NumPy's import"] = round((worker - nothing) / (numpy - nothing), 3)
    benchmark.pedantic(lambda: importing("serverless_gc.worker.entry"), rounds=1)


@pytest.mark.parametrize("side", ["coded columns", "partition"])
def test_a_sketch_of_the_hessian(benchmark, side):
    """Against the product that a gradient takes of the same block, and the exact Hessian of the same rows."""
    tall = side == "partition"
    block = np.random.default_rng(0).standard_normal((20000, 100) if tall else (100, 20000))
    buckets, factors = buckets_and_signs([1], 0, 20000, 1000)
    sketched = sketched_rows if tall else sketched_columns
    benchmark(sketched, block, buckets, factors, 1000)
    took = fastest(lambda: sketched(block, buckets, factors, 1000))
    product = fastest(lambda: multiply_transposed(block, factors) if tall else multiply(block, factors))
    benchmark.extra_info["times the product"] = round(took / product, 1)
    if tall:
        exact = fastest(lambda: (block.T * factors**2) @ block)
        benchmark.extra_info["of the exact Hessian"] = round(took / exact, 2)
