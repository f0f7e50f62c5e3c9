import asyncio
import random

import pytest

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import Faults
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.retry import RetryingInvoker, RetryPolicy
from serverless_gc.invoke.wrappers import FaultyInvoker
from serverless_gc.types import TaskSpec


def spec(slot=0, attempt=0):
    return TaskSpec(task_id=f"t{slot}", slot=slot, version=0, attempt=attempt)


class Scripted(Invoker):
    """Answers by a list: an error is raised, bytes are returned, "hang" never ends; afterwards b"ok"."""

    name = "scripted"
    concurrency = 100

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.timeouts = []

    async def invoke(self, task, payload, *, timeout):  # noqa: ARG002 - the seam gives the signature
        self.stats.invocations += 1
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if self.answers else b"ok"
        if isinstance(answer, InvokeError):
            self.stats.throttles += answer.kind == "throttled"
            raise answer
        if answer == "hang":
            await asyncio.get_running_loop().create_future()
        return answer


class Brief(Invoker):
    """A service that takes a few turns of the loop."""

    concurrency = 64

    async def invoke(self, task, payload, *, timeout):  # noqa: ARG002 - the seam gives the signature
        self.stats.invocations += 1
        for _ in range(20):
            await asyncio.sleep(0)
        return payload


class Clock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def throttled():
    return InvokeError("429", kind="throttled")


def retrying(inner, policy=None, **options):
    clock = Clock()
    options.setdefault("rng", random.Random(0))
    return RetryingInvoker(inner, policy, sleep=clock.sleep, clock=clock, **options), clock


async def test_refusals_are_repeated_and_counted():
    inner = Scripted(throttled(), InvokeError("503", kind="unavailable", may_have_run=False), b"answer")
    invoker, clock = retrying(inner)
    assert await invoker.invoke(spec(), b"", timeout=60.0) == b"answer"
    stats = invoker.stats
    assert (stats.invocations, stats.throttles, stats.retries) == (3, 1, 2)
    assert len(clock.slept) == 2


async def test_waits_have_full_jitter_and_a_cap():
    policy = RetryPolicy(max_tries=9, base=1.0, cap=8.0)
    invoker, clock = retrying(Scripted(*(throttled() for _ in range(8))), policy)
    await invoker.invoke(spec(), b"", timeout=1000.0)
    ceilings = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    expected = random.Random(0)
    assert clock.slept == [expected.uniform(0.0, c) for c in ceilings]


@pytest.mark.parametrize(
    "kind", ["timeout", "lost", "function", "bad-reply", "corrupt", "denied", "missing", "too-large"]
)
async def test_everything_else_passes_through(kind):
    error = InvokeError("no", kind=kind)
    inner = Scripted(error)
    invoker, clock = retrying(inner)
    with pytest.raises(InvokeError) as caught:
        await invoker.invoke(spec(), b"", timeout=60.0)
    assert caught.value is error
    assert inner.stats.invocations == 1
    assert not clock.slept


async def test_unavailable_that_may_have_run_is_not_repeated():
    inner = Scripted(InvokeError("502", kind="unavailable", may_have_run=True))
    invoker, _ = retrying(inner)
    with pytest.raises(InvokeError):
        await invoker.invoke(spec(), b"", timeout=60.0)
    assert inner.stats.invocations == 1


async def test_tries_are_bounded():
    inner = Scripted(*(throttled() for _ in range(50)))
    invoker, _ = retrying(inner, RetryPolicy(max_tries=4))
    with pytest.raises(InvokeError) as caught:
        await invoker.invoke(spec(), b"", timeout=600.0)
    assert caught.value.kind == "throttled"
    assert inner.stats.invocations == 4
    assert invoker.stats.retries == 3


async def test_waits_stay_within_the_timeout():
    inner = Scripted(*(throttled() for _ in range(50)))
    invoker, clock = retrying(inner, RetryPolicy(max_tries=50, base=1.0, cap=1.0))
    with pytest.raises(InvokeError) as caught:
        await invoker.invoke(spec(), b"", timeout=3.0)
    assert caught.value.kind == "throttled"
    assert clock.now < 3.0
    assert inner.timeouts == sorted(inner.timeouts, reverse=True)
    assert inner.timeouts[0] == 3.0


