"""What decentralized schemes cost beside their arithmetic, next to a bound measured in the same run."""

import asyncio
import timeit
from functools import partial

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.gossip import driver_reduce, ring_reduce, scatter_reduce
from serverless_gc.policies import GossipReady, WaitAll
from serverless_gc.store import MemoryStore
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import OnePeerExponential
from serverless_gc.wire import Task
from serverless_gc.worker.entry import run


def fastest(call):
    return min(timeit.repeat(call, number=1, repeat=5))


@pytest.mark.parametrize("n", [16, 256])
def test_gossip_policy_per_task(benchmark, n):
    """Simulated rounds of single nodes; the ratio is to rounds with a barrier."""
    rounds = 4096 // n

    def simulate(policy, repeats):
        host = VirtualHost(Exponential(1.0))
        return list(host.simulate(Engine(policy, n, keep_records=False), repeats))

    barrier = fastest(lambda: simulate(WaitAll(), rounds))
    benchmark.pedantic(lambda: simulate(GossipReady(OnePeerExponential(n), every=rounds), 1), rounds=5, warmup_rounds=1)
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(microseconds_per_task=best / (n * rounds) * 1e6, ratio_to_barrier=best / barrier)


@pytest.mark.parametrize("reduce", [driver_reduce, scatter_reduce, ring_reduce])
def test_reduction_of_eight_vectors(benchmark, reduce):
    """Sums of 8 x 8 MB through a store in memory; the ratio is to the copies that its bytes need."""
    vectors = np.ones((8, 10**6))
    copies = fastest(lambda: [vectors.copy() for _ in range(2)])
    benchmark.pedantic(lambda: asyncio.run(reduce(MemoryStore(), "r", vectors)), rounds=3, warmup_rounds=1)
    benchmark.extra_info["ratio_to_copies"] = benchmark.stats.stats.min / copies


def test_rounds_of_nodes_in_workers(benchmark):
    """Two rounds of two nodes with an 8 MB model, 8 objects written and 6 read; the ratio is to copies of these."""
    d = 10**6
    X, y = np.zeros((2, d)), np.zeros(2)
    copies = fastest(lambda: [X[0].copy() for _ in range(14)])
    with sgc.Session("simulated") as s:
        data = s.encode(X, y, code="ignore-stragglers", n_workers=2)
        call = partial(sgc.minimize_decentralized, data, np.ones(d), lr=0.1, rounds=2)
        fit = benchmark.pedantic(call, rounds=3, warmup_rounds=1)
    assert (fit.traffic.puts, fit.traffic.gets) == (8, 4)
    benchmark.extra_info["ratio_to_copies"] = benchmark.stats.stats.min / copies


def test_node_rounds_per_second(benchmark):
    """Rounds of small nodes through the whole path, simulated clock; the ratio is to no-op tasks in the worker."""
    rounds, n = 25, 8
    X, y = np.ones((16, 2)), np.ones(16)
    task = Task("r", 0, "t", 0, 0, kernel="noop", blocks=(), result_key="", store="file:///").to_bytes()
    bound = fastest(lambda: [run(task) for _ in range(rounds * n)])
    with sgc.Session("simulated") as s:
        data = s.encode(X, y, code="ignore-stragglers", n_workers=n)
        call = partial(sgc.minimize_decentralized, data, np.ones(2), lr=0.1, rounds=rounds)
        benchmark.pedantic(call, rounds=3, warmup_rounds=1)
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(microseconds_per_round=best / (n * rounds) * 1e6, ratio_to_noop=best / bound)
