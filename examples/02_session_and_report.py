"""Encode once, compute often, and read what each call did."""

import numpy as np

import serverless_gc as sgc

rng = np.random.default_rng(0)
X, y = rng.standard_normal((1000, 20)), rng.standard_normal(1000)

# A session owns where blocks are stored and where tasks run, and removes everything when it closes.
with sgc.Session() as s:
    data = s.encode(X, y, code="mds", n_workers=16, k=12)

    w = np.zeros(20)
    g, report = data.gradient(w, with_report=True)
    print(report)

    # Every task is accounted for.
    assert report.issued == report.used + report.surplus + report.failed + report.voided

    # Further calls encode nothing; another loss on the same data neither.
    value, g = data.value_and_gradient(w + 0.1, loss="huber", l2=1e-3)
    z, report = data.matvec(w + 1, with_report=True)
    assert report.encode_seconds == 0
    assert np.allclose(z, X @ (w + 1))

    # What a script wants to keep: plain JSON types.
    assert report.to_dict()["issued"] == 16
