"""A4: the function finished, the reply was lost: the stored result is found by its key, not computed again."""

from fault_proxy import INVOKE, Fault

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step


def test_lost_replies_are_recovered_from_the_store(problem):
    with sgc.Session(inject=sgc.inject.Faults(lose_reply=[1, 5, 6, 11])) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.recovered == 2 * 4  # four in each of the two rounds
    assert report.issued == 2 * 16  # none was executed again
    assert report.failed == 0
    assert "8 lost replies, their results recovered" in str(report)


def test_over_http_connections_that_break_after_the_function_ran(problem, account):
    account.script(Step(action="lose", times=4))
    before = account.counts()
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.recovered == 4
    assert report.issued == report.used == 2 * 16
    assert account.counts().runs - before.runs == 2 * 16


def test_replies_that_end_in_the_middle(problem, proxied, account):
    proxy, options = proxied
    proxy.faults = [Fault("cut", INVOKE, 0.25)]
    before = account.counts()
    with sgc.Session("aws", **options()) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.recovered == proxy.met["cut"] > 0
    assert report.issued == report.used == 2 * 16
    assert account.counts().runs - before.runs == 2 * 16
