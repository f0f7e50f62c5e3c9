"""Training what is not linear: losses of your own, what they may refer to, and answers that may be approximate.

The guide page ``guide/losses.md`` explains each step.
"""

import numpy as np

import serverless_gc as sgc

rng = np.random.default_rng(0)
X = rng.standard_normal((600, 3))
y = np.sin(X @ [1.0, -2.0, 0.5]) + 0.05 * rng.standard_normal(600)


def single_index(X, y, w):
    """Sum of squared errors of sin(X w), and its gradient."""
    z = X @ w
    r = np.sin(z) - y
    return 0.5 * r @ r, X.T @ (r * np.cos(z))


w = np.array([0.8, -1.6, 0.3])
g = sgc.coded_gradient(X, y, w, code="frc", loss=single_index)
assert np.allclose(g, single_index(X, y, w)[1])


with sgc.Session() as s:
    data = s.encode(X, y, code="cyclic", n_workers=8, stragglers=2)
    for _ in range(60):
        value, g = data.value_and_gradient(w, loss=single_index, reduction="mean")
        w = w - 0.5 * g
print(f"mean loss {value:.4f} at w = {w.round(2)}")
assert np.allclose(w, [1.0, -2.0, 0.5], atol=0.05)


def robust(width):
    """Make a loss with a parameter of its own; ``width`` goes along with the function."""

    def loss(X, y, w):
        z = X @ w
        r = np.clip(np.sin(z) - y, -width, width)
        return X.T @ (r * np.cos(z))

    return loss


g = sgc.coded_gradient(X, y, w, code="cyclic", loss=robust(0.1))
print("robust gradient", g.round(2))
assert np.allclose(g, robust(0.1)(X, y, w))


def untouched(X, y, w):
    """Refer to something that cannot travel."""
    with lock:
        return X.T @ (X @ w - y)


class Lock:
    """Stands for a client, a file or a lock: it belongs to this process."""

    def __reduce__(self):
        raise TypeError("this belongs to one process")


lock = Lock()
try:
    sgc.coded_gradient(X, y, w, code="frc", loss=untouched)
except sgc.InputError as error:
    print(error)
else:
    raise AssertionError("a lock cannot travel")


late = sgc.inject.Stragglers(fraction=[0, 5], slowdown=1000, persistent=True)
with sgc.Session("simulated", inject=late) as s:
    data = s.encode(X, y, code="bgc", n_workers=12)
    g, report = data.gradient(w, loss=single_index, max_error=0.25, with_report=True)
    print(f"{report.used} of 12 results, squared error {report.error_per_partition:.3f} a partition")
    g, report = data.gradient(w, loss=single_index, wait=10, decoder="rescaled", with_report=True)
    print(f"{report.used} of 12 results, rescaled: {report.error_per_partition:.3f}")
    print(*report.notes, sep="\n")


with sgc.Session() as s:
    data = s.encode(X, y, code="coded-reduce", n_workers=12, stragglers=1)
    g, report = data.gradient(w, loss=single_index, with_report=True)
print(report)
assert np.allclose(g, single_index(X, y, w)[1])
assert report.bytes_down <= 3 * g.nbytes
