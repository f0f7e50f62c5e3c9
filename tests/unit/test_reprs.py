"""What a notebook shows of a result: one line."""

import numpy as np

import serverless_gc as sgc


def test_fits_reports_and_objectives_are_shown_in_one_line():
    X = np.random.default_rng(0).standard_normal((40, 2))
    with sgc.Session("simulated") as s:
        data = s.encode(X, X[:, 0], code="mds", n_workers=6, k=4)
        _, report = data.gradient(np.zeros(2), with_report=True)
        fit = sgc.minimize(data, np.zeros(2), method="lbfgs")
        objective = data.objective()
    assert repr(report).startswith("<Report: mds, 6 workers, k = 4: 2 rounds in ")
    assert repr(fit).startswith("<Fit: lbfgs on mds")
    assert repr(objective) == "<Objective of weights of shape (2,), 0 evaluations>"
    assert not any("\n" in repr(shown) or len(repr(shown)) > 200 for shown in (report, fit, objective))
    assert str(report).count("\n") > 1
    assert str(fit) == fit.summary()
    trace = sgc.stragglers.Trace.from_reports([report], function="f")
    assert repr(trace) == "<Trace: 12 attempts, 8 results, 6 slots, 2 rounds, function='f'>"
