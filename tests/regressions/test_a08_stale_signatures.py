"""A8: a request that waits for its turn is signed when it is sent, not when it was asked for."""

import pytest
from fault_proxy import INVOKE, Fault
from rig_account import FUNCTION

import serverless_gc as sgc
from serverless_gc.invoke import LambdaInvoker
from serverless_gc.testing.lambda_endpoint import Step

VALID = 1.0
"""Seconds for which a signature is good; AWS: 300."""


@pytest.mark.parametrize("transport", ["http", "sdk"])
def test_no_signature_grows_old_in_the_queue(problem, proxied, account, transport):
    """25 waves of 8 calls last 2.5 times as long as a signature is good, on the wire to a service that looks at it."""
    if transport == "sdk" and account.function == FUNCTION:
        pytest.skip("the reference transport is tried on the light endpoint, where it costs less")
    proxy, options = proxied
    proxy.faults = [Fault("refuse", INVOKE, status=403, code="InvalidSignatureException", older=VALID)]
    account.script(Step(delay=0.1, times=0))
    ages = []
    invoker = LambdaInvoker(account.function, region="us-east-1", concurrency=8, transport=transport, watch=ages.append)
    with sgc.Session("aws", invoker=invoker, **options()) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=200)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-10
    assert report.elapsed > 2 * VALID
    assert not proxy.met
    assert (report.issued, report.used, report.failed) == (200, 200, 0)
    if transport == "http":
        assert len(ages) == 200
        assert max(ages) < VALID / 4  # AWS: 300 s against our 0.5 s


def test_the_service_of_this_trial_does_refuse_what_is_old(problem, proxied):
    proxy, options = proxied
    proxy.faults = [Fault("refuse", INVOKE, status=403, code="InvalidSignatureException", older=-2.0)]
    with sgc.Session("aws", **options()) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=2)
        with pytest.raises(sgc.ConfigError, match="InvalidSignatureException"):
            data.matvec(problem.w)
