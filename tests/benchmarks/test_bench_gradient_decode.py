"""Decoding vectors and trackers of gradient codes at a thousand workers, against least squares in the same run."""

import sys
import time

import numpy as np
import pytest

from serverless_gc.codes.gradient import (
    ClusteredCode,
    CyclicMDSCode,
    CyclicRepetitionCode,
    FractionalRepetitionCode,
    NestedCode,
    YeAbbeCode,
)

N = 1000
ROUNDS = 20


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def patterns(lost, count=ROUNDS + 1):
    rng = np.random.default_rng(0)
    return [rng.permutation(N)[lost:].tolist() for _ in range(count)]


def timed(benchmark, code, arrivals):
    """Decode new patterns only, and check each; median seconds."""
    left = iter(arrivals)
    found = benchmark.pedantic(code.weights, setup=lambda: ((next(left),), {}), rounds=ROUNDS, warmup_rounds=1)
    assert np.abs(found.alpha - 1).max() < 1e-6
    return float(np.median(benchmark.stats.stats.data))


def test_frc(benchmark, capsys):
    code = FractionalRepetitionCode(N, N, stragglers=99)
    mine = timed(benchmark, code, patterns(50))
    copy = np.ones(N)
    reference = min(seconds(np.copyto, np.empty(N), copy) for _ in range(50))
    benchmark.extra_info["ratio_to_copy"] = round(mine / reference)
    tell(capsys, f"frc decoding vector, n={N}: {mine * 1e6:.0f} us (goal 100), {mine / reference:.0f} x copy of it")


@pytest.mark.parametrize("s", [1, 10, 50])
def test_cyclic(benchmark, capsys, s):
    code = CyclicRepetitionCode(N, N, stragglers=s)
    arrivals = patterns(s)
    first = seconds(code.weights, list(range(s, N)))
    full = float(np.median([seconds(code.weights, arrived, "lstsq") for arrived in arrivals[:3]]))
    mine = timed(benchmark, code, arrivals)
    for arrived in arrivals[:5]:
        assert np.abs(code.weights(arrived).a @ code.generator - 1).max() < 1e-6
    known = min(seconds(code.weights, arrivals[0]) for _ in range(20))
    benchmark.extra_info.update(faster_than_lstsq=round(full / mine), goal=100)
    tell(
        capsys,
        f"cyclic decoding vector, n={N}, s={s}: {mine * 1e3:.2f} ms, {full / mine:.0f} times as fast as least squares "
        f"(goal 100); the first {first:.2f} s, a known pattern {known * 1e6:.0f} us",
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: CyclicMDSCode(N, N, stragglers=3),
        lambda: YeAbbeCode(N, N, stragglers=10, fold=2),
        lambda: ClusteredCode(N, N, clusters=25, stragglers=4),
    ],
    ids=["cyclic-mds", "ye-abbe", "clustered"],
)
def test_others(benchmark, capsys, make):
    code = make()
    arrivals = patterns(3)
    mine = timed(benchmark, code, arrivals)
    full = seconds(code.weights, arrivals[0], "lstsq")
    benchmark.extra_info["faster_than_lstsq"] = round(full / mine)
    tell(capsys, f"{code.name} decoding vector, n={N}: {mine * 1e3:.2f} ms, {full / mine:.0f} x as fast as lstsq")


@pytest.mark.parametrize("s", [10, 50])
def test_cyclic_construction(benchmark, capsys, s):
    one = np.random.default_rng(0).standard_normal((s, s))
    solve = min(seconds(np.linalg.solve, one, one[0]) for _ in range(20))
    benchmark.pedantic(CyclicRepetitionCode, (N, N), {"stragglers": s}, rounds=2)
    mine = float(np.median(benchmark.stats.stats.data))
    ratio = mine / (20 * N * solve)
    benchmark.extra_info["ratio_to_solves"] = round(ratio, 2)
    tell(capsys, f"cyclic construction, n={N}, s={s}: {mine:.2f} s, {ratio:.2f} x its 20 n solves one by one")


@pytest.mark.parametrize(
    "make",
    [
        lambda: FractionalRepetitionCode(N, N, stragglers=9),
        lambda: CyclicRepetitionCode(N, N, stragglers=9),
        lambda: ClusteredCode(N, N, clusters=25, stragglers=4),
        lambda: NestedCode(N, N, stragglers=3),
    ],
    ids=["frc", "cyclic", "clustered", "nested"],
)
def test_tracker(benchmark, capsys, make):
    code = make()
    order = np.random.default_rng(1).permutation(code.n_messages).tolist()

    def feed():
        tracker = code.tracker()
        for message in order:
            tracker.add(message)

    benchmark.pedantic(feed, rounds=10, warmup_rounds=1)
    each = float(np.median(benchmark.stats.stats.data)) / code.n_messages
    listed = seconds(lambda: [set().add(message) for message in order]) / code.n_messages
    benchmark.extra_info["ratio_to_set_add"] = round(each / listed, 1)
    tell(capsys, f"{code.name} tracker, n={N}: {each * 1e6:.2f} us an arrival, {each / listed:.1f} x adding to a set")
