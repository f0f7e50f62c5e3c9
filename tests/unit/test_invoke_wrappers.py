import asyncio

import numpy as np
import pytest

from serverless_gc.errors import InvokeError
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.wrappers import FaultyInvoker, StragglingInvoker, inject
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply


def spec(slot=0, version=0, attempt=0):
    return TaskSpec(task_id=f"v{version}-s{slot}", slot=slot, version=version, attempt=attempt)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


class Working(Invoker):
    """Takes half a second of the clock and answers a reply that names the task."""

    name = "working"

    def __init__(self, clock=None, value=(1.0, 2.0)):
        super().__init__()
        self.clock, self.value = clock, value
        self.ran = []

    async def invoke(self, task, payload, *, timeout):  # noqa: ARG002 - the seam gives the signature
        self.stats.invocations += 1
        if self.clock is not None:
            self.clock.now += 0.5
        self.ran.append((task.version, task.slot, task.attempt))
        value = None if self.value is None else np.array(self.value)
        return Reply("r", task.version, task.task_id, task.slot, task.attempt, "ok", value).to_bytes()


async def answer(invoker, task, timeout=60.0):
    return Reply.from_bytes(await invoker.invoke(task, b"", timeout=timeout))


async def test_straggler_takes_slowdown_times_base_and_work():
    clock = Clock()
    stragglers = Stragglers(fraction=[3], slowdown=10.0, base=0.1)
    invoker = StragglingInvoker(Working(clock), stragglers, sleep=clock.sleep, clock=clock)
    await answer(invoker, spec(slot=0))
    assert clock.now == pytest.approx(0.6)
    clock.now = 0.0
    await answer(invoker, spec(slot=3))
    assert clock.now == pytest.approx(6.0)


async def test_straggler_beyond_the_timeout_ends_at_the_timeout():
    clock = Clock()
    inner = Working(clock)
    stragglers = Stragglers(fraction=1.0, slowdown=10.0, base=0.1)
    invoker = StragglingInvoker(inner, stragglers, sleep=clock.sleep, clock=clock)
    with pytest.raises(InvokeError) as caught:
        await answer(invoker, spec(), timeout=4.0)
    assert caught.value.kind == "timeout"
    assert clock.now == pytest.approx(4.0)
    assert inner.ran  # it started after one second

    clock.now, inner.ran = 0.0, []
    with pytest.raises(InvokeError):
        await answer(invoker, spec(), timeout=0.5)
    assert clock.now == pytest.approx(0.5)
    assert not inner.ran  # still starting up


async def test_same_task_same_delay_whatever_the_order():
    stragglers = Stragglers(fraction=0.3, slowdown=2.0, seed=5)

    async def times(order):
        clock = Clock()
        invoker = StragglingInvoker(Working(clock), stragglers, sleep=clock.sleep, clock=clock)
        took = {}
        for slot in order:
            start = clock.now
            await answer(invoker, spec(slot))
            took[slot] = round(clock.now - start, 9)
        return took

    forward = await times(range(40))
    assert forward == await times(reversed(range(40)))
    assert set(forward.values()) == {0.5, 1.0}


async def test_throttle_counts_per_task():
    invoker = FaultyInvoker(Working(), Faults(throttle=[1], throttle_times=2))
    for _ in range(2):
        with pytest.raises(InvokeError) as caught:
            await answer(invoker, spec(1))
        assert caught.value.kind == "throttled"
        assert not caught.value.may_have_run
    assert (await answer(invoker, spec(1))).status == "ok"
    assert (await answer(invoker, spec(1, attempt=1))).status == "ok"
    assert (await answer(invoker, spec(0))).status == "ok"
    assert (invoker.stats.invocations, invoker.stats.throttles) == (5, 2)


