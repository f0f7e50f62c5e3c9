"""What partial results cost, as ratios measured in the same run.

A round whose workers publish every message, over the same round without; one arrival at a tracker of a multi-message
code, over adding one number to a set; a Lagrange decode, over one copy of the messages that it sums.
"""

import statistics
import time

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import get

RNG = np.random.default_rng(0)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_publishing(benchmark, backend):
    """Eight workers, four blocks of 250 x 2000 each: about a millisecond of work a message."""
    A, x = RNG.normal(size=(2000, 2000)), RNG.normal(size=2000)
    with sgc.Session(backend) as s:
        whole = s.encode(A, code="uc-mmc", n_workers=8, r=4, publish=0)
        parts = s.encode(A, code="uc-mmc", n_workers=8, r=4, publish=1)
        for data in (whole, parts):
            data.matvec(x)
        pairs = [(seconds(lambda: parts.matvec(x)), seconds(lambda: whole.matvec(x))) for _ in range(10)]
        benchmark(parts.matvec, x)
    ratio = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
    benchmark.extra_info["ratio to a round without partial results"] = round(ratio, 2)


@pytest.mark.parametrize("name", ["uc-mmc", "lcc-mmc", "gc-mmc", "cpgc"])
def test_arrivals(benchmark, name):
    code = get(name, n_workers=20, k=20, r=3) if name != "cpgc" else get(name, k=20, sizes=(1, 2, 3))
    order = [(place, worker) for place in range(3) for worker in RNG.permutation(20).tolist()]
    arriving = [code.placement(worker)[place] for place, worker in order]

    def track():
        tracker = code.tracker()
        for message in arriving:
            if tracker.add(message):
                return

    def collect():
        seen = set()
        for message in arriving:
            seen.add(message)

    bound = statistics.median(seconds(collect) for _ in range(50))
    benchmark(track)
    ratio = statistics.median(seconds(track) for _ in range(20)) / bound
    benchmark.extra_info["ratio to a set"] = round(ratio, 1)


def test_lagrange_decode(benchmark):
    code = get("lcc-mmc", n_workers=20, k=10, r=3)
    sent = code.encode(RNG.normal(size=(10, 50_000)))
    arrived = RNG.permutation(60)[:25].tolist()
    values = {i: sent[i] for i in arrived}
    received, kept = sent[arrived], np.empty((25, 50_000))
    bound = statistics.median(seconds(lambda: np.copyto(kept, received)) for _ in range(10))
    benchmark(code.decode, values)
    ratio = statistics.median(seconds(lambda: code.decode(values)) for _ in range(10)) / bound
    benchmark.extra_info["ratio to a copy"] = round(ratio, 2)
