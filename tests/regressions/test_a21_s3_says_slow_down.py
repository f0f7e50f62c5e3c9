"""A21: the store answers 503 to half of the requests at first; driver and workers wait, with jitter, and go on."""

import serverless_gc as sgc


def test_completes_and_counts(problem):
    faults = sgc.inject.Faults(slow_down=0.5, slow_down_seconds=0.3, seed=2)
    with sgc.Session(inject=faults) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=256, k=192)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.balanced
    assert report.slow_downs > 0
