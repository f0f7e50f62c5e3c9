"""Every code waits for as many results, or is as far off, as its construction specifies; accuracy targets."""

import math

import numpy as np
import pytest
from specified import (
    ARRIVALS,
    ERRORS,
    LINES,
    covered,
    determined,
    together,
    two_level,
)

from serverless_gc.codes import available, get
from serverless_gc.codes.threshold import arrivals_needed


def test_no_code_is_left_out():
    assert {row.code for row in (*ARRIVALS, *ERRORS)} == {info.name for info in available()}
    assert {row.code for row in ERRORS} >= {info.name for info in available() if not info.exact}
    assert {row.code for row in ARRIVALS} >= {info.name for info in available() if info.exact}
    assert all(row.source for row in (*ARRIVALS, *ERRORS))


@pytest.mark.parametrize("row", ARRIVALS, ids=[f"{row.code}-{i}" for i, row in enumerate(ARRIVALS)])
def test_results_awaited(row):
    found = row.measured()
    assert abs(found.middle - row.mean) <= 3 * np.hypot(found.standard_error, row.uncertain) + 1e-9, row
    if row.law is not None:
        assert found.each.max() <= next(t for t, p in enumerate(row.law) if p > 1 - 1e-9), "more than the worst case"
    if not math.isnan(row.p95):
        # A share of 0.95 found in so many orders, here and there.
        spread = 3 * math.sqrt(0.95 * 0.05 * (1 / found.each.size + 1 / row.orders))
        assert (found.each < row.p95).mean() - spread <= 0.95 <= (found.each <= row.p95).mean() + spread, row


@pytest.mark.parametrize("row", ERRORS, ids=[f"{row.code}-{i}" for i, row in enumerate(ERRORS)])
def test_errors_of_approximate_codes(row):
    found = row.measured()
    assert abs(found.middle - row.mean) <= 3 * np.hypot(found.standard_error, row.uncertain) + 1e-9, row


def stragglers(law, *numbers):
    return [law[-1 - lost] for lost in numbers]


@pytest.mark.parametrize(
    ("found", "stated"),
    [
        (covered(12, 4)[4:11], [0.163636, 0.409091, 0.642857, 0.818182, 0.927273, 0.981818, 1]),  # G2
        (covered(6, 3)[3:6], [0.4, 0.8, 1]),  # G2
        (stragglers(together(*[[0, 0, 0, 1, 1]] * 5), 2, 3, 4, 5), [0.8421053, 0.5614035, 0.2641899, 0.0660475]),  # G8
        (stragglers(together(*[[0, 0, 1, 1, 1]] * 5), 3, 5, 10), [0.982456, 0.840041, 0.042088]),  # G8
        (two_level((3, 2), (3, 2))[5:7], [117 / 126, 1]),  # G14.2
        (stragglers(two_level((4, 3), (3, 1)), 5, 6), [1, 918 / 924]),  # G14.2
        ([determined(LINES, np.eye(4))[4]], [315 / 495]),  # D14
    ],
)
def test_laws_are_those_of_the_specifications(found, stated):
    np.testing.assert_allclose(found, stated, atol=5e-7)


@pytest.mark.parametrize(
    ("code", "params", "mean"),
    [
        ("replication", {"n_workers": 64}, 54.934),
        ("replication", {"n_workers": 90}, 65.039),
        ("polar", {"n_workers": 8, "mode": "sc"}, 4.3143),
        ("polar", {"n_workers": 8, "mode": "peel"}, 4.2571),
        ("polar", {"n_workers": 8, "mode": "rank"}, 4.1714),
        ("frc", {"n_workers": 12}, 6.057143),
        ("frc", {"n_workers": 6}, 3.8),
    ],
)
def test_means_of_laws_are_those_of_the_specifications(code, params, mean):
    [row] = [row for row in ARRIVALS if row.code == code and params.items() <= row.params.items()]
    assert row.mean == pytest.approx(mean, abs=5.1 * 10.0 ** -len(str(mean).partition(".")[2]) / 10)


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
