"""A3: an invocation that outlives the client's patience is sent again only by us, as an attempt that we announce."""

import pytest

import serverless_gc as sgc
from serverless_gc.limits import Limits
from serverless_gc.testing.lambda_endpoint import Step


@pytest.mark.parametrize("account", ["endpoint"], indirect=True)  # a cold start may take longer than this patience
def test_one_request_for_each_announced_attempt(problem, account, monkeypatch):
    """The client hangs up after 1 s, the first four functions take 3 s: four attempts more, and no further request."""
    monkeypatch.setattr("serverless_gc.invoke.aws.READ_MARGIN", 0.9)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "8")
    monkeypatch.setenv("AWS_RETRY_MODE", "legacy")
    account.script(Step(delay=3.0, times=4))
    before = account.counts().requests
    with sgc.Session("aws", limits=Limits(function_timeout=0.1)) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=8)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-10
    assert (report.issued, report.used, report.failed) == (12, 8, 4)
    assert report.failures == {"timeout": 4}
    assert account.counts().requests - before == report.issued


def test_calls_that_never_answer_are_not_sent_again_behind_our_back(problem, account):
    account.script(Step(action="hang", times=0))
    before = account.counts().requests
    with sgc.Session("aws", deadline=1.0) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=16)
        with pytest.raises(sgc.DeadlineExceeded, match="16x no reply"):
            data.matvec(problem.w)
    assert account.counts().requests - before == 16
