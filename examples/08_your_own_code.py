"""A code of your own: a generator and a placement. Tracker, decoder, certificate and runtime come with them."""

import numpy as np

import serverless_gc as sgc
from serverless_gc.codes import LinearCode

k, n = 6, 8
cyclic = np.eye(k)[np.arange(n) % k]  # worker j's first message: block j mod 6
pairs = np.eye(k)[np.arange(n) % k] - np.eye(k)[(np.arange(n) + 2) % k] + np.eye(k)[(np.arange(n) + 3) % k]
code = LinearCode(np.vstack([cyclic, pairs]), placement=[(j, n + j) for j in range(n)])

# It is an ordinary code: how many workers must answer?
tracker = code.tracker()
for worker in (7, 2, 4, 1):
    for message in code.placement(worker):
        tracker.add(message)
    print(f"worker {worker} answered, blocks missing: {tracker.missing()}")

# And it runs wherever codes run: here with two workers that never answer.
rng = np.random.default_rng(0)
X, y, w = rng.standard_normal((600, 5)), rng.standard_normal(600), rng.standard_normal(5)
with sgc.Session(inject=sgc.inject.Faults(drop=[0, 3])):
    gradient, report = sgc.coded_gradient(X, y, w, code=code, loss="squared", with_report=True)
print(f"{report.awaited} results awaited, error {np.abs(gradient - X.T @ (X @ w - y)).max():.0e}")
assert np.allclose(gradient, X.T @ (X @ w - y))
