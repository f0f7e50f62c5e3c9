"""The butterfly encoder, in multiples of one thread copying the same bytes out in the same run.

Run with ``pytest --benchmark-only -s tests/benchmarks/test_bench_encode.py``. The goals are
for two idle cores.
"""

import numpy as np
import pytest
from measured import ratio

from serverless_gc.codes.polar.butterfly import encode

TOTAL_BYTES = 2**28
GOALS = {"numpy": {64: 2.3, 256: 3.0, 1024: 5.0}, "numba": {64: 1.4, 256: 1.6, 1024: 2.0}}
DENSE_GOALS = {"numpy": {}, "numba": {256: 1.6, 1024: 3.0}}

REPEATS = 9


def data(length):
    k, columns = 3 * length // 4, TOTAL_BYTES // (8 * length)
    positions = sorted(sorted(range(length), key=lambda i: (-i.bit_count(), -i))[:k])
    return positions, np.random.default_rng(0).normal(size=(k, columns)), np.ones((length, columns))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("length", [64, 256, 1024])
def test_plain(benchmark, hold, length, engine, threads):
    if engine == "numba":
        pytest.importorskip("numba")
    positions, blocks, out = data(length)
    copy = np.ones_like(out)

    def run():
        encode(blocks, positions, length, out, range(length), systematic=False, engine=engine, threads=threads)

    benchmark.pedantic(run, rounds=2, warmup_rounds=1)
    what = f"polar encode, {engine}, N={length}, {threads} threads, in copies of the coded bytes"
    if threads == 2:
        hold(what, lambda: ratio(run, lambda: np.copyto(copy, out), REPEATS), at_most=GOALS[engine][length])
    else:
        benchmark.extra_info[what] = round(ratio(run, lambda: np.copyto(copy, out), REPEATS), 2)


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("length", [64, 256, 1024])
def test_systematic_parity(benchmark, hold, length, engine, kind):
    if engine == "numba":
        pytest.importorskip("numba")
    positions, blocks, out = data(length)
    rows = [j for j in range(length) if j not in set(positions)]
    parity, copy = out[: len(rows)], np.ones_like(out[: len(rows)])
    dense = np.random.default_rng(1).normal(size=(len(rows), len(positions)))
    source = blocks if kind == "array" else list(blocks)

    def run():
        encode(source, positions, length, parity, rows, engine=engine, threads=2)

    benchmark.pedantic(run, rounds=2, warmup_rounds=1)
    benchmark.extra_info["copies of the parity"] = round(ratio(run, lambda: np.copyto(copy, parity)), 2)
    if length in DENSE_GOALS[engine]:
        hold(
            f"dense parity, N={length}, in systematic polar encodes, {engine}, of {kind}",
            lambda: ratio(lambda: np.matmul(dense, blocks, out=parity), run, 3),
            at_least=DENSE_GOALS[engine][length],
        )
