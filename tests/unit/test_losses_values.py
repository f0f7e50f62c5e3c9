"""Losses: worked values, derivatives against differences, extreme arguments, labels that do not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.worker import losses

LABELS = {
    "squared": lambda rng, n: rng.standard_normal(n),
    "logistic": lambda rng, n: rng.integers(0, 2, n),
    "poisson": lambda rng, n: rng.poisson(2.0, n),
    "huber": lambda rng, n: rng.standard_normal(n) * 3,
    "squared_hinge": lambda rng, n: rng.choice([-1, 1], n),
    "softmax": lambda rng, n: rng.integers(0, 3, n),
}
names = sorted(LABELS)


def case(name, seed, n=7):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3) if name == "softmax" else n) * 2
    return z, LABELS[name](rng, n), rng.uniform(0, 2, n)


def test_the_table_holds_the_six():
    assert sorted(losses.LOSSES) == names


def test_worked_values():
    log2 = math.log(2)
    assert losses.get("squared").value([3.0, 0.0], [1.0, 1.0]) == 2.5
    assert losses.get("logistic").value([0.0, 0.0], [0, 1]) == pytest.approx(2 * log2, rel=1e-15)
    assert losses.get("softmax").value([[0.0, 0.0, 0.0]], [2]) == pytest.approx(math.log(3), rel=1e-15)
    assert losses.get("poisson").value([log2], [3]) == pytest.approx(2 - 3 * log2, rel=1e-15)
    assert losses.get("huber", delta=2.0).value([1.0, 5.0], [0.0, 0.0]) == 0.5 + 2 * (5 - 1)
    assert losses.get("squared_hinge").value([0.5, 2.0, -1.0], [1, 1, 1]) == 0.25 + 0 + 4


def test_the_example_of_the_specification():
    X, y, w = np.array([[1, 0], [0, 1], [1, 1], [2, -1]]), np.array([1, 2, 3, 0]), np.array([1, 1])
    r = losses.get("squared").residual(X @ w, y)
    np.testing.assert_array_equal(r, [0, -1, -1, 1])
    np.testing.assert_array_equal(X.T @ r, [1, -3])


@pytest.mark.parametrize("name", names)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_residual_is_the_derivative_of_the_value(name, weighted):
    loss = losses.get(name)
    z, y, weight = case(name, 3)
    weight = weight if weighted else None
    residual = loss.residual(z, y, weight)
    assert residual.shape == z.shape
    step = 1e-6
    for index in np.ndindex(z.shape):
        up, down = z.copy(), z.copy()
        up[index] += step
        down[index] -= step
        slope = (loss.value(up, y, weight) - loss.value(down, y, weight)) / (2 * step)
        assert residual[index] == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", names)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 7))
@settings(max_examples=20, deadline=None)
def test_losses_are_sums_over_rows(name, seed, cut):
    loss = losses.get(name)
    z, y, weight = case(name, seed)
    whole = loss.value(z, y, weight)
    parts = loss.value(z[:cut], y[:cut], weight[:cut]) + loss.value(z[cut:], y[cut:], weight[cut:])
    assert whole == pytest.approx(parts, rel=1e-12, abs=1e-12)
    doubled = loss.value(np.concatenate([z, z]), np.concatenate([y, y]))
    assert doubled == pytest.approx(loss.value(z, y, np.full(7, 2.0)), rel=1e-12)


@pytest.mark.parametrize("name", names)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1000.0, -1000.0, 1e30])
def test_nothing_overflows(name, dtype, size):
    """With warnings as errors, an overflow or invalid operation anywhere would fail here."""
    if size == 1e30 and name in {"squared", "squared_hinge", "poisson"} and dtype == np.float32:
        pytest.skip("the loss itself is not a single-precision number")
    loss = losses.get(name)
    _, y, _ = case(name, 1)
    z = np.zeros((7, 3) if name == "softmax" else 7, dtype)
    z[..., 0] = dtype(size)
    if z.ndim == 1:
        z[:] = dtype(size)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        residual = loss.residual(z, y)
        assert np.isfinite(residual).all()
        assert math.isfinite(loss.value(z, y))
    assert residual.dtype == dtype


def test_small_probabilities_keep_their_digits():
    """``log(1 + exp(-50))`` computed as a difference of large numbers would be 0."""
    assert losses.get("logistic").value([50.0], [1]) == pytest.approx(math.exp(-50), rel=1e-14)
    assert losses.get("logistic").residual([50.0], [1])[0] == pytest.approx(-math.exp(-50), rel=1e-14)
    assert losses.get("logistic").residual([-50.0], [0])[0] == pytest.approx(math.exp(-50), rel=1e-14)


def test_both_conventions_of_binary_labels_mean_the_same():
    loss, z = losses.get("logistic"), np.linspace(-3, 3, 9)
    zero_one = np.arange(9) % 2
    signs = 2 * zero_one - 1
    for y in (signs, signs.astype(np.int8), zero_one.astype(bool), zero_one.astype(np.float32)):
        np.testing.assert_array_equal(loss.residual(z, y), loss.residual(z, zero_one))
        assert loss.value(z, y) == loss.value(z, zero_one)
    with pytest.raises(ValueError, match="both 0 and -1"):
        loss.value([0.0, 0.0], [0, -1])


@pytest.mark.parametrize(
    ("name", "z", "y", "words"),
    [
        ("logistic", [0.0, 0.0], [0, 2], r"\{0, 1\} or in \{-1, 1\}, got 2.* in row 1"),
        ("logistic", [0.0], [math.nan], "got nan in row 0"),
        ("squared_hinge", [0.0, 0.0], [1, 0], r"\{-1, 1\}, got 0.* in row 1"),
        ("poisson", [0.0, 0.0], [1, -1], "at least 0, got -1.* in row 1"),
        ("softmax", [[0.0, 0.0]], [2], r"integers 0\.\.1, got 2 in row 0"),
        ("softmax", [[0.0, 0.0]], [-1], r"integers 0\.\.1, got -1"),
        ("softmax", [[0.0, 0.0]], [0.5], r"integers 0\.\.1, got 0.5"),
        ("softmax", [[0.0, 0.0]], [math.nan], r"integers 0\.\.1, got nan"),
        ("softmax", [0.0, 0.0], [0, 1], r"weights must have shape \(p, c\)"),
        ("softmax", [[0.0, 0.0]], [[0]], "one label for each of 1 rows"),
        ("squared", [0.0, 0.0], [[0.0], [0.0]], "must have the shape of z"),
        ("huber", [0.0, 0.0], [0.0], "must have the shape of z"),
        ("huber", 0.0, 0.0, r"shape \(n,\) or \(n, c\)"),
        ("huber", [1j], [0.0], "needs real z"),
    ],
)
def test_what_does_not_fit_is_named(name, z, y, words):
    for method in ("value", "residual"):
        with pytest.raises(ValueError, match=words):
            getattr(losses.get(name), method)(z, y)


def test_weights_are_checked():
    loss = losses.get("squared")
    with pytest.raises(ValueError, match="one entry for each of 2 rows"):
        loss.value([0.0, 0.0], [1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match=r"at least 0, got -1\.0 in row 1"):
        loss.value([0.0, 0.0], [1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ValueError, match="at least 0, got nan in row 0"):
        loss.value([0.0, 0.0], [1.0, 1.0], [math.nan, 1.0])


def test_several_outputs_and_complex_numbers():
    rng = np.random.default_rng(2)
    z, y = rng.standard_normal((4, 3)), rng.standard_normal((4, 3))
    squared = losses.get("squared")
    assert squared.value(z, y) == pytest.approx(0.5 * np.linalg.norm(z - y) ** 2)
    weight = np.array([1.0, 0.0, 2.0, 1.0])
    np.testing.assert_allclose(squared.residual(z, y, weight), weight[:, None] * (z - y))
    assert squared.value(z + 1j * y, z) == pytest.approx(0.5 * np.linalg.norm(y) ** 2)


def test_single_precision_stays_and_integers_are_promoted():
    z = np.array([1.0, -1.0], np.float32)
    for name in ("squared", "logistic", "poisson", "huber", "squared_hinge"):
        assert losses.get(name).residual(z, np.array([1.0, 1.0], np.float32)).dtype == np.float32, name
    assert losses.get("squared").residual(np.array([1, 2]), np.array([1, 1])).dtype == np.float64
    assert losses.get("squared").residual(z.astype(np.float16), z.astype(np.float16)).dtype == np.float32


def test_unknown_names_and_parameters():
    with pytest.raises(ValueError, match="no loss is called 'hinge'; there are huber, logistic"):
        losses.get("hinge")
    with pytest.raises(ValueError, match="loss 'squared' does not take the parameters"):
        losses.get("squared", delta=1.0)
    for delta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="delta must be a positive number"):
            losses.get("huber", delta=delta)
