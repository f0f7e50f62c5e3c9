"""MDS encode and decode, in multiples of one thread copying the same bytes, and against the full solve."""

import sys
import time

import numpy as np
import pytest

from serverless_gc.codes.mds.code import MDSCode

SIZES = [(64, 48, 100_000), (256, 192, 50_000), (1024, 768, 10_000)]
PATTERNS = 10


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_encode(benchmark, capsys, n, k, m, kind):
    code = MDSCode(n, k)
    blocks = np.random.default_rng(0).normal(size=(k, m))
    out, copy = np.ones((n, m)), np.ones((n, m))
    source = blocks if kind == "array" else list(blocks)
    references = []
    benchmark.pedantic(
        lambda: code.encode(source, out),
        setup=lambda: references.append(seconds(lambda: np.copyto(copy, out))),
        rounds=5,
        warmup_rounds=1,
    )
    ratio = float(np.median(benchmark.stats.stats.data) / np.median(references))
    benchmark.extra_info["ratio_to_copy"] = round(ratio, 2)
    tell(capsys, f"mds encode, ({n}, {k}), m={m}, {kind}: {ratio:.2f} x copy")


@pytest.mark.parametrize("surplus", [0, 2])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_decode(benchmark, capsys, n, k, m, surplus):
    code = MDSCode(n, k)
    rng = np.random.default_rng(0)
    coded = code.encode(rng.normal(size=(k, m)))
    out, copy = np.ones((k, m)), np.ones((k, m))
    patterns = [rng.choice(n, k + surplus, replace=False).tolist() for _ in range(PATTERNS + 1)]
    references, full = [], []

    def setup():
        ids = patterns[len(references)]
        references.append(seconds(lambda: np.copyto(copy, coded[:k])))
        if not surplus and len(full) < 3:
            full.append(seconds(lambda: np.linalg.solve(code.generator[ids], coded[ids])))
        return ({i: coded[i] for i in ids},), {"out": out}

    benchmark.pedantic(code.decode, setup=setup, rounds=PATTERNS, warmup_rounds=1)
    mine = float(np.median(benchmark.stats.stats.data))
    ratio = mine / float(np.median(references))
    faster = float(np.median(full)) / mine if full else None
    benchmark.extra_info.update(ratio_to_copy=round(ratio, 2), faster_than_full_solve=faster, goal=3)
    told = f", {faster:.1f} times as fast as the full k x k solve, goal 3" if faster else ""
    tell(capsys, f"mds decode, ({n}, {k}), m={m}, {surplus} surplus: {ratio:.2f} x copy of k results{told}")


@pytest.mark.parametrize(("n", "k"), [(64, 48), (256, 192), (1024, 768)])
def test_certify(benchmark, capsys, n, k):
    code = MDSCode(n, k)
    ids = np.random.default_rng(0).choice(n, k, replace=False).tolist()
    benchmark(code.certify, ids)
    tell(capsys, f"mds certify, ({n}, {k}): {np.median(benchmark.stats.stats.data) * 1e3:.2f} ms")
