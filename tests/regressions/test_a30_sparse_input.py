"""A30: a sparse matrix is not blown up: the default keeps stored non-zeros below four times the input."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import serverless_gc as sgc
from serverless_gc.encode import SparseFillWarning

BIG = """
import resource, sys
import numpy as np, scipy.sparse as sp
import serverless_gc as sgc
from serverless_gc import limits
rows, cols, nnz = 200_000, 50_000, 1_000_000
rng = np.random.default_rng(0)
places = (rng.integers(0, rows, nnz), rng.integers(0, cols, nnz))
X = sp.csr_array((rng.standard_normal(nnz), places), shape=(rows, cols))
y = (rng.random(rows) < 0.5).astype(float)
w = rng.standard_normal(cols) * 0.1
import os
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
with sgc.Session() as s:
    data = s.encode(X, y)
    g = data.gradient(w, loss="logistic")
z = X @ w
expected = X.T @ (1 / (1 + np.exp(-z)) - y)
assert np.linalg.norm(g - expected) <= 1e-10 * np.linalg.norm(expected)
print(data.stored_nnz / (2 * X.nnz))
"""


def test_large_sparse_logistic_gradient_in_a_gigabyte():
    done = subprocess.run([sys.executable, "-c", BIG], check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4


def test_asking_for_a_filling_code_warns_with_the_factor():
    X = sp.random_array((4000, 500), density=0.001, rng=np.random.default_rng(0), format="csr")
    with sgc.Session() as s:
        with pytest.warns(SparseFillWarning, match=r"stores \d+\.\d times"):
            data = s.encode(X, np.ones(4000), code="polar", n_workers=64, k=48)
        g = data.gradient(np.ones(500))
    np.testing.assert_allclose(g, X.T @ (X @ np.ones(500) - 1), atol=1e-10)
