"""LT and LDPC codes: tracker per arrival; encode and decode as a ratio to one copy of the bytes on one thread."""

import statistics

import numpy as np
import pytest
from measured import additions, goal_in_additions, ratio

from serverless_gc.codes.peeling.ldpc import LDPCCode
from serverless_gc.codes.peeling.lt import LTCode
from serverless_gc.codes.peeling.plan import plan_peel
from serverless_gc.codes.peeling.schedule import make_schedule

PATTERNS = 10
REPEATS = 5


def arrivals(code, rng):
    """Arrive at random until decodable."""
    while True:
        tracker = code.tracker()
        order = rng.permutation(code.n_messages).tolist()
        for count, i in enumerate(order, 1):
            if tracker.add(i):
                return order[:count]


def make(name):
    kind, *sizes = name.split()
    first, second = map(int, sizes[:2])
    return (LTCode if kind == "lt" else LDPCCode)(first, second, inactivation=0 if "peel" in sizes else 128)


@pytest.mark.parametrize(
    ("name", "goal_ms"),
    [
        ("lt 16 1000", 20),
        ("lt 16 10000", 200),
        ("lt 16 128", None),
        ("ldpc 1024 768", None),
        ("ldpc 1024 768 peel", None),
    ],
)
def test_tracker(benchmark, hold, name, goal_ms):
    code = make(name)
    order = arrivals(code, np.random.default_rng(0))

    def follow(tracker):
        for i in order:
            tracker.add(i)

    def measure():
        trackers = [code.tracker() for _ in range(REPEATS)]
        return additions(lambda: follow(trackers.pop()), REPEATS)

    benchmark.pedantic(follow, setup=lambda: ((code.tracker(),), {}), rounds=3)
    benchmark.extra_info["us_per_arrival"] = 1e6 * benchmark.stats.stats.min / len(order)
    if goal_ms is not None:
        what = f"{name} tracker, all arrivals until decodable, in additions to a set"
        hold(what, measure, at_most=goal_in_additions(1e3 * goal_ms))


@pytest.mark.parametrize("order", ["breadth-first", "minimum-variance"])
@pytest.mark.parametrize("name", ["lt 16 1000", "lt 16 10000"])
def test_schedule(benchmark, name, order):
    code = make(name + " peel")
    present = code.equations.present(arrivals(code, np.random.default_rng(0)))
    make_schedule(code.equations, present, order)
    benchmark.pedantic(make_schedule, args=(code.equations, present, order), rounds=5)


def test_symbolic_peeling(benchmark, hold):
    """All of the decode of 1000 workers that does not depend on values: in which order, from what, how accurate."""
    code = make("ldpc 1000 750 peel")
    arrived = arrivals(code, np.random.default_rng(0))
    lost = sorted(set(range(code.k)) - set(arrived))

    def plan():
        schedule = make_schedule(code.equations, code.equations.present(arrived), "breadth-first")
        return plan_peel(code.equations, schedule, lost)

    benchmark.pedantic(plan, rounds=3)
    hold(
        "ldpc (1000, 750) symbolic peeling, in additions to a set",
        lambda: additions(plan, REPEATS),
        at_most=goal_in_additions(2e3),
    )


CASES = [
    ("lt 16 10000", 1),
    ("lt 16 10000", 100),
    ("lt 16 10000", 1000),
    ("lt 16 1000", 100),
    ("lt 16 1000", 10_000),
    ("lt 16 128", 20_000),
    ("ldpc 64 48", 100_000),
    ("ldpc 1000 750 peel", 10_000),
    ("ldpc 1024 512 peel", 100),
]


GOALS = {("ldpc 64 48", 100_000): 2.6, ("ldpc 1000 750 peel", 10_000): 2.6}
"""Copies of all results, for the whole decode: plan, row operations, checks and copies."""

WHOLE = pytest.mark.xfail(
    reason="3.2 to 3.5 copies: 2.0 are row operations and copies, the rest the plan, the check of what was not needed "
    "and the search for NaN",
    strict=False,
)
PLACED = [
    pytest.param(name, m, place, marks=WHOLE if name == "ldpc 1000 750 peel" else ())
    for name, m in CASES
    for place in ("copy", "in place")
]


@pytest.mark.parametrize(("name", "m", "place"), PLACED)
def test_decode(benchmark, hold, name, m, place):
    """The whole decode, in copies of all coded bytes.

    ``in place``: results that carry a block unchanged are where it belongs already, as the collector writes them.
    """
    code = make(name)
    rng = np.random.default_rng(0)
    coded = code.encode(rng.normal(size=(code.k, m)))
    out, copy = np.zeros((code.k, m)), np.zeros_like(coded)
    patterns = [arrivals(code, rng) for _ in range(PATTERNS if name.startswith("ldpc") else 2)]

    def given(arrived):
        if place == "copy":
            return {i: coded[i] for i in arrived}
        values = {i: coded[i] if (j := code.source_of(i)) is None else out[j] for i in arrived}
        for i, value in values.items():
            value[...] = coded[i]
        return values

    def measure():
        ratios = []
        for arrived in patterns:
            values = given(arrived)
            ratios.append(ratio(lambda v=values: code.decode(v, out=out), lambda: np.copyto(copy, coded), REPEATS))
        return statistics.median(ratios)

    values = given(patterns[0])
    benchmark.pedantic(lambda: code.decode(values, out=out), rounds=3)
    if (name, m) in GOALS:
        hold(f"{name} decode, m={m}, {place}, in copies of all results", measure, at_most=GOALS[name, m])
    else:
        benchmark.extra_info["copies of all results"] = round(measure(), 2)


@pytest.mark.parametrize(("name", "m"), CASES)
def test_encode(benchmark, name, m):
    code = make(name)
    blocks = np.random.default_rng(0).normal(size=(code.k, m))
    out, copy = np.zeros((code.n_messages, m)), np.zeros((code.n_messages, m))
    benchmark.pedantic(lambda: code.encode(blocks, out), rounds=2)
    copies = ratio(lambda: code.encode(blocks, out), lambda: np.copyto(copy, out), REPEATS)
    benchmark.extra_info["copies of the coded bytes"] = round(copies, 2)


@pytest.mark.parametrize("name", ["lt 16 1000", "lt 16 10000", "ldpc 1024 768"])
def test_construction(benchmark, name):
    benchmark.pedantic(make, args=(name,), rounds=5)
