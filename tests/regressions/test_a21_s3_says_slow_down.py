"""A21: the store answers 503 to half of the requests at first; driver and workers wait, with jitter, and go on."""

import numpy as np
import pytest
from fault_proxy import slow_down

import serverless_gc as sgc


def test_completes_and_counts(problem):
    faults = sgc.inject.Faults(slow_down=0.5, slow_down_seconds=1.0, seed=2)
    with sgc.Session(inject=faults) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=256, k=192)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.balanced
    assert report.slow_downs > 0


@pytest.mark.parametrize(("account", "n_workers"), [("endpoint", 128), ("rig", 16)], indirect=["account"])
def test_on_the_wire(problem, proxied, account, n_workers):
    """Half of all requests, the driver's and the workers', are refused for a second; their repeats spread out."""
    assert account.bucket
    proxy, options = proxied
    proxy.faults = [slow_down(0.5, until=1.0)]
    with sgc.Session("aws", **options()) as s:
        data = s.encode(problem.X, code="mds", n_workers=n_workers, k=n_workers * 3 // 4)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-9
    assert report.balanced
    refused = proxy.met["SlowDown"]
    assert refused >= n_workers // 4
    puts = {}
    for t, identity in proxy.asked:
        if identity.startswith("PUT") and "/data/" in identity:
            puts.setdefault(identity, []).append(t)
    waits = np.array([times[1] - times[0] for times in puts.values() if len(times) > 1])
    assert waits.size >= n_workers // 8
    if waits.size >= 16:  # so many never lie close together by chance; the 128 workers' do not fall short of it
        assert np.ptp(np.quantile(waits, [0.25, 0.75])) > 0.005  # drawn from [0, 50 ms]: no waves in lock-step
