"""What gradients are compared on: codes, losses, problems with their gradient in plain NumPy, layouts of the data."""

import numpy as np
import scipy.sparse as sp
from numpy.testing import assert_allclose

CODES = [
    ("uncoded", {}),
    ("replication", {}),
    ("mds", {}),
    ("mds", {"parity": "gaussian"}),
    ("polar", {}),
    ("polar", {"systematic": False}),
    ("polar", {"kernel": "hadamard"}),
    ("polar", {"kernel": "hadamard", "systematic": False}),
    ("polar", {"design": "reed-muller"}),
    ("polar", {"mode": "sc"}),
    ("polar", {"mode": "peel"}),
]
SIZES = {"uncoded": (6, 6), "replication": (12, 6)}
LOSSES = ["squared", "logistic", "softmax", "poisson", "huber", "squared_hinge"]


def size(code):
    n_workers, k = SIZES.get(code, (8, 6))
    return {"n_workers": n_workers, "k": k}


def problem(loss, n, p=5, seed=0):
    """Data, targets, weights and the gradient of the summed loss in plain NumPy."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    w = rng.standard_normal(p) * 0.5
    if loss == "softmax":
        w = rng.standard_normal((p, 3))
        y = rng.integers(0, 3, n)
        y[: min(n, 3)] = np.arange(min(n, 3))
        z = X @ w
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return X, y, w, X.T @ (e / e.sum(axis=1, keepdims=True) - np.eye(3)[y])
    z = X @ w
    if loss == "squared":
        y = rng.standard_normal(n)
        r = z - y
    elif loss == "logistic":
        y = (rng.random(n) < 0.5).astype(float)
        r = 1 / (1 + np.exp(-z)) - y
    elif loss == "poisson":
        y = rng.poisson(1.0, n).astype(float)
        r = np.exp(z) - y
    elif loss == "huber":
        y = z + rng.standard_normal(n) * 3
        r = np.clip(z - y, -1.0, 1.0)
    else:
        y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        r = -2 * y * np.maximum(0, 1 - y * z)
    return X, y, w, X.T @ r


def close(actual, expected):
    assert actual.shape == expected.shape
    assert actual.flags.writeable
    assert_allclose(actual, expected, rtol=0, atol=1e-10 * max(np.linalg.norm(expected), 1e-300))


def layouts():
    rng = np.random.default_rng(5)
    base = rng.standard_normal((30, 6))
    wide = rng.standard_normal((60, 13))
    yield "C", base
    yield "F", np.asfortranarray(base)
    yield "rows-reversed", base[::-1]
    yield "strided", wide[::2, 1::2]
    yield "transposed", np.ascontiguousarray(base.T).T
    yield "readonly", np.frombuffer(base.tobytes()).reshape(base.shape)
    yield "big-endian", base.astype(">f8")
    yield "list", base.tolist()
    yield "float32", base.astype(np.float32)
    yield "float16", base.astype(np.float16)
    yield "int8", (base * 20).astype(np.int8)
    yield "uint16", np.abs(base * 100).astype(np.uint16)
    yield "int64", (base * 1000).astype(np.int64)
    yield "bool", base > 0
    yield "complex", base + 1j * rng.standard_normal(base.shape)
    yield "csr", sp.csr_array(np.where(np.abs(base) > 1, base, 0))
    yield "csc", sp.csc_matrix(np.where(np.abs(base) > 1, base, 0))
