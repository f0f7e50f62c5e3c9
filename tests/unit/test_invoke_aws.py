"""The Lambda invoker against an endpoint that counts requests; no worker is needed: functions echo."""

import asyncio
import gc
import os
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from serverless_gc.errors import ConfigError, InputError, InvokeError
from serverless_gc.invoke.aws import LambdaInvoker
from serverless_gc.invoke.retry import RetryingInvoker
from serverless_gc.limits import Limits
from serverless_gc.testing.lambda_endpoint import ECHO, LambdaEndpoint, Step, error_step
from serverless_gc.types import TaskSpec

FRAME = b"a frame, opaque to the invoker"
FUNCTIONS = {"worker": ECHO, "crowded": ECHO, "raising": "operator:truediv"}


@pytest.fixture(scope="module")
def endpoint():
    with LambdaEndpoint(FUNCTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def small_account():
    with LambdaEndpoint({"worker": ECHO}, concurrency=10) as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(params=["http", "sdk"])
def transport(request):
    return request.param


def spec(slot=0):
    return TaskSpec(task_id=f"t{slot}", slot=slot, version=0)


class Opened:
    """An open invoker, as a context."""

    def __init__(self, where, function="worker", **options):
        options = {"region": "eu-central-1", "endpoint": where.url, "concurrency": 64, **options}
        self.invoker = LambdaInvoker(function, **options)

    async def __aenter__(self):
        await self.invoker.open()
        return self.invoker

    async def __aexit__(self, *_):
        await self.invoker.close()


async def failure(invoker, timeout=10.0):
    with pytest.raises(InvokeError) as caught:
        await invoker.invoke(spec(), FRAME, timeout=timeout)
    return caught.value


async def test_frames_come_back(endpoint, transport):
    async with Opened(endpoint, transport=transport) as invoker:
        frames = [b"%d" % i * 1000 for i in range(100)]
        replies = await asyncio.gather(*(invoker.invoke(spec(i), f, timeout=30.0) for i, f in enumerate(frames)))
    assert replies == frames
    assert invoker.stats.invocations == 100
    assert invoker.stats.peak <= 64


async def test_concurrency_is_kept_before_a_request_exists(endpoint, transport):
    async with Opened(endpoint, "crowded", concurrency=5, transport=transport) as invoker:
        await asyncio.gather(*(invoker.invoke(spec(i), FRAME, timeout=30.0) for i in range(60)))
    assert invoker.stats.peak == 5
    assert endpoint.counts("crowded").peak <= 5


# --- Trial A3: one request per attempt ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        Step(action="hang"),
        Step(action="break"),
        Step(action="lose"),
        error_step(429, "TooManyRequestsException", "Rate Exceeded."),
        error_step(500, "ServiceException"),
        error_step(503, "ServiceUnavailable"),
        Step(action="reply", status=307, headers={"Location": "/2015-03-31/functions/worker/invocations"}),
    ],
    ids=lambda step: f"{step.action}-{step.status}",
)
async def test_one_request_per_attempt(endpoint, transport, step, monkeypatch):
    if step.status == 307 and transport == "sdk":
        pytest.skip("the reference transport follows redirects, and offers no way not to")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("AWS_RETRY_MODE", "legacy")
    endpoint.script("worker", step)
    before = endpoint.counts("worker").requests
    async with Opened(endpoint, transport=transport) as invoker:
        await failure(invoker, timeout=2.0 if step.action == "hang" else 30.0)
        assert invoker.stats.invocations == 1
        assert endpoint.counts("worker").requests - before == 1


async def test_silent_connection_is_one_request_and_a_timeout(endpoint, transport, monkeypatch):
    """The client's own read timeout, scaled down as the trial does, does not send the request again."""
    monkeypatch.setattr("serverless_gc.invoke.aws.READ_MARGIN", 0.2)
    endpoint.script("worker", Step(delay=2.0))
    before = endpoint.counts("worker").requests
    async with Opened(endpoint, transport=transport, limits=Limits(function_timeout=0.1)) as invoker:
        assert invoker.client_config.read_timeout == pytest.approx(0.3)
        error = await failure(invoker, timeout=30.0)
    assert (error.kind, error.may_have_run) == ("timeout", True)
    assert "silent" in str(error)
    assert endpoint.counts("worker").requests - before == 1


async def test_effective_configuration(endpoint):
    async with Opened(endpoint, concurrency=123, limits=Limits(function_timeout=700.0)) as invoker:
        config = invoker.client_config
    assert config.retries == {"total_max_attempts": 1, "mode": "standard"}
    assert config.read_timeout > 700.0
    assert config.max_pool_connections == 123


# --- Trial A6: distinct errors, with a name and a next step ------------------------------------------------------


