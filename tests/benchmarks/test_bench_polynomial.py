"""Interpolating and matrix-matrix codes: decode against one weighted sum of the results, encode against a copy."""

import sys
import time

import numpy as np
import pytest

from serverless_gc.codes import get

BLOCK = 100_000


def seconds(run, repeats=5):
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def report(benchmark, capsys, bound, what):
    ratio = benchmark.stats.stats.min / bound
    benchmark.extra_info["ratio"] = round(ratio, 2)
    with capsys.disabled():
        sys.stdout.write(f"\n{what}: {ratio:.1f} times the bound\n")
    return ratio


def test_pcr_decode(benchmark, capsys):
    """One gradient from 14 results of 20 workers; the bound is the weighted sum alone."""
    code = get("pcr", n_workers=20, k=5).gradient_round
    rng = np.random.default_rng(0)
    # Evaluations of a polynomial, so that surplus results agree.
    sent = code.generator @ rng.normal(size=(code.threshold, BLOCK))
    values = {i: sent[i] for i in range(2, 16)}
    rows, weights = np.array(list(values.values())), rng.normal(size=14)
    bound = seconds(lambda: weights @ rows)
    benchmark(lambda: code.decode(values))
    assert report(benchmark, capsys, bound, "pcr decode") < 40


def test_pcr_weights(benchmark, capsys):
    """A new arrival pattern of the largest default size: T = 19 of 100."""
    code = get("pcr", n_workers=100, k=10).gradient_round
    rng = np.random.default_rng(0)
    square = rng.normal(size=(19, 19))
    bound = seconds(lambda: np.linalg.inv(square))
    benchmark(lambda: code.certify(rng.permutation(100)[:19].tolist()))
    assert report(benchmark, capsys, bound, "pcr weights of a new pattern, against an inverse") < 200


@pytest.mark.parametrize("name", ["khatri-rao", "polar-matmul", "ortho-matdot"])
def test_encode_left(benchmark, capsys, name):
    """The bound is a copy of the coded blocks."""
    code = get(name, n_workers=64)
    blocks = np.random.default_rng(0).normal(size=(code.left.n_blocks, BLOCK))
    out = np.empty((code.left.n_coded, BLOCK))
    copied = out.copy()
    bound = seconds(lambda: np.copyto(copied, out))
    benchmark(lambda: code.encode_left(blocks, out))
    assert report(benchmark, capsys, bound, f"{name} encode of one operand") < 60


@pytest.mark.parametrize("name", ["khatri-rao", "polar-matmul", "polynomial-complex"])
def test_matmul_decode(benchmark, capsys, name):
    """48 to 36 products from just enough results; the bound is a copy of the answer."""
    code = get(name, n_workers=64)
    rng = np.random.default_rng(0)
    sent = code.generator @ rng.normal(size=(code.generator.shape[1], BLOCK // 10))
    tracker, ids = code.tracker(), []
    for i in rng.permutation(64).tolist():
        ids.append(i)
        if tracker.add(i):
            break
    values = {i: sent[i] for i in ids}
    answer, _ = code.decode(values)
    copied = answer.copy()
    bound = seconds(lambda: np.copyto(copied, answer))
    benchmark(lambda: code.decode(values, out=answer))
    assert report(benchmark, capsys, bound, f"{name} decode") < 200
