"""A1: every third call is answered 429 twice; nothing is lost, nothing waits for ever."""

import logging

from fault_proxy import throttled

import serverless_gc as sgc


def run(problem, faults):
    inject = [sgc.inject.Stragglers(fraction=0.0, base=0.3), *faults]
    with sgc.Session(inject=inject) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=64, k=48)
        return data.gradient(problem.w, with_report=True)


def test_throttled_calls_are_retried_and_counted(problem, caplog):
    with caplog.at_level(logging.WARNING):
        _, calm = run(problem, [])
        g, report = run(problem, [sgc.inject.Faults(throttle=range(0, 64, 3), throttle_times=2)])
    problem.check(g)
    assert report.throttles > 0
    assert report.balanced
    assert not [record for record in caplog.records if record.exc_info]
    assert report.elapsed < 10 * calm.elapsed  # a few waits of a fraction of a second, not minutes


def test_even_when_every_result_is_needed(problem):
    with sgc.Session(inject=sgc.inject.Faults(throttle=range(0, 48, 3), throttle_times=2)) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=48)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.throttles == 2 * 2 * 16
    assert report.used == 2 * 48


def test_on_the_wire(problem, proxied, account, caplog):
    """Nothing behind the proxy sees a refused call, and what the driver counts is what the proxy refused."""
    proxy, options = proxied
    proxy.faults = [throttled(1 / 3)]
    before = account.counts()
    with caplog.at_level(logging.WARNING), sgc.Session("aws", **options()) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.throttles == proxy.met["TooManyRequestsException"] > 0
    assert (report.issued, report.used, report.failed) == (32, 32, 0)
    assert account.counts().runs - before.runs == 32
    assert not [record for record in caplog.records if record.exc_info]
