"""What a gradient code costs the driver: collecting a result, and decoding with the sum, against a pass over them.

Bound in the same run: adding up the used results one after the other, which no decoder avoids.
"""

import statistics
import time

import numpy as np
import pytest
from measured import seconds

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.engine import Arrived, Engine
from serverless_gc.policies import natural_policy
from serverless_gc.rounds.collect import Collector
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply

SIZE = 50_000  # numbers in a message
CODES = {
    "frc": {"n_workers": 60, "stragglers": 3},
    "cyclic": {"n_workers": 60, "stragglers": 3},
    "ye-abbe": {"n_workers": 60, "stragglers": 3},
    "clustered": {"n_workers": 60},
    "graph": {},
    "lwpd": {"n_workers": 60, "k": 45},
}
MOST = 15.0
MOST_OF_DIRECTIONS = 40.0
"""Times as long as one pass over the used results at most. Directions give 45 blocks, and compare what is surplus."""


def one_pass(values):
    total = np.zeros_like(values[0])
    start = time.perf_counter()
    for value in values:
        total += value
    return time.perf_counter() - start


@pytest.mark.parametrize("name", CODES)
def test_collect_and_decode(benchmark, hold, name):
    code = get(name, **CODES[name])
    length = SIZE
    rng = np.random.default_rng(0)
    values = rng.standard_normal((code.n_messages, length))
    if name == "lwpd":  # surplus directions are compared with the others
        values = code.generator @ rng.standard_normal((code.k, length))
    replies = [
        Reply("run", 1, f"1-{i}", i, 0, "ok", value=value, stats={"non_finite": 0}).to_bytes()
        for i, value in enumerate(values)
    ]
    specs = [TaskSpec(f"1-{i}", i, 1) for i in range(code.n_workers)]
    order = rng.permutation(code.n_workers).tolist()
    collecting = []

    def collected():
        collector = Collector(code, (length,), np.dtype(float))
        engine = Engine(natural_policy(code), code.n_workers, version=1)
        engine.open(0.0)
        here = []
        start = time.perf_counter()
        for i in order:
            if not engine.is_open:
                break
            reply = Reply.from_bytes(replies[i])
            collector.file(i, reply.value)
            here.append(i)
            engine.handle(Arrived(specs[i], reply.value, stats=reply.stats), 1.0)
        collecting.append((time.perf_counter() - start) / len(here))
        return (collector, here), {}

    def decode(collector, here):
        return collector.decode(here, None, 0.0)

    (collector, here), _ = collected()
    _, certificate = decode(collector, here)  # the weights of this pattern are known from here on
    used = certificate.used

    def passes():
        ours, bound = [], []
        for _ in range(15):  # both as cold as what a round decodes
            (collector, here), _ = collected()
            bound.append(one_pass([collector.values[i] for i in used]))
            (collector, here), _ = collected()
            ours.append(seconds(lambda c=collector, h=here: decode(c, h)))
        return min(ours) / min(bound)

    benchmark.pedantic(decode, setup=collected, rounds=3, warmup_rounds=1)
    benchmark.extra_info["us to collect a result"] = round(1e6 * statistics.median(collecting), 1)
    most = MOST_OF_DIRECTIONS if name == "lwpd" else MOST
    hold(f"{name}: decode and combine {len(used)} results, in passes over them", passes, at_most=most, tolerance=1)


def test_a_tree_moves_the_sum_off_the_driver(benchmark, hold):
    """Bytes that reach the driver: as many gradients as it has children, however many workers there are."""
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((200, 500)), rng.standard_normal(200), rng.standard_normal(500)
    with sgc.Session("simulated") as s:
        tree = s.encode(X, y, code="coded-reduce", n_workers=30, stragglers=1)
        flat = s.encode(X, y, code="cyclic", n_workers=30, stragglers=1)
        _, report = benchmark.pedantic(lambda: tree.gradient(w, with_report=True), rounds=3, warmup_rounds=1)
        _, other = flat.gradient(w, with_report=True)
    ratio = report.bytes_down / other.bytes_down
    benchmark.extra_info["bytes, in those of a flat code"] = round(ratio, 3)
    hold(
        "coded-reduce, 30 workers: gradients that reach the driver",
        report.bytes_down / w.nbytes,
        at_most=5,
        tolerance=1,
    )
