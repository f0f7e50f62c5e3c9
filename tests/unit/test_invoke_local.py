"""The local and the simulated invoker; the worker that runs is the real one."""

import asyncio
import threading

import numpy as np
import pytest
import threadpoolctl

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.local import LocalInvoker
from serverless_gc.invoke.simulated import SimulatedInvoker
from serverless_gc.limits import Limits
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task


class Objects:
    """Objects in a dict, and a gate: reading ``"gate"`` waits until the test opens it."""

    def __init__(self):
        self.objects = {}
        self.gate = threading.Event()
        self.reached = threading.Semaphore(0)
        self.blas = []

    def get(self, key):
        self.reached.release()
        if key == "gate":
            assert self.gate.wait(10.0)
        self.blas.append({lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"})
        raise KeyError(key)

    def put(self, key, data, *, if_absent=False):  # noqa: ARG002 - the seam gives the signature
        self.objects[key] = data
        return True

    def exists(self, key):
        return key in self.objects


class InMemory:
    url = "memory://test"

    def __init__(self):
        self.held = Objects()

    def blobs(self):
        return self.held


def job(slot, *, block="", size=3):
    task_id = f"t{slot}"
    wire = Task(
        "run", 0, task_id, slot, 0, "noop", (block,) if block else (), "", "memory://test", params={"size": size}
    )
    return TaskSpec(task_id=task_id, slot=slot, version=0), wire.to_bytes()


async def reached(store, n):
    for _ in range(n):
        assert await asyncio.to_thread(store.held.reached.acquire, timeout=10.0)


@pytest.fixture
def store():
    made = InMemory()
    yield made
    made.held.gate.set()


@pytest.fixture
async def two(store):
    invoker = LocalInvoker(store, threads=2)
    await invoker.open()
    yield invoker
    store.held.gate.set()
    await invoker.close()


async def test_many_tasks_on_few_threads(two):
    jobs = [job(i) for i in range(300)]
    frames = await asyncio.gather(*(two.invoke(s, p, timeout=30.0) for s, p in jobs))
    assert [Reply.from_bytes(f).task_id for f in frames] == [f"t{i}" for i in range(300)]
    assert two.stats.invocations == two.stats.peak == 300
    assert two.stats.in_flight == 0


async def test_timeout_while_running_keeps_the_other_thread_working(two, store):
    spec, payload = job(0, block="gate")
    stuck = asyncio.create_task(two.invoke(spec, payload, timeout=0.05))
    await reached(store, 1)
    with pytest.raises(InvokeError) as caught:
        await stuck
    assert (caught.value.kind, caught.value.may_have_run) == ("timeout", True)
    spec, payload = job(1)
    assert Reply.from_bytes(await two.invoke(spec, payload, timeout=30.0)).status == "ok"


async def test_cancelled_before_its_turn_does_not_run(two, store):
    blockers = [asyncio.create_task(two.invoke(*job(i, block="gate"), timeout=30.0)) for i in range(2)]
    await reached(store, 2)
    queued = asyncio.create_task(two.invoke(*job(2, block="counted"), timeout=30.0))
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    store.held.gate.set()
    await asyncio.gather(*blockers)
    assert Reply.from_bytes(await two.invoke(*job(3), timeout=30.0)).status == "ok"
    assert not store.held.reached.acquire(blocking=False)  # "counted" was never read


async def test_blas_has_one_thread_while_several_tasks_run_and_its_own_count_afterwards(store):
    def blas():
        return {lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"}

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas()
        first, second = LocalInvoker(store, threads=2), LocalInvoker(store, threads=2)
        await asyncio.gather(first.open(), second.open())
        running = [
            asyncio.create_task(invoker.invoke(*job(i, block="gate"), timeout=30.0))
            for invoker in (first, second)
            for i in range(2)
        ]
        await reached(store, 4)
        store.held.gate.set()
        await asyncio.gather(*running)
        assert store.held.blas == [{1}] * 4
        assert blas() == before
        await asyncio.gather(first.close(), second.close())


async def test_reply_above_the_limit_is_refused_with_sizes(store):
    limits = Limits(reply_bytes=2000)
    for invoker in (LocalInvoker(store, limits=limits), SimulatedInvoker(store, limits=limits)):
        await invoker.open()
        with pytest.raises(InvokeError, match=r"\d{4} bytes .* 2000.*inline_limit") as caught:
            await invoker.invoke(*job(0, size=1000), timeout=30.0)
        assert (caught.value.kind, caught.value.may_have_run) == ("too-large", True)
        await invoker.close()


async def test_close_gives_up_what_waits_and_does_not_wait_for_what_hangs(store):
    invoker = LocalInvoker(store, threads=1)
    await invoker.open()
    running = [asyncio.create_task(invoker.invoke(*job(i, block="gate"), timeout=60.0)) for i in range(5)]
    await reached(store, 1)
    async with asyncio.timeout(5.0):  # the promise is two seconds
        await invoker.close()
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert {o.kind for o in outcomes} == {"unavailable"}
    assert not any(o.retryable for o in outcomes)
    assert invoker.stats.in_flight == 0


async def test_reopened_after_close(store):
    invoker = LocalInvoker(store, threads=1)
    for _ in range(2):
        await invoker.open()
        assert Reply.from_bytes(await invoker.invoke(*job(0), timeout=30.0)).status == "ok"
        await invoker.close()
    with pytest.raises(InputError, match="open"):
        await invoker.invoke(*job(0), timeout=1.0)


def test_threads_is_checked(store):
    with pytest.raises(InputError, match="threads"):
        LocalInvoker(store, threads=0)


def test_simulated_runs_without_a_loop(store):
    invoker = SimulatedInvoker(store)
    assert Reply.from_bytes(invoker.run(*job(5))).task_id == "t5"
    assert invoker.stats.invocations == 1
