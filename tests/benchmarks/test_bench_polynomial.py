"""Interpolating and matrix-matrix codes: decode against one weighted sum of the results, encode against a copy."""

import numpy as np
import pytest
from measured import ratio

from serverless_gc.codes import get

BLOCK = 100_000


def test_pcr_decode(benchmark, hold):
    """One gradient from 14 results of 20 workers; the bound is the weighted sum alone."""
    code = get("pcr", n_workers=20, k=5).gradient_round
    rng = np.random.default_rng(0)
    # Evaluations of a polynomial, so that surplus results agree.
    sent = code.generator @ rng.normal(size=(code.threshold, BLOCK))
    values = {i: sent[i] for i in range(2, 16)}
    rows, weights = np.array(list(values.values())), rng.normal(size=14)

    def decode():
        return code.decode(values)

    benchmark.pedantic(decode, rounds=3)
    hold("pcr decode, in weighted sums", lambda: ratio(decode, lambda: weights @ rows), at_most=40, tolerance=1)


def test_pcr_weights(benchmark, hold):
    """A new arrival pattern of the largest default size: T = 19 of 100."""
    code = get("pcr", n_workers=100, k=10).gradient_round
    rng = np.random.default_rng(0)
    square = rng.normal(size=(19, 19))

    def decode():
        return code.certify(rng.permutation(100)[:19].tolist())

    benchmark.pedantic(decode, rounds=3)
    hold(
        "pcr weights of a new pattern, in inverses",
        lambda: ratio(decode, lambda: np.linalg.inv(square)),
        at_most=200,
        tolerance=1,
    )


@pytest.mark.parametrize("name", ["khatri-rao", "polar-matmul", "ortho-matdot"])
def test_encode_left(benchmark, hold, name):
    """The bound is a copy of the coded blocks."""
    code = get(name, n_workers=64)
    blocks = np.random.default_rng(0).normal(size=(code.left.n_blocks, BLOCK))
    out = np.empty((code.left.n_coded, BLOCK))
    copied = out.copy()

    def encode():
        return code.encode_left(blocks, out)

    benchmark.pedantic(encode, rounds=3)
    hold(
        f"{name} encode of one operand, in copies",
        lambda: ratio(encode, lambda: np.copyto(copied, out)),
        at_most=60,
        tolerance=1,
    )


@pytest.mark.parametrize("name", ["khatri-rao", "polar-matmul", "polynomial-complex"])
def test_matmul_decode(benchmark, hold, name):
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

    def decode():
        return code.decode(values, out=answer)

    benchmark.pedantic(decode, rounds=3)
    what = f"{name} decode, in copies of the answer"
    hold(what, lambda: ratio(decode, lambda: np.copyto(copied, answer)), at_most=200, tolerance=1)
