"""What the driver spends: the collector per result, and a whole local round whose tasks have next to nothing to do.

Bounds in the same run: a copy of the result's bytes for the collector, the worker called in line for the round.
"""

import statistics
import sys
import time

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.collect import Collector
from serverless_gc.engine import Arrived, Engine
from serverless_gc.policies import UntilDecodable
from serverless_gc.store import MemoryStore
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task, pack_block, unpack
from serverless_gc.worker import entry

COLLECTOR_GOAL_US = 30.0


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def median_us(function, repeats=200):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


@pytest.mark.parametrize("size", [1000, 10_000])
def test_collector(benchmark, capsys, size):
    """Unpack, check, file and test decodability: everything that runs for a result that landed."""
    n, k = 64, 48
    code = get("polar", n_workers=n, k=k)
    values = np.random.default_rng(0).standard_normal((n, size))
    stats = {"python": "3.13.0", "numpy": "2.4.0", "cold": False, "execution": "0" * 32}
    times = {"read": 0.01, "compute": 0.1, "write": 0.01, "started": 1.0e9}
    replies = [
        Reply("run", 1, f"1-{i}", i, 0, "ok", value=values[i], times=times, stats=stats).to_bytes() for i in range(n)
    ]
    specs = [TaskSpec(f"1-{i}", i, 1) for i in range(n)]
    memory = Collector(code, (size,), np.dtype(float)).answer  # touched once: page faults belong to the allocation

    def fresh():
        collector = Collector(code, (size,), np.dtype(float))
        collector.answer = memory
        engine = Engine(UntilDecodable(code), n, version=1)
        engine.open(0.0)
        return (collector, engine), {}

    def collect(collector, engine):
        for i in range(n):
            if not engine.is_open:
                return i
            reply = Reply.from_bytes(replies[i])
            collector.file(i, reply.value)
            engine.handle(Arrived(specs[i], reply.value, stats=reply.stats), 1.0)
        return n

    count = collect(*fresh()[0])
    benchmark.pedantic(collect, setup=fresh, rounds=50, warmup_rounds=3)
    each = statistics.median(benchmark.stats.stats.data) / count * 1e6
    checksum = median_us(lambda: unpack(replies[0])) - median_us(lambda: unpack(replies[0], verify=False))
    target = np.empty(size)
    copy = median_us(lambda: np.copyto(target, values[0]))
    benchmark.extra_info.update(us_per_result=round(each, 1), checksum_us=round(checksum, 1), copy_us=round(copy, 2))
    tell(
        capsys,
        f"collector, {size} numbers: {each:.1f} us a result, {checksum:.1f} of it the checksum; "
        f"one copy {copy:.2f} us; goal {COLLECTOR_GOAL_US:g} without checksum",
    )


@pytest.mark.parametrize("n", [64, 256, 1024])
def test_local_round(benchmark, capsys, n):
    """One product of a matrix with one small row per block."""
    k = n * 3 // 4
    rng = np.random.default_rng(0)
    X, x = rng.standard_normal((k, 8)), rng.standard_normal(8)
    with sgc.Session() as session:
        data = session.encode(X, code="mds", n_workers=n, k=k)
        benchmark.pedantic(data.matvec, args=(x,), rounds=20, warmup_rounds=3)
    each = statistics.median(benchmark.stats.stats.data) / n * 1e6

    store = MemoryStore()
    blobs = store.blobs()
    blobs.put("block", pack_block(X[:1]))
    payloads = [
        Task("r", 1, str(i), i, 0, "matvec", ("block",), f"out/{i}", store.url, x, inline_limit=100).to_bytes()
        for i in range(200)
    ]
    pending = iter(payloads)
    inline = median_us(lambda: entry.run(next(pending), lambda _: blobs), repeats=len(payloads))
    benchmark.extra_info.update(us_per_task=round(each, 1), worker_in_line_us=round(inline, 1))
    tell(capsys, f"local round, N={n}: {each:.0f} us a task, the worker called in line {inline:.0f} us")
