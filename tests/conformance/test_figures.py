"""Published figures that the tests of single codes leave out: thresholds at a thousand workers, accuracy targets."""

import numpy as np
import pytest

from serverless_gc.codes import available, get
from serverless_gc.codes.threshold import arrivals_needed

# mode, n, k, mean of the table (to its last digit), orders drawn here
POLAR = [
    ("sc", 128, 64, 78.0, 0.05, 200),
    ("peel", 128, 64, 75.9, 0.05, 200),
    ("rank", 128, 64, 72.4, 0.5, 100),
    ("sc", 512, 256, 310.0, 0.5, 40),
    ("peel", 512, 256, 299.2, 1.6, 30),
    ("sc", 1024, 512, 612.9, 0.5, 30),
    ("peel", 1024, 512, 589.9, 1.6, 15),
    ("sc", 1024, 768, 843.0, 0.5, 30),
    ("peel", 1024, 768, 826.0, 1.6, 15),
    ("peel", 1024, 896, 933.7, 1.6, 15),
    ("peel", 100, 50, 60.0, 0.25, 200),
    ("peel", 100, 75, 81.0, 0.375, 200),
    ("peel", 300, 150, 175.5, 0.75, 50),
    ("peel", 600, 450, 486.0, 2.25, 15),
]
"""The last four are shortened; their table has two decimals of a multiple of ``k``."""


@pytest.mark.parametrize(("mode", "n", "k", "mean", "digit", "trials"), POLAR)
def test_average_threshold_of_polar_codes(mode, n, k, mean, digit, trials):
    found = arrivals_needed(get("polar", n_workers=n, k=k, mode=mode), trials=trials, seed=3)
    assert found.never == 0
    assert abs(found.mean - mean) < 3 * np.hypot(found.standard_error, digit)


@pytest.mark.parametrize(("grid", "n", "k", "mean"), [(((3, 2), (3, 2)), 9, 4, 4.46), (((4, 3), (4, 3)), 16, 9, 10.0)])
def test_average_threshold_of_small_products(grid, n, k, mean):
    """The exact mean by the vectors of the same grid: 4.46 is 300 orders' estimate of it."""
    found = arrivals_needed(get("product", n_workers=n, k=k, grid=grid), trials=600, seed=2)
    assert abs(found.mean - mean) < 3 * found.standard_error * 3**0.5


@pytest.mark.parametrize(("n", "k"), [(20, 15), (64, 48)])
@pytest.mark.parametrize("name", ["mds", "mds-nonsystematic", "short-dot"])
def test_codes_that_need_exactly_their_threshold(name, n, k):
    code = get(name, n_workers=n, k=k)
    found = arrivals_needed(code, trials=20)
    assert (found.mean, found.worst) == (code.guaranteed_threshold, code.guaranteed_threshold)


# code, parameters, largest relative error in double and in single precision
TARGETS = [
    ("polar", {"n_workers": 1024, "k": 512, "mode": "peel"}, 1e-12, 5e-4),
    ("polar", {"n_workers": 1024, "k": 768, "mode": "peel"}, 1e-12, 5e-4),
    ("polar", {"n_workers": 1024, "k": 512, "mode": "sc", "kernel": "hadamard", "systematic": False}, 2e-14, 5e-6),
    ("polar", {"n_workers": 1024, "k": 768, "mode": "sc", "kernel": "hadamard", "systematic": False}, 2e-14, 5e-6),
    ("mds", {"n_workers": 200, "k": 160}, 1e-11, 1e-3),
    ("mds", {"n_workers": 1000, "k": 800}, 1e-11, 1e-3),
    ("product", {"n_workers": 25, "k": 16, "grid": ((5, 4), (5, 4))}, 1e-13, 5e-6),
    ("product", {"n_workers": 121, "k": 100, "grid": ((11, 10), (11, 10))}, 1e-13, 5e-6),
]


def first_decodable(code, rng):
    """Return the messages of a random order up to the one that makes them decodable."""
    tracker, order = code.tracker(), rng.permutation(code.n_messages).tolist()
    return order[: next(count for count, i in enumerate(order, 1) if tracker.add(i))]


@pytest.mark.parametrize(("name", "params", "double", "single"), TARGETS)
def test_accuracy_at_the_first_decodable_moment(name, params, double, single):
    code, rng = get(name, **params), np.random.default_rng(4)
    blocks = rng.standard_normal((code.k, 16))
    sent = code.encode(blocks)
    for _ in range(4):
        ids = first_decodable(code, rng)
        for dtype, limit in ((np.float64, double), (np.float32, single)):
            decoded, certificate = code.decode({i: sent[i].astype(dtype) for i in ids}, tolerance=1.0)
            error = np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)
            assert error < limit
            assert certificate.method in {"systematic", "copy"} or error < 20 * certificate.predicted_error


@pytest.mark.skipif("pcr" not in {info.name for info in available()}, reason="the catalog has no such code")
def test_accuracy_of_coded_regression():
    """With 1.3 times the results needed: the minimum-norm weights."""
    code, rng = get("pcr", n_workers=20, k=5), np.random.default_rng(1)
    X, w = rng.standard_normal((5, 8, 6)), rng.standard_normal(6)
    stored = code.encode(X)
    expected = sum(x.T @ (x @ w) for x in X)
    for _ in range(50):
        ids = rng.permutation(20)[: round(1.3 * code.gradient_round.threshold)].tolist()
        actual = code.gradient_round.decode({i: stored[i].T @ (stored[i] @ w) for i in ids}, tolerance=1.0)[0]
        assert np.linalg.norm(actual - expected) < 1e-11 * np.linalg.norm(expected)