async def test_unknown_function(endpoint, transport):
    async with Opened(endpoint, "no-such-function", transport=transport) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason, error.retryable) == ("missing", "no such function", False)
    for part in ("no-such-function", "eu-central-1", "serverless-gc deploy", "AWS_REGION"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("step", "kind", "reason", "advice"),
    [
        (error_step(403, "ExpiredTokenException", "expired"), "denied", "credentials expired", "aws sso login"),
        (error_step(403, "UnrecognizedClientException"), "denied", "credentials invalid", "get-caller-identity"),
        (error_step(403, "InvalidSignatureException"), "denied", "signature refused", "clock"),
        (error_step(403, "AccessDeniedException", "no"), "denied", "not allowed", "lambda:InvokeFunction"),
        (error_step(502, "KMSAccessDeniedException"), "denied", "key refused", "KMS"),
        (error_step(413, "RequestTooLargeException"), "too-large", "request too large", "store"),
        (error_step(429, "TooManyRequestsException", Reason="ReservedX"), "throttled", "throttled", "ReservedX"),
        (error_step(500, "ServiceException"), "unavailable", "service unavailable", "did not run"),
        (error_step(409, "ResourceConflictException"), "unavailable", "service unavailable", "did not run"),
        (error_step(400, "InvalidRequestContentException"), "bad-reply", "request refused", "doctor"),
        (Step(action="reply", status=502, body="<html>"), "unavailable", "service unavailable", "502"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
async def test_refusals(endpoint, transport, step, kind, reason, advice):
    endpoint.script("worker", step)
    async with Opened(endpoint, transport=transport) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason) == (kind, reason)
    assert advice in str(error)
    assert error.retryable is (kind in {"throttled", "unavailable"})
    assert not error.may_have_run
    assert invoker.stats.throttles == (kind == "throttled")
    assert error.request_id or transport == "sdk"  # which loses it where the body is no JSON


async def test_no_credentials(endpoint, transport, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    async with Opened(endpoint, transport=transport) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason) == ("denied", "no credentials")
    assert "aws configure" in str(error)


async def test_no_region(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="AWS_REGION"):
        await LambdaInvoker("worker").open()


async def test_region_and_endpoint_come_from_the_environment(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", endpoint.url)
    async with Opened(endpoint, "nobody", region=None, endpoint=None) as invoker:
        assert "in ap-south-1 answered 404" in str(await failure(invoker))


async def test_credentials_that_expire_in_the_middle(endpoint, transport):
    """Trial A32 for this piece: that very reason, at once, and the same invoker works again when they are renewed."""
    before = endpoint.counts("worker").requests
    endpoint.script("worker", Step(), Step(), error_step(403, "ExpiredTokenException", "The token is expired"))
    async with Opened(endpoint, transport=transport) as inner:
        invoker = RetryingInvoker(inner)
        for _ in range(2):
            assert await invoker.invoke(spec(), FRAME, timeout=10.0) == FRAME
        error = await failure(invoker)
        assert (error.kind, error.reason, error.retryable) == ("denied", "credentials expired", False)
        assert await invoker.invoke(spec(), FRAME, timeout=10.0) == FRAME
    assert endpoint.counts("worker").requests - before == 4
    assert inner.stats.retries == 0


async def test_proxy_of_the_environment(endpoint, transport, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", endpoint.url)
    monkeypatch.setenv("http_proxy", endpoint.url)
    async with Opened(SimpleNamespace(url="http://lambda.example.invalid"), transport=transport) as invoker:
        assert await invoker.invoke(spec(), FRAME, timeout=10.0) == FRAME


async def test_refused_connection(transport):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nobody = SimpleNamespace(url=f"http://127.0.0.1:{port}")
    async with Opened(nobody, transport=transport) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason, error.may_have_run) == ("unavailable", "cannot connect", False)
    assert "AWS_ENDPOINT_URL_LAMBDA" in str(error)


@pytest.mark.parametrize("action", ["break", "lose"])
async def test_broken_connection_is_a_lost_reply(endpoint, transport, action):
    """On a connection that was used before too: HTTP clients like to repeat a request on those."""
    endpoint.script("worker", Step(), Step(action=action))
    before = endpoint.counts("worker").requests
    async with Opened(endpoint, transport=transport) as invoker:
        await invoker.invoke(spec(), FRAME, timeout=10.0)
        error = await failure(invoker)
    assert (error.kind, error.may_have_run) == ("lost", True)
    assert endpoint.counts("worker").requests - before == 2


# --- Trial A25: failures that answer 200 -------------------------------------------------------------------------


async def test_five_ways_not_to_be_a_reply(endpoint, transport):
    script = (
        Step(action="reply", headers={"X-Amz-Function-Error": "Unhandled"}, body='{"errorType": "KeyError"}'),
        Step(action="reply", body="null"),
        Step(action="reply", body='{"statusCode": 200}'),
        Step(action="reply", status=202),
        Step(action="reply", body='{"sgc": "not base64"}'),
    )
    endpoint.script("worker", *script)
    async with Opened(endpoint, transport=transport) as invoker:
        errors = [await failure(invoker) for _ in script]
    assert [e.kind for e in errors] == ["function", *["bad-reply"] * 4]
    reasons = [e.reason for e in errors]
    assert reasons == ["function raised", "empty reply", "no envelope", "unexpected status", "undecodable base64"]
    assert all(e.request_id for e in errors)


@pytest.mark.parametrize(
    ("error_type", "message", "kind", "reason"),
    [
        ("Sandbox.Timedout", "x Task timed out after 3.00 seconds", "function", "function timed out"),
        ("", "2026-01-01 x Task timed out after 3.00 seconds", "function", "function timed out"),
        ("Runtime.OutOfMemory", "Error: Runtime exited", "function", "out of memory"),
        ("Runtime.ExitError", "Runtime exited with error: signal: killed", "function", "out of memory"),
        ("Runtime.ExitError", "Runtime exited with error: exit status 3", "function", "function exited"),
        ("Runtime.ImportModuleError", "No module named numpy", "function", "worker not importable"),
        ("ValueError", "shapes", "function", "function raised"),
        ("Function.ResponseSizeTooLarge", "6 MB", "too-large", "reply too large"),
    ],
)
async def test_function_errors_are_told_apart(endpoint, error_type, message, kind, reason):
    body = f'{{"errorType": "{error_type}", "errorMessage": "{message}"}}'
    endpoint.script("worker", Step(action="reply", headers={"X-Amz-Function-Error": "Unhandled"}, body=body))
    async with Opened(endpoint) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason) == (kind, reason)
    assert message in str(error)


async def test_exception_of_the_handler(endpoint, transport):
    async with Opened(endpoint, "raising", transport=transport) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.reason) == ("function", "function raised")
    assert "TypeError" in str(error)
    assert "/aws/lambda/raising" in str(error)


# --- Sizes, leaks, waves -----------------------------------------------------------------------------------------


async def test_too_large_is_refused_before_the_network(endpoint):
    before = endpoint.counts("worker").requests
    async with Opened(endpoint) as invoker:
        with pytest.raises(InvokeError) as caught:
            await invoker.invoke(spec(), bytes(5 * 2**20), timeout=10.0)
    assert caught.value.kind == "too-large"
    assert str(6 * 2**20) in str(caught.value)
    assert endpoint.counts("worker").requests == before


async def test_calls_that_never_answer_leave_no_socket_and_no_task(endpoint, transport):
    """Trial A9 for this piece."""

    async def iteration(invoker):
        endpoint.script("worker", Step(action="hang", times=3))
        left = {asyncio.create_task(invoker.invoke(spec(i), FRAME, timeout=60.0)) for i in range(64)}
        while len(left) > 3:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            assert {one.result() for one in done} == {FRAME}
        for one in left:
            one.cancel()
        outcomes = await asyncio.gather(*left, return_exceptions=True)
        assert [type(o) for o in outcomes] == [asyncio.CancelledError] * 3
        endpoint.script("worker", Step(action="hang"))
        assert (await failure(invoker, timeout=0.2)).kind == "timeout"

    await asyncio.to_thread(int)
    async with Opened(endpoint, transport=transport):
        pass  # whatever the SDK opens once per process, is open now
    before = sockets(), len(asyncio.all_tasks())
    async with Opened(endpoint, transport=transport) as invoker:
        for _ in range(3):
            await iteration(invoker)
        assert len(asyncio.all_tasks()) == before[1]
        assert invoker.stats.in_flight == 0
    gc.collect()
    assert (sockets(), len(asyncio.all_tasks())) == before


async def test_cancelled_call_frees_its_place(endpoint):
    endpoint.script("worker", Step(action="hang"))
    async with Opened(endpoint, concurrency=1) as invoker:
        running = asyncio.create_task(invoker.invoke(spec(), FRAME, timeout=30.0))
        await asyncio.sleep(0)
        assert invoker.stats.in_flight == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        endpoint.script("worker")
        assert await invoker.invoke(spec(), FRAME, timeout=10.0) == FRAME


async def test_account_concurrency_ends_in_waves(small_account):
    """Trial A2 for this piece, over HTTP."""
    small_account.script("worker", Step(delay=0.02, times=0))
    async with Opened(small_account) as inner:
        invoker = RetryingInvoker(inner)
        frames = [b"%d" % i for i in range(64)]
        replies = await asyncio.gather(*(invoker.invoke(spec(i), f, timeout=30.0) for i, f in enumerate(frames)))
    counts = small_account.counts("worker")
    assert replies == frames
    assert counts.runs == 64
    assert counts.peak == 10
    assert counts.requests == inner.stats.invocations == 64 + inner.stats.throttles
    assert inner.stats.throttles == inner.stats.retries > 0
    assert invoker.limit.found is not None
    assert invoker.limit.found <= 16


async def test_use_before_open_is_refused():
    with pytest.raises(InputError, match="open"):
        await LambdaInvoker("worker").invoke(spec(), FRAME, timeout=1.0)


async def test_certificates_are_verified(endpoint, monkeypatch):
    """An https endpoint that does not speak TLS is an error of the connection, not a hang or a lost reply."""
    secure = SimpleNamespace(url=endpoint.url.replace("http://", "https://"))
    async with Opened(secure) as invoker:
        error = await failure(invoker)
    assert (error.kind, error.may_have_run) == ("unavailable", False)
    assert isinstance(error.__cause__.__cause__ or error.__cause__, (ssl.SSLError, OSError))
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/bundle.pem")
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE"):
        async with Opened(secure):
            pass


def sockets():
    """Number of sockets this process has open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count
