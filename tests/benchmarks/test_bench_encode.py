"""The butterfly encoder, in multiples of one thread copying the same bytes out in the same run.

Run with ``pytest --benchmark-only -s tests/benchmarks/test_bench_encode.py``. The goals are
for two idle cores.
"""

import sys
import time

import numpy as np
import pytest

from serverless_gc.codes.polar.butterfly import encode

TOTAL_BYTES = 2**28
GOALS = {"numpy": {64: 2.3, 256: 3.0, 1024: 5.0}, "numba": {64: 1.4, 256: 1.6, 1024: 2.0}}
DENSE_GOALS = {"numpy": {}, "numba": {256: 1.6, 1024: 3.0}}


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(benchmark, function, reference, rounds=9):
    """Time the function and the reference in turns; return the ratio of their medians."""
    references = []
    benchmark.pedantic(
        function, setup=lambda: references.append(seconds(reference)), rounds=rounds, iterations=1, warmup_rounds=2
    )
    return float(np.median(benchmark.stats.stats.data) / np.median(references))


def data(length):
    k, columns = 3 * length // 4, TOTAL_BYTES // (8 * length)
    positions = sorted(sorted(range(length), key=lambda i: (-i.bit_count(), -i))[:k])
    return positions, np.random.default_rng(0).normal(size=(k, columns)), np.ones((length, columns))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("length", [64, 256, 1024])
def test_plain(benchmark, capsys, length, engine, threads):
    if engine == "numba":
        pytest.importorskip("numba")
    positions, blocks, out = data(length)
    copy = np.ones_like(out)
    ratio = measure(
        benchmark,
        lambda: encode(blocks, positions, length, out, range(length), systematic=False, engine=engine, threads=threads),
        lambda: np.copyto(copy, out),
    )
    goal = GOALS[engine][length] if threads == 2 else None
    benchmark.extra_info.update(ratio_to_copy=round(ratio, 2), goal=goal)
    tell(capsys, f"plain, {engine}, N={length}, {threads} threads: {ratio:.2f} x copy, goal {goal}")


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("length", [64, 256, 1024])
def test_systematic_parity(benchmark, capsys, length, engine, kind):
    if engine == "numba":
        pytest.importorskip("numba")
    positions, blocks, out = data(length)
    rows = [j for j in range(length) if j not in set(positions)]
    parity, copy = out[: len(rows)], np.ones_like(out[: len(rows)])
    dense = np.random.default_rng(1).normal(size=(len(rows), len(positions)))
    product = np.median([seconds(lambda: np.matmul(dense, blocks, out=parity)) for _ in range(3)])
    source = blocks if kind == "array" else list(blocks)
    ratio = measure(
        benchmark,
        lambda: encode(source, positions, length, parity, rows, engine=engine, threads=2),
        lambda: np.copyto(copy, parity),
    )
    faster = float(product / np.median(benchmark.stats.stats.data))
    goal = DENSE_GOALS[engine].get(length)
    benchmark.extra_info.update(ratio_to_copy=round(ratio, 2), faster_than_dense=round(faster, 2), goal=goal)
    tell(
        capsys,
        f"systematic, {engine}, N={length}, {kind}: {ratio:.2f} x copy of the parity, "
        f"{faster:.2f} times as fast as a dense parity, goal {goal}",
    )
