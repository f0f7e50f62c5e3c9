"""Decoding vectors and trackers of gradient codes at a thousand workers, against least squares in the same run."""

import statistics

import numpy as np
import pytest
from measured import additions, fastest, goal_in_additions, seconds

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
REPEATS = 5


def patterns(lost):
    """Yield which results arrived, ever other ones: a code remembers the patterns that it has decoded."""
    rng = np.random.default_rng(0)
    while True:
        yield rng.permutation(N)[lost:].tolist()


def checked(code, arrived):
    found = code.weights(arrived)
    assert np.abs(found.a @ code.generator - 1).max() < 1e-6
    return found


def times_as_fast(code, arrivals):
    """Return how many new patterns are decoded in the time that least squares takes for one."""
    full = min(seconds(lambda: code.weights(next(arrivals), "lstsq")) for _ in range(3))
    mine = statistics.median(seconds(lambda: code.weights(next(arrivals))) for _ in range(ROUNDS))
    return full / mine


def test_frc(benchmark, hold):
    code = FractionalRepetitionCode(N, N, stragglers=99)
    arrivals = patterns(50)
    checked(code, next(arrivals))
    benchmark.pedantic(lambda: code.weights(next(arrivals)), rounds=ROUNDS)
    hold(
        f"frc decoding vector, n={N}, in additions to a set",
        lambda: additions(lambda: code.weights(next(arrivals)), ROUNDS),
        at_most=goal_in_additions(100),
    )


@pytest.mark.parametrize("s", [1, 10, 50])
def test_cyclic(benchmark, hold, s):
    code = CyclicRepetitionCode(N, N, stragglers=s)
    arrivals = patterns(s)
    for _ in range(5):
        checked(code, next(arrivals))
    benchmark.pedantic(lambda: code.weights(next(arrivals)), rounds=ROUNDS)
    what = f"least squares of n={N}, s={s}, in cyclic decoding vectors"
    hold(what, lambda: times_as_fast(code, arrivals), at_least=100)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CyclicMDSCode(N, N, stragglers=3),
        lambda: YeAbbeCode(N, N, stragglers=10, fold=2),
        lambda: ClusteredCode(N, N, clusters=25, stragglers=4),
    ],
    ids=["cyclic-mds", "ye-abbe", "clustered"],
)
def test_others(benchmark, make):
    code = make()
    arrivals = patterns(3)
    found = code.weights(next(arrivals))
    assert np.abs(found.alpha - 1).max() < 1e-6
    benchmark.pedantic(lambda: code.weights(next(arrivals)), rounds=ROUNDS)
    benchmark.extra_info["least squares in decoding vectors"] = round(times_as_fast(code, arrivals))


@pytest.mark.parametrize("s", [10, 50])
def test_cyclic_construction(benchmark, s):
    one = np.random.default_rng(0).standard_normal((s, s))
    solve = fastest(lambda: np.linalg.solve(one, one[0]), 20)
    benchmark.pedantic(CyclicRepetitionCode, (N, N), {"stragglers": s}, rounds=2)
    benchmark.extra_info["ratio to 20 n solves one by one"] = round(benchmark.stats.stats.min / (20 * N * solve), 2)


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
def test_tracker(benchmark, make):
    code = make()
    order = np.random.default_rng(1).permutation(code.n_messages).tolist()

    def feed():
        tracker = code.tracker()
        for message in order:
            tracker.add(message)

    benchmark.pedantic(feed, rounds=3)
    benchmark.extra_info["an arrival in additions to a set"] = round(additions(feed, REPEATS, code.n_messages), 1)
