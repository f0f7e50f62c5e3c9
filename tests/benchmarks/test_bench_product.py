"""Product encode and decode, in multiples of one thread copying the same bytes."""

import sys
import time

import numpy as np
import pytest

from serverless_gc.codes.product.code import ProductCode

SIDES = [((8, 7), 100_000), ((16, 15), 50_000), ((16, 14), 50_000), ((32, 31), 10_000), ((32, 30), 10_000)]
PATTERNS = 10


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def square(side):
    return ProductCode(side[0] ** 2, side[1] ** 2, grid=(side, side))


def threshold(code, rng):
    """Results in a random order, up to the one that makes them decodable."""
    order = rng.permutation(code.n_workers).tolist()
    tracker = code.tracker()
    return order[: next(j for j, i in enumerate(order, 1) if tracker.add(i))]


@pytest.mark.parametrize("place", ["copy", "in place"])
@pytest.mark.parametrize(("side", "m"), SIDES)
def test_encode(benchmark, capsys, side, m, place):
    code = square(side)
    blocks = np.random.default_rng(0).normal(size=(code.k, m))
    out, copy = np.ones((code.n_workers, m)), np.ones((code.n_workers, m))
    source = blocks if place == "copy" else [out[cell] for cell in code.layout.sources]
    references = []
    benchmark.pedantic(
        lambda: code.encode(source, out),
        setup=lambda: references.append(seconds(lambda: np.copyto(copy, out))),
        rounds=5,
        warmup_rounds=1,
    )
    ratio = float(np.median(benchmark.stats.stats.data) / np.median(references))
    benchmark.extra_info["ratio_to_copy"] = round(ratio, 2)
    tell(capsys, f"product encode, {side} squared, m={m}, {place}: {ratio:.2f} x copy of the coded bytes")


@pytest.mark.parametrize(("side", "m"), SIDES)
def test_decode_at_the_threshold(benchmark, capsys, side, m):
    code, rng = square(side), np.random.default_rng(0)
    coded = code.encode(rng.normal(size=(code.k, m)))
    out, copy = np.ones((code.k, m)), np.ones((code.k, m))
    patterns = [threshold(code, rng) for _ in range(PATTERNS + 1)]
    references = []

    def setup():
        ids = patterns[len(references)]
        references.append(seconds(lambda: np.copyto(copy, coded[: code.k])))
        return ({i: coded[i] for i in ids},), {"out": out}

    benchmark.pedantic(code.decode, setup=setup, rounds=PATTERNS, warmup_rounds=1)
    ratio = float(np.median(benchmark.stats.stats.data) / np.median(references))
    benchmark.extra_info["ratio_to_copy"] = round(ratio, 2)
    tell(capsys, f"product decode, {side} squared, m={m}: {ratio:.2f} x copy of k results")


@pytest.mark.parametrize("side", [(16, 15), (32, 30)])
def test_tracker(benchmark, capsys, side):
    code = square(side)
    order = np.random.default_rng(0).permutation(code.n_workers).tolist()

    def arrive():
        tracker = code.tracker()
        for i in order:
            tracker.add(i)

    benchmark(arrive)
    each = float(np.median(benchmark.stats.stats.data)) / code.n_workers * 1e6
    tell(capsys, f"product tracker, {side} squared: {each:.2f} us an arrival")


@pytest.mark.parametrize("side", [(16, 15), (16, 14), (32, 30)])
def test_certify(benchmark, capsys, side):
    code = square(side)
    ids = threshold(code, np.random.default_rng(0))
    benchmark(code.certify, ids)
    tell(capsys, f"product certify, {side} squared: {np.median(benchmark.stats.stats.data) * 1e3:.2f} ms")
