"""A gradient from coded blocks, on this machine: no account and nothing to set up."""

import numpy as np

import serverless_gc as sgc

rng = np.random.default_rng(0)
X = rng.standard_normal((1000, 20))
y = X @ rng.standard_normal(20) + 0.1 * rng.standard_normal(1000)
w = np.zeros(20)

# 16 workers hold 12 blocks' worth of data, coded: the answer needs the results of about 12 of them, whichever come.
g = sgc.coded_gradient(X, y, w, code="polar", n_workers=16, k=12)

reference = X.T @ (X @ w - y)
error = np.linalg.norm(g - reference) / np.linalg.norm(reference)
print(f"relative distance to NumPy's gradient: {error:.0e}")
assert error < 1e-10

# A plain product works the same way. "mds" needs any 12 of the 16.
z = sgc.coded_matvec(X, w + 1, code="mds", n_workers=16, k=12)
assert np.allclose(z, X @ (w + 1))

# Other losses: logistic, softmax, poisson, huber, squared_hinge.
labels = (y > 0).astype(float)
g = sgc.coded_gradient(X, labels, w, loss="logistic", reduction="mean", l2=1e-3)
print(f"norm of the logistic gradient: {np.linalg.norm(g):.3f}")
