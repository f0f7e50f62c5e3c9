"""A2: an account that admits 10 invocations at once: the run ends in waves, and says once what that costs."""

import pytest

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step
from serverless_gc.testing.offline_aws import offline_aws


@pytest.fixture
def small_account():
    with offline_aws(concurrency=10) as aws:
        yield aws


def check(problem, gradient, report):
    problem.check(gradient)
    assert report.balanced
    assert report.failed == 0
    assert report.throttles > 0
    notes = [note for note in report.notes if "the account admitted 10 invocations at once" in note]
    assert len(notes) == 1
    assert "64 workers" in notes[0]
    assert "7 waves" in notes[0]
    assert "service-quotas" in notes[0]
    assert f"note     {notes[0]}" in str(report)


def test_over_http(problem, small_account):
    small_account.script(Step(delay=0.05, times=0))  # long enough that those admitted are still at work
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=64)
        g, report = data.gradient(problem.w, with_report=True)
    check(problem, g, report)
    counts = small_account.counts()
    assert counts.runs == report.used == 2 * 64
    assert counts.peak == 10
    assert counts.requests == counts.runs + report.throttles


def test_locally(problem):
    faults = (sgc.inject.Stragglers(fraction=0.0, base=0.05), sgc.inject.Faults(concurrency=10))
    with sgc.Session(inject=faults) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=64)
        check(problem, *data.gradient(problem.w, with_report=True))


def test_a_large_account_gets_no_advice(problem):
    with sgc.Session(inject=sgc.inject.Faults(throttle=[3], throttle_times=1)) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=1)
        _, report = data.gradient(problem.w, with_report=True)
    assert not report.notes
