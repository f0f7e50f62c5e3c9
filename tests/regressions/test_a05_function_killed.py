"""A5: functions that die leave no word; the code covers for a few, a deadline ends the rest with the reasons."""

import time

import pytest

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step


def test_two_of_sixteen_never_reply(problem):
    with sgc.Session(inject=sgc.inject.Faults(drop=[3, 9])) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.balanced
    assert report.voided >= 2 * 2


def test_none_replies(problem):
    with sgc.Session(inject=sgc.inject.Faults(drop=1.0), deadline=0.5) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        start = time.monotonic()
        with pytest.raises(sgc.DeadlineExceeded) as caught:
            data.gradient(problem.w)
        assert time.monotonic() - start < 0.5 + 5.0
    message = str(caught.value)
    assert "0 of 16 results arrived within 0.5 s" in message
    assert "16x no reply" in message
    assert "memory" in message
    assert "deadline" in message
    assert caught.value.missing == tuple(range(12))
    assert isinstance(caught.value, TimeoutError)


def test_functions_that_fail_name_their_reason(problem):
    with sgc.Session(inject=sgc.inject.Faults(fail=range(8), fail_times=99)) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        with pytest.raises(sgc.NotDecodableError) as caught:
            data.gradient(problem.w)
    assert not isinstance(caught.value, sgc.DeadlineExceeded)
    assert set(caught.value.failures) == set(range(8))


def test_functions_whose_process_is_killed_and_one_that_is_never_heard_of(problem, account):
    """Lambda's word of a killed process is an answer; of a lost call there is none, and nobody waits for it."""
    account.script(Step(action="kill", times=2), Step(action="hang"))
    with sgc.Session("aws", deadline=20.0) as s:
        data = s.encode(problem.X, code="mds", n_workers=8, k=7)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-9
    assert report.balanced
    assert (report.used, report.failed, report.voided) == (7, 2, 1)
