"""Logistic regression by gradient descent with momentum, every gradient coded, a fifth of the workers slow."""

import numpy as np

import serverless_gc as sgc

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 10))
truth = rng.standard_normal(10)
y = (rng.random(2000) < 1 / (1 + np.exp(-X @ truth))).astype(float)

slow = sgc.inject.Stragglers(fraction=0.2, slowdown=10, base=0.001, seed=0)
w, velocity, losses = np.zeros(10), np.zeros(10), []
with sgc.Session(inject=slow) as s:
    data = s.encode(X, y, code="mds", n_workers=16, k=12)
    for _ in range(60):
        loss, g = data.value_and_gradient(w, loss="logistic", l2=1e-3, reduction="mean")
        losses.append(loss)
        velocity = 0.7 * velocity - 3.0 * g
        w = w + velocity

accuracy = np.mean((X @ w > 0) == (y == 1))
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.1%}")
print(f"angle to the true weights: {np.degrees(np.arccos(w @ truth / np.linalg.norm(w) / np.linalg.norm(truth))):.1f}")

# The same as without a code, to rounding: at the optimum the gradient in plain NumPy vanishes too.
gradient = X.T @ (1 / (1 + np.exp(-X @ w)) - y) / len(y) + 1e-3 * w
assert np.linalg.norm(gradient) < 1e-4
assert losses[-1] < 0.6 * losses[0]
