# ruff: noqa: ARG001 - stand-ins must have the arguments of what they stand for
"""What the engine and its hosts cost per task, next to bare asyncio in the same run."""

import asyncio
import time

import pytest

from serverless_gc.engine import AioHost, Completion, Engine, VirtualHost
from serverless_gc.policies import FirstK, KSync, WaitAll
from serverless_gc.stragglers import ShiftedExponential


async def no_op(task):
    return Completion()


@pytest.mark.parametrize("n", [64, 256, 1024])
def test_asyncio_host_per_no_op_task(benchmark, n):
    """One round of no-op tasks; the ratio is to ``asyncio.gather`` of as many no-op coroutines."""

    async def gather():
        await asyncio.gather(*[no_op(None) for _ in range(n)])

    loop = asyncio.new_event_loop()
    host, engine = AioHost(), Engine(WaitAll(), n)
    bare = min(timed(lambda: loop.run_until_complete(gather())) for _ in range(20))
    benchmark.pedantic(lambda: loop.run_until_complete(host.run(engine, no_op)), rounds=20, warmup_rounds=2)
    loop.close()
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(
        microseconds_per_task=best / n * 1e6, bare_microseconds_per_task=bare / n * 1e6, ratio_to_gather=best / bare
    )


@pytest.mark.parametrize(("n", "k"), [(64, 48), (64, 64), (1024, 900)])
def test_simulated_task_events_per_second(benchmark, n, k):
    """Plain K-sync without arithmetic; a task event is an issue or an arrival."""
    rounds = max(1, 6400 // n)

    def simulate():
        host = VirtualHost(ShiftedExponential(0.1, 1.0))
        return list(host.simulate(Engine(KSync(k), n, keep_records=False), rounds))

    outcomes = benchmark.pedantic(simulate, rounds=5, warmup_rounds=1)
    events = sum(o.counts.issued + o.counts.used for o in outcomes)
    per_second = events / benchmark.stats.stats.min
    benchmark.extra_info["task_events_per_second"] = per_second


@pytest.mark.parametrize("n", [64, 1024])
def test_voiding_half_of_the_tasks(benchmark, n):
    """A round that closes at half and cancels the other half."""

    async def execute(task):
        if task.slot % 2:
            await asyncio.sleep(60.0)
        return Completion()

    loop = asyncio.new_event_loop()
    host, engine = AioHost(), Engine(FirstK(n // 2), n)
    benchmark.pedantic(lambda: loop.run_until_complete(host.run(engine, execute)), rounds=10, warmup_rounds=1)
    loop.close()


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
