"""When requests are signed, when connections are opened, and what a warm-up does."""

import asyncio
import time

import pytest

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.invoke import LambdaInvoker, warm
from serverless_gc.testing.http_double import http_double, response
from serverless_gc.testing.lambda_endpoint import ECHO, WORKER, LambdaEndpoint, Step, error_step
from serverless_gc.types import TaskSpec

pytestmark = pytest.mark.usefixtures("aws_environment")

FRAME = b"a frame"


@pytest.fixture(scope="module")
def endpoint():
    with LambdaEndpoint({"echo": ECHO, "worker": WORKER}, threads=8) as running:
        yield running


async def opened(function, where, **options):
    invoker = LambdaInvoker(function, region="eu-central-1", endpoint=where, **options)
    await invoker.open()
    return invoker


async def test_requests_are_signed_when_they_are_sent(endpoint):
    """Trial A8, scaled by ten: 200 invocations of 0.05 s, 8 at a time; signatures may be 0.2 s old.

    Signed when they are made, the last ones would wait 24 of 25 waves with their signature.
    """
    service, concurrency, n = 0.05, 8, 200
    gaps: list[float] = []
    endpoint.script("echo", Step(delay=service, times=0))
    invoker = await opened("echo", endpoint.url, concurrency=concurrency, watch=gaps.append)
    started = time.perf_counter()
    await asyncio.gather(*(invoker.invoke(TaskSpec(f"t{i}", i, 0), FRAME, timeout=60.0) for i in range(n)))
    elapsed = time.perf_counter() - started
    await invoker.close()
    endpoint.script("echo")
    assert len(gaps) == n
    assert elapsed > service * n / concurrency
    waves = n / concurrency
    assert max(gaps) < elapsed / waves  # the trial's rule: never more than one service time
    assert sorted(gaps)[n // 2] < elapsed / waves / 10


async def test_connections_are_opened_ahead_and_used():
    with http_double(lambda *_: response(200, b'{"sgc":"AAAA"}')) as server:
        invoker = await opened("worker", server.endpoint, concurrency=12)
        assert await invoker.connect(12) == 12
        for _ in range(2):
            await asyncio.gather(*(invoker.invoke(TaskSpec(f"t{i}", i, 0), FRAME, timeout=10.0) for i in range(12)))
        assert server.connections == 12
        assert await invoker.connect(50) == 12  # the pool holds no more, and those are open
        await invoker.close()
        assert server.connections == 12
        assert len(server.asked) == 24


async def test_connecting_ahead_in_vain_is_no_error():
    with http_double(lambda *_: b"") as server:
        pass
    invoker = await opened("worker", server.endpoint, concurrency=4)
    assert await invoker.connect(4) == 0
    await invoker.close()
    assert await invoker.connect(4) == 0
    sdk = await opened("worker", server.endpoint, transport="sdk")
    assert await sdk.connect(4) == 0
    await sdk.close()


@pytest.mark.parametrize("transport", ["http", "sdk"])
async def test_warming_up_runs_that_many_no_ops_at_once(endpoint, transport):
    before = endpoint.counts("worker")
    invoker = await opened("worker", endpoint.url, concurrency=8, transport=transport)
    warmth = await invoker.warm(8)
    await invoker.close()
    counts = endpoint.counts("worker")
    assert (warmth.asked, warmth.answered, warmth.failures) == (8, 8, {})
    assert counts.runs - before.runs == 8
    assert counts.peak == 8
    assert warmth.environments == 1  # the endpoint is one process
    assert warmth.connections == (8 if transport == "http" else 0)
    assert str(warmth).startswith("8 of 8 no-op invocations answered by 1 environments")


async def test_what_fails_while_warming_up_is_counted(endpoint):
    endpoint.script("worker", error_step(429, "TooManyRequestsException", times=3))
    invoker = await opened("worker", endpoint.url)
    warmth = await invoker.warm(8)
    assert (warmth.answered, warmth.failures) == (5, {"throttled": 3})
    endpoint.script("worker", error_step(403, "AccessDeniedException", "no"))
    with pytest.raises(ConfigError, match="lambda:InvokeFunction"):
        await invoker.warm(2)
    with pytest.raises(InputError, match="n must be at least 1"):
        await warm(invoker, 0)
    await invoker.close()
