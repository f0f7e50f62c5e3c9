"""A whole training in one call, taken up again after an interruption; and SciPy on the same coded objective."""

import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import serverless_gc as sgc

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 10)) * np.linspace(0.3, 2, 10)
truth = rng.standard_normal(10)
y = (rng.random(2000) < 1 / (1 + np.exp(-X @ truth))).astype(float)
objective = {"loss": "logistic", "l2": 1e-3, "reduction": "mean"}

with sgc.Session("simulated") as s, tempfile.TemporaryDirectory() as folder:
    data = s.encode(X, y, code="polar", n_workers=16, k=12)

    # Stopped after five steps, as if the machine had been lost, and begun again with the same arguments.
    training = {"method": "nesterov", "checkpoint": Path(folder) / "training", **objective}
    sgc.minimize(data, np.zeros(10), max_rounds=5, **training)
    fit = sgc.minimize(data, np.zeros(10), max_rounds=300, policy=sgc.KSync(14), **training)
    print(fit.summary())

    # Any optimizer that takes a function with value and gradient works as well.
    coded = data.objective(**objective)
    found = minimize(coded, np.zeros(10), jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-15})
    print(f"SciPy: {coded.evaluations} coded gradients, {coded.report.rounds} rounds")

assert fit.success
assert fit.resumed_at == 5
np.testing.assert_allclose(fit.w, found.x, atol=1e-4)
