"""How fast simulated rounds are: events of the engine next to a bare heap, sampled rounds next to their draws."""

import heapq

import numpy as np
import pytest
from measured import fastest, ratio

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.plan import method, sample_rounds, simulate
from serverless_gc.policies import FirstK
from serverless_gc.stragglers import ShiftedExponential

LAW = ShiftedExponential(1.0, 1.0)
EVENT_US = 5.0
"""The goal: 200,000 task events a second."""

HEAP_EVENT_US = {64: 0.11, 256: 0.13, 1024: 0.18, 4096: 0.18}
"""What an event costs in `push_and_pop` on the machine of the goal, by number of workers."""


def push_and_pop(n, k, rounds):
    """What no simulator can do without: a heap entry for each task, in the same numbers."""
    times = LAW.draws(np.random.default_rng(0), (rounds, n)).tolist()
    for row in times:
        heap = []
        for i, t in enumerate(row):
            heapq.heappush(heap, (t, i))
        for _ in range(k):
            heapq.heappop(heap)


@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
def test_plain_k_sync_events(benchmark, hold, n):
    k, rounds = 3 * n // 4, max(2, 25_600 // n)

    def run():
        host = VirtualHost(LAW)
        return sum(
            o.counts.issued + o.counts.used for o in host.simulate(Engine(FirstK(k), n, keep_records=False), rounds)
        )

    events = benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    benchmark.extra_info["events per second"] = round(events / benchmark.stats.stats.min)
    hold(
        f"simulator, {n} workers, in pushes and pops of a heap",
        lambda: ratio(run, lambda: push_and_pop(n, k, rounds)),
        at_most=EVENT_US / HEAP_EVENT_US[n],
    )


@pytest.mark.parametrize("name", ["uncoded", "speculative", "mds", "polar"])
def test_simulated_methods(benchmark, name):
    one = method(name, 256, 192 if name in {"mds", "polar"} else None)
    found = benchmark.pedantic(lambda: simulate(one, LAW, rounds=40), rounds=3, warmup_rounds=1)
    benchmark.extra_info["events_per_second"] = found.events / benchmark.stats.stats.min


@pytest.mark.parametrize("name", ["uncoded", "speculative", "mds", "polar"])
def test_ten_thousand_rounds_of_a_thousand_workers(benchmark, name):
    one = method(name, 1000, 750 if name in {"mds", "polar"} else None)
    bound = fastest(lambda: LAW.draws(np.random.default_rng(0), (10_000, 1000)), 2)
    benchmark.pedantic(lambda: sample_rounds(one, LAW, rounds=10_000), rounds=2, warmup_rounds=0)
    benchmark.extra_info["ratio_to_drawing_the_delays"] = benchmark.stats.stats.min / bound