async def test_concurrency_refuses_the_eleventh():
    faulty = FaultyInvoker(Working(), Faults(concurrency=10, drop=1.0))
    running = [asyncio.create_task(faulty.invoke(spec(i), b"", timeout=1.0)) for i in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(InvokeError) as caught:
        await answer(faulty, spec(10))
    assert caught.value.kind == "throttled"
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    refused = asyncio.create_task(faulty.invoke(spec(11), b"", timeout=1.0))
    await asyncio.sleep(0)
    assert not refused.done()  # admitted: the ten that were cancelled count no more
    refused.cancel()
    await asyncio.gather(refused, return_exceptions=True)


async def test_drop_never_runs_the_worker():
    inner = Working()
    invoker = FaultyInvoker(inner, Faults(drop=[0]))
    running = asyncio.create_task(invoker.invoke(spec(0), b"", timeout=0.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    assert not inner.ran
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_lost_reply_ran_and_may_be_recovered():
    inner = Working()
    with pytest.raises(InvokeError) as caught:
        await answer(FaultyInvoker(inner, Faults(lose_reply=[0])), spec(0))
    assert (caught.value.kind, caught.value.may_have_run) == ("lost", True)
    assert inner.ran == [(0, 0, 0)]


async def test_fail_concerns_the_first_attempts():
    inner = Working()
    invoker = FaultyInvoker(inner, Faults(fail=[0], fail_times=2))
    for attempt in range(2):
        with pytest.raises(InvokeError) as caught:
            await answer(invoker, spec(0, attempt=attempt))
        assert caught.value.kind == "function"
    assert (await answer(invoker, spec(0, attempt=2))).status == "ok"
    assert inner.ran == [(0, 0, 2)]


async def test_late_delivers_the_earlier_round_then_the_truth():
    """Trial A26 for this piece."""
    inner = Working()
    invoker = FaultyInvoker(inner, Faults(late=[2]))
    first = await answer(invoker, spec(2, version=0))
    assert first.round == 0  # nothing earlier to deliver
    stale = await answer(invoker, spec(2, version=1))
    assert (stale.round, stale.task_id) == (0, "v0-s2")
    assert (1, 2, 0) in inner.ran  # the task itself ran
    again = await answer(invoker, spec(2, version=1, attempt=1))
    assert (again.round, again.attempt) == (1, 1)
    assert (await answer(invoker, spec(2, version=2))).round == 1
    assert (await answer(invoker, spec(0, version=0))).round == 0
    assert (await answer(invoker, spec(0, version=1))).round == 1  # other slots are punctual


@pytest.mark.parametrize("value", [(1.0, 2.0), (1, 2), (1j, 2j)])
async def test_non_finite_spoils_the_first_entry(value):
    reply = await answer(FaultyInvoker(Working(value=value), Faults(non_finite=1.0)), spec(0))
    assert np.isnan(reply.value[0])
    assert reply.value[1] == value[1]
    assert reply.status == "ok"


async def test_non_finite_leaves_stored_results_alone():
    reply = await answer(FaultyInvoker(Working(value=None), Faults(non_finite=1.0)), spec(0))
    assert reply.value is None


def test_inject_puts_stragglers_inside():
    base = Working()
    wrapped = inject(base, [Faults(drop=[1]), Stragglers(), Faults(corrupt=[3])])
    assert isinstance(wrapped, FaultyInvoker)
    assert isinstance(wrapped.inner, StragglingInvoker)
    assert wrapped.inner.inner is base
    assert wrapped.stats is base.stats
    assert (wrapped.name, wrapped.concurrency) == ("working", base.concurrency)


def test_inject_nothing_is_nothing():
    base = Working()
    assert inject(base, []) is base
    assert inject(base, [Faults(slow_down=0.5), Faults(drop=()), Faults()]) is base


async def test_open_and_close_reach_the_inner_invoker():
    class Doors(Working):
        doors = ()

        async def open(self):
            self.doors = (*self.doors, "open")

        async def close(self):
            self.doors = (*self.doors, "close")

    base = Doors()
    wrapped = inject(base, [Stragglers(), Faults(fail=1.0)])
    await wrapped.open()
    await wrapped.close()
    assert base.doors == ("open", "close")
