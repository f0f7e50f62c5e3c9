"""LT and LDPC codes: tracker per arrival; encode and decode as a ratio to one copy of the bytes on one thread."""

import statistics
import sys
import timeit
from functools import partial

import numpy as np
import pytest

from serverless_gc.codes.peeling.ldpc import LDPCCode
from serverless_gc.codes.peeling.lt import LTCode
from serverless_gc.codes.peeling.schedule import make_schedule

PATTERNS = 5


seconds = partial(timeit.timeit, number=1)


@pytest.fixture
def tell(capsys):
    def write(text):
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return write


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
def test_tracker(benchmark, tell, name, goal_ms):
    code = make(name)
    rng = np.random.default_rng(0)
    orders = [arrivals(code, rng) for _ in range(PATTERNS)]
    worst = []

    def follow(order):
        tracker = code.tracker()
        for i in order:
            tracker.add(i)

    for order in orders:
        tracker = code.tracker()
        worst.append(max(seconds(lambda i=i, t=tracker: t.add(i)) for i in order))
    total = statistics.median(seconds(lambda o=o: follow(o)) for o in orders for _ in range(3))
    each = 1e6 * total / statistics.mean(map(len, orders))
    benchmark.extra_info.update(ms=1e3 * total, us_per_arrival=each, worst_ms=1e3 * max(worst), goal_ms=goal_ms)
    tell(
        f"{name}: {1e3 * total:.2f} ms until decodable (goal {goal_ms}), {each:.2f} us per arrival, worst single "
        f"{1e3 * statistics.median(worst):.2f} ms",
    )
    benchmark.pedantic(follow, args=(orders[0],), rounds=3)


@pytest.mark.parametrize("order", ["breadth-first", "minimum-variance"])
@pytest.mark.parametrize("name", ["lt 16 1000", "lt 16 10000", "ldpc 1000 750"])
def test_schedule(benchmark, tell, name, order):
    code = make(name + " peel")
    present = code.equations.present(arrivals(code, np.random.default_rng(0)))
    make_schedule(code.equations, present, order)
    benchmark.pedantic(make_schedule, args=(code.equations, present, order), rounds=5)
    tell(f"{name}, {order} schedule: {1e3 * benchmark.stats.stats.median:.2f} ms")


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


@pytest.mark.parametrize(("name", "m"), CASES)
def test_decode(benchmark, tell, name, m):
    """One pass: a copy of the received results. ``planning``: what does not depend on their length.

    ``execution`` is the rest, the goal at 1000 workers being 2.6 copies of all results. ``in_place``: results that
    carry a block unchanged are in its place already, as the collector writes them.
    """
    code = make(name)
    rng = np.random.default_rng(0)
    blocks = rng.normal(size=(code.k, m))
    coded = code.encode(blocks)
    out = np.zeros((code.k, m))
    ratios, decodes, plans, everything, execution, written = [], [], [], [], [], []
    copy = np.zeros_like(coded)
    for _ in range(PATTERNS):
        arrived = arrivals(code, rng)
        received = coded[arrived]
        values = dict(zip(arrived, received, strict=True))
        target = np.zeros_like(received)
        code.decode(values, out=out)
        placed = {i: value if (j := code.source_of(i)) is None else out[j] for i, value in values.items()}
        one, all_of_it, mine, plan, in_place = [], [], [], [], []
        for _ in range(3):
            one.append(seconds(lambda to=target, of=received: np.copyto(to, of)))
            all_of_it.append(seconds(lambda: np.copyto(copy, coded)))
            mine.append(seconds(lambda v=values: code.decode(v, out=out)))
            plan.append(seconds(lambda a=arrived: code.certify(a)))
            in_place.append(seconds(lambda v=placed: code.decode(v, out=out)))
        decodes.append(statistics.median(mine))
        plans.append(statistics.median(plan))
        ratios.append(decodes[-1] / statistics.median(one))
        everything.append(decodes[-1] / statistics.median(all_of_it))
        execution.append((decodes[-1] - plans[-1]) / statistics.median(all_of_it))
        written.append(statistics.median(in_place) / statistics.median(all_of_it))
    info = {
        "ratio_to_copy": statistics.median(ratios),
        "ratio_to_copy_of_all": statistics.median(everything),
        "execution_to_copy_of_all": statistics.median(execution),
        "in_place_to_copy_of_all": statistics.median(written),
        "decode_ms": 1e3 * statistics.median(decodes),
        "planning_ms": 1e3 * statistics.median(plans),
    }
    benchmark.extra_info.update(info)
    tell(f"{name} decode, m={m}: " + ", ".join(f"{key} {value:.2f}" for key, value in info.items()))
    benchmark.pedantic(lambda: code.decode(values, out=out), rounds=3)


@pytest.mark.parametrize(("name", "m"), CASES)
def test_encode(benchmark, tell, name, m):
    code = make(name)
    blocks = np.random.default_rng(0).normal(size=(code.k, m))
    out, copy = np.zeros((code.n_messages, m)), np.zeros((code.n_messages, m))
    code.encode(blocks, out)
    pairs = [(seconds(lambda: np.copyto(copy, out)), seconds(lambda: code.encode(blocks, out))) for _ in range(5)]
    copied, encoded = (statistics.median(column) for column in zip(*pairs, strict=True))
    benchmark.extra_info.update(ratio_to_copy=encoded / copied, encode_ms=1e3 * encoded)
    tell(f"{name} encode, m={m}: {encoded / copied:.2f} x copy of the coded bytes, {1e3 * encoded:.2f} ms")
    benchmark.pedantic(lambda: code.encode(blocks, out), rounds=2)


@pytest.mark.parametrize("name", ["lt 16 1000", "lt 16 10000", "ldpc 1024 768"])
def test_construction(benchmark, tell, name):
    benchmark.pedantic(make, args=(name,), rounds=5)
    tell(f"{name} construction: {1e3 * benchmark.stats.stats.median:.2f} ms")