async def test_budget_is_shared_and_refilled_by_success():
    inner = Scripted(throttled(), throttled(), b"one", throttled(), b"two", throttled())
    invoker, _ = retrying(inner, RetryPolicy(budget=2))
    assert await invoker.invoke(spec(), b"", timeout=60.0) == b"one"  # takes two, gives one back
    assert await invoker.invoke(spec(), b"", timeout=60.0) == b"two"  # takes one, gives one back
    inner.answers = [throttled(), throttled()]
    with pytest.raises(InvokeError):
        await invoker.invoke(spec(), b"", timeout=60.0)


async def test_cancellation_passes_at_once():
    inner = Scripted("hang")
    invoker, _ = retrying(inner)
    running = asyncio.create_task(invoker.invoke(spec(), b"", timeout=60.0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert invoker.limit.in_flight == 0
    assert inner.stats.invocations == 1


async def test_an_inner_call_that_never_returns_ends_with_the_timeout():
    invoker, _ = retrying(Scripted("hang"))
    with pytest.raises(InvokeError) as caught:
        await invoker.invoke(spec(), b"", timeout=0.01)
    assert (caught.value.kind, caught.value.reason) == ("timeout", "no reply")
    assert caught.value.may_have_run
    assert invoker.limit.in_flight == 0


async def test_an_attempt_that_never_gets_its_turn_did_not_run():
    inner = Scripted("hang")
    inner.concurrency = 1
    invoker, _ = retrying(inner)
    first = asyncio.create_task(invoker.invoke(spec(), b"", timeout=60.0))
    await asyncio.sleep(0)
    with pytest.raises(InvokeError, match="not started: 1 of 1") as caught:
        await invoker.invoke(spec(1), b"", timeout=0.01)
    assert not caught.value.may_have_run
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_every_third_call_throttled_twice():
    """Trial A1 for this piece: none is lost, all is counted."""
    faults = Faults(throttle=range(0, 64, 3), throttle_times=2)
    invoker, _ = retrying(FaultyInvoker(Brief(), faults))
    replies = await asyncio.gather(*(invoker.invoke(spec(i), b"%d" % i, timeout=60.0) for i in range(64)))
    assert replies == [b"%d" % i for i in range(64)]
    hit = len(range(0, 64, 3))
    assert invoker.stats.throttles == 2 * hit
    assert invoker.stats.retries == 2 * hit
    assert invoker.stats.invocations == 64 + 2 * hit
    assert invoker.limit.in_flight == invoker.limit.waiting == 0


async def test_account_with_a_concurrency_of_ten():
    """Trial A2 for this piece: 64 invocations end in waves, and the limit is found."""
    invoker, _ = retrying(FaultyInvoker(Brief(), Faults(concurrency=10)))
    replies = await asyncio.gather(*(invoker.invoke(spec(i), b"%d" % i, timeout=60.0) for i in range(64)))
    assert replies == [b"%d" % i for i in range(64)]
    assert invoker.limit.found == 10
    # 54 in the first burst, for a refusal takes a round trip; blind repetition would be refused hundreds of times
    assert 54 <= invoker.stats.throttles <= 100
    assert invoker.stats.throttles == invoker.stats.retries == invoker.stats.invocations - 64


async def test_a_few_calls_that_never_answer():
    """Trial A9 for this piece: all calls end, and no task is left."""
    before = len(asyncio.all_tasks())
    for round_ in range(2):
        invoker, _ = retrying(FaultyInvoker(Brief(), Faults(drop=0.05, seed=round_)))
        outcomes = await asyncio.gather(
            *(invoker.invoke(spec(i), b"", timeout=1.0) for i in range(128)), return_exceptions=True
        )
        kinds = [o.kind for o in outcomes if isinstance(o, InvokeError)]
        assert set(kinds) == {"timeout"}
        assert kinds.count("timeout") + outcomes.count(b"") == 128
        assert invoker.limit.in_flight == 0
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize(
    ("options", "named"),
    [({"max_tries": 0}, "max_tries"), ({"base": 2.0, "cap": 1.0}, "base"), ({"budget": -1}, "budget")],
)
def test_policy_is_checked(options, named):
    with pytest.raises(InputError, match=named):
        RetryPolicy(**options)
