"""What a code is for: rounds that do not wait for slow workers, shown in simulated time."""

import numpy as np

import serverless_gc as sgc

rng = np.random.default_rng(0)
X, w = rng.standard_normal((960, 20)), rng.standard_normal(20)

# Every task takes a second, a tenth of them ten: drawn anew in each round, the same for every code.
slow = sgc.inject.Stragglers(fraction=0.1, slowdown=10, seed=1)
CODES = {
    "uncoded": {"n_workers": 48},
    "replication": {"n_workers": 96, "k": 48},
    "mds": {"n_workers": 64, "k": 48},
    "polar": {"n_workers": 64, "k": 48},
}

print(f"{'code':<12} workers   mean seconds of a round")
mean = {}
for name, sizes in CODES.items():
    # The simulated backend runs the real worker; only its clock is simulated, so minutes take no time.
    with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow) as s:
        data = s.encode(X, code=name, **sizes)
        seconds = []
        for _ in range(20):
            z, report = data.matvec(w, with_report=True)
            assert np.allclose(z, X @ w)
            seconds.append(max(span.t_end for span in report.spans) - min(span.t_issued for span in report.spans))
    mean[name] = np.mean(seconds)
    print(f"{name:<12} {sizes['n_workers']:>7}   {mean[name]:.1f}")

assert mean["uncoded"] > 9  # with 48 tasks there is always a slow one
assert mean["mds"] < 2  # any 48 of 64 suffice
assert mean["polar"] < mean["uncoded"]
