"""MDS encode and decode, in multiples of one thread copying the same bytes, and against the full solve."""

import statistics

import numpy as np
import pytest
from measured import ratio

from serverless_gc.codes.mds.code import MDSCode

SIZES = [(64, 48, 100_000), (256, 192, 50_000), (1024, 768, 10_000)]
FULL_SOLVE_GOALS = {0.75: 3, 0.9: 10}
"""How many decodes as long as the solve of all ``k`` rows, by rate."""
PATTERNS = 5


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_encode(benchmark, n, k, m, kind):
    code = MDSCode(n, k)
    blocks = np.random.default_rng(0).normal(size=(k, m))
    out, copy = np.ones((n, m)), np.ones((n, m))
    source = blocks if kind == "array" else list(blocks)
    benchmark.pedantic(lambda: code.encode(source, out), rounds=2)
    copies = ratio(lambda: code.encode(source, out), lambda: np.copyto(copy, out))
    benchmark.extra_info["copies of the coded bytes"] = round(copies, 2)


@pytest.mark.parametrize("rate", FULL_SOLVE_GOALS)
@pytest.mark.parametrize(("n", "m"), [(n, m) for n, _, m in SIZES])
def test_decode_against_the_full_solve(benchmark, hold, n, m, rate):
    k = round(rate * n)
    code = MDSCode(n, k)
    rng = np.random.default_rng(0)
    coded, out = code.encode(rng.normal(size=(k, m))), np.ones((k, m))
    patterns = [rng.choice(n, k, replace=False).tolist() for _ in range(3)]

    def measure():
        ratios = []
        for ids in patterns:
            values = {i: coded[i] for i in ids}
            rows, received = code.generator[ids], coded[ids]
            ratios.append(
                ratio(lambda a=rows, b=received: np.linalg.solve(a, b), lambda v=values: code.decode(v, out=out), 3)
            )
        return statistics.median(ratios)

    benchmark.pedantic(code.decode, args=({i: coded[i] for i in patterns[0]},), kwargs={"out": out}, rounds=2)
    hold(f"full solve of ({n}, {k}), m={m}, in mds decodes", measure, at_least=FULL_SOLVE_GOALS[rate])


@pytest.mark.parametrize("surplus", [0, 2])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_decode(benchmark, n, k, m, surplus):
    code = MDSCode(n, k)
    rng = np.random.default_rng(0)
    coded = code.encode(rng.normal(size=(k, m)))
    out, copy = np.ones((k, m)), np.ones((k, m))
    ratios = []
    for _ in range(PATTERNS):
        values = {i: coded[i] for i in rng.choice(n, k + surplus, replace=False).tolist()}
        ratios.append(ratio(lambda v=values: code.decode(v, out=out), lambda: np.copyto(copy, coded[:k]), 3))
    benchmark.pedantic(code.decode, args=(values,), kwargs={"out": out}, rounds=2)
    benchmark.extra_info["copies of k results"] = round(statistics.median(ratios), 2)


@pytest.mark.parametrize(("n", "k"), [(64, 48), (256, 192), (1024, 768)])
def test_certify(benchmark, n, k):
    code = MDSCode(n, k)
    ids = np.random.default_rng(0).choice(n, k, replace=False).tolist()
    benchmark(code.certify, ids)
