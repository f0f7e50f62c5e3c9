"""A two-layer network in NumPy, trained through a gradient code: the same weights as without one, to rounding.

A gradient code serves any loss: workers call the function below on their partitions of the rows, in one round, and the
sum is right although a worker in five is slow. The matrix is fractional repetition: each partition on two workers.
"""

import numpy as np

import serverless_gc as sgc
from serverless_gc.codes.gradient import LinearGradientCode

INPUTS, HIDDEN = 2, 16


def network(X, y, w):
    """Return the summed cross-entropy of a part of the rows, and its gradient, by hand."""
    W1, b1, W2, b2 = np.split(w, [INPUTS * HIDDEN, (INPUTS + 1) * HIDDEN, (INPUTS + 2) * HIDDEN])
    W1 = W1.reshape(INPUTS, HIDDEN)
    hidden = np.tanh(X @ W1 + b1)
    z = hidden @ W2 + b2
    value = np.logaddexp(0, z).sum() - y @ z
    slope = 1 / (1 + np.exp(-z)) - y
    back = slope[:, None] * W2 * (1 - hidden**2)
    return value, np.concatenate([(X.T @ back).ravel(), back.sum(axis=0), hidden.T @ slope, [slope.sum()]])


rng = np.random.default_rng(0)
radius, angle = rng.random(1200), rng.random(1200) * 2 * np.pi
y = (rng.random(1200) < 0.5).astype(float)
X = (1 + y + 0.4 * radius)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)  # two rings
start = 0.5 * rng.standard_normal((INPUTS + 2) * HIDDEN + 1)

code = LinearGradientCode(np.tile(np.kron(np.eye(4), np.ones(2)), (2, 1)))
slow = sgc.inject.Stragglers(fraction=0.2, slowdown=10, base=0.001, seed=0)
w, losses = start, []
with sgc.Session(inject=slow) as s:
    data = s.encode(X, y, code=code)
    for _ in range(80):
        loss, g, report = data.value_and_gradient(w, loss=network, reduction="mean", with_report=True)
        losses.append(loss)
        w = w - 1.5 * g

plain = start
for _ in range(80):
    plain = plain - 1.5 * network(X, y, plain)[1] / len(X)

W1, b1, W2, b2 = np.split(w, [INPUTS * HIDDEN, (INPUTS + 1) * HIDDEN, (INPUTS + 2) * HIDDEN])
accuracy = np.mean((np.tanh(X @ W1.reshape(INPUTS, HIDDEN) + b1) @ W2 + b2 > 0) == (y == 1))
print(report)
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.1%}")
print(f"largest difference from the weights of the uncoded run: {np.abs(w - plain).max():.1e}")

assert np.abs(w - plain).max() < 1e-9
assert accuracy > 0.95
