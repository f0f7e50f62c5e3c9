"""A12: our own size check fires before the network does, names size and limit, and follows the table of limits."""

import dataclasses
import re

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.invoke import LambdaInvoker
from serverless_gc.invoke.envelope import encoded_size
from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.testing.lambda_endpoint import ECHO, LambdaEndpoint
from serverless_gc.types import TaskSpec

TASK = TaskSpec("1-0", 0, 1)


def frame_of(envelope_bytes):
    """The largest frame whose envelope has at most so many bytes."""
    frame = bytes(3 * (envelope_bytes // 4 - 4))
    while encoded_size(frame + b"0") <= envelope_bytes:
        frame += b"0"
    return frame


@pytest.mark.parametrize("limit", [100_000, 300_000])
async def test_below_at_and_above_the_limit(aws_environment, limit):
    limits = dataclasses.replace(DEFAULT_LIMITS, request_bytes=limit, reply_bytes=10 * limit)
    with LambdaEndpoint({"worker": ECHO}, environment=aws_environment) as endpoint:
        invoker = LambdaInvoker("worker", region="us-east-1", endpoint=endpoint.url, limits=limits)
        await invoker.open()
        try:
            for wanted in (limit - 4, limit):
                frame = frame_of(wanted)
                assert encoded_size(frame) <= limit
                assert await invoker.invoke(TASK, frame, timeout=30.0) == frame
            sent = endpoint.counts("worker").requests
            above = frame_of(limit) + b"000"
            with pytest.raises(sgc.InvokeError) as caught:
                await invoker.invoke(TASK, above, timeout=30.0)
        finally:
            await invoker.close()
        assert endpoint.counts("worker").requests == sent  # it never left
    assert caught.value.kind == "too-large"
    assert re.search(rf"{encoded_size(above)} bytes.*{limit}", str(caught.value))


def test_the_local_backend_keeps_to_the_same_table():
    """With room for nothing inline, operands and results go through the store, and the answer is the same."""
    limits = dataclasses.replace(DEFAULT_LIMITS, request_bytes=2_000, reply_bytes=2_000)
    X, x = np.random.default_rng(0).standard_normal((600, 300)), np.ones(300)
    with sgc.Session(limits=limits) as s:
        z, report = s.encode(X, code="mds", n_workers=8, k=6).matvec(x, with_report=True)
    np.testing.assert_allclose(z, X @ x, atol=1e-10)
    assert report.by_reference >= report.used
    assert not report.failures


def test_a_task_that_cannot_fit_ends_the_call_at_once():
    limits = dataclasses.replace(DEFAULT_LIMITS, request_bytes=200)
    with sgc.Session(limits=limits) as s:
        data = s.encode(np.eye(20), code="mds", n_workers=8, k=6)
        with pytest.raises(sgc.InputError, match="Lambda takes 200"):
            data.matvec(np.ones(20))
