"""What decentralized schemes cost beside their arithmetic, next to a bound measured in the same run."""

import asyncio
import timeit

import numpy as np
import pytest

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.gossip import PushSum, StoredNodes, driver_reduce, ring_reduce, scatter_reduce
from serverless_gc.policies import GossipReady, WaitAll
from serverless_gc.store import MemoryStore
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import OnePeerExponential


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


def test_stored_step(benchmark):
    """Three steps of nodes with an 8 MB model, which write six objects and read two; the ratio is to eight copies."""
    x = np.ones(10**6)
    kernel = PushSum(OnePeerExponential(2), lambda *at: at[-1], x, lr=0.1)

    def step():
        nodes = StoredNodes(kernel, MemoryStore(), "run")

        async def both():
            await nodes.step(0, 1, [])
            await nodes.step(1, 1, [])
            return await nodes.step(0, 2, [(1, 1)])

        return asyncio.run(both())

    copies = fastest(lambda: [x.copy() for _ in range(8)])
    benchmark.pedantic(step, rounds=3, warmup_rounds=1)
    benchmark.extra_info["ratio_to_copies"] = benchmark.stats.stats.min / copies
