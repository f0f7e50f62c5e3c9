"""A26: stragglers of one iteration answer during the next; the trajectory is that of the reference."""

import numpy as np

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step


def test_late_replies_do_not_change_the_trajectory(problem):
    step = 1.0 / np.linalg.eigvalsh(problem.X.T @ problem.X).max()
    stale = 0
    with sgc.Session(inject=sgc.inject.Faults(late=[0, 4, 9])) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=14)
        w = reference = problem.w
        for _ in range(30):
            g, report = data.gradient(w, with_report=True)
            stale += report.stale
            w = w - step * g
            reference = reference - step * problem.reference(reference)
            np.testing.assert_allclose(w, reference, rtol=1e-10, atol=1e-12)
    assert stale > 0


def test_functions_that_are_late_by_an_iteration(problem, account):
    """Real ones: they run on when their round is over, store their results beside those of the next, and are billed."""
    step, iterations = 1.0 / np.linalg.eigvalsh(problem.X.T @ problem.X).max(), 6
    before = account.counts().runs
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=8, k=6)
        w = reference = problem.w
        for _ in range(iterations):
            account.script(Step(delay=0.2, times=2))
            g, report = data.gradient(w, strategy="two-round", with_report=True)
            assert report.voided > 0
            w = w - step * g
            reference = reference - step * problem.reference(reference)
        np.testing.assert_allclose(w, reference, rtol=1e-10, atol=1e-12)
    assert account.counts().runs - before > iterations * 2 * 6
