"""Heterogeneous stragglers: exact enumeration of the unbiased weights, their variance, the allocation."""

from itertools import product

import numpy as np
import pytest

from serverless_gc.codes.gradient.heterogeneous import HeterogeneousCode, allocate
from serverless_gc.errors import InputError

THREE = {"p": [0.1, 0.2, 0.5], "placement": [[0, 1], [1, 2], [0, 2]]}


def moments(code, coefficients=None):
    """Mean of alpha and mean squared error of each partition over all outcomes, by their probabilities."""
    mean = square = 0.0
    for outcome in product((0, 1), repeat=code.n_workers):
        chance = np.prod(np.where(outcome, 1 - code.p, code.p))
        if coefficients is None:
            alpha = code.weights(np.flatnonzero(outcome).tolist(), "unbiased").alpha
        else:
            alpha = np.array(outcome) @ coefficients
        mean, square = mean + chance * alpha, square + chance * (alpha - 1) ** 2
    return mean, square


def test_worked_example():
    code = HeterogeneousCode(3, 3, **THREE)
    expected = [[0.7692308, 0, 1], [0.3846154, 1, 0], [0, 0.4, 0.2]]
    np.testing.assert_allclose(code.coefficients, expected, atol=5e-8)
    mean, square = moments(code)
    np.testing.assert_allclose(mean, 1.0)
    np.testing.assert_allclose(square, [0.0769231, 0.2, 0.1], atol=5e-8)
    np.testing.assert_allclose(code.variances, square)
    assert code.unbiased_error == pytest.approx(0.3769231, abs=5e-8)


def test_equal_splitting_is_unbiased_too_and_worse():
    code = HeterogeneousCode(3, 3, **THREE)
    split = (code.coefficients > 0) / (2 * (1 - code.p))[:, None]
    mean, square = moments(code, split)
    np.testing.assert_allclose(mean, 1.0)
    assert square.sum() == pytest.approx(0.6805556, abs=5e-8)


def test_no_fixed_unbiased_weights_have_a_smaller_variance():
    code = HeterogeneousCode(3, 3, **THREE)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = np.where(code.coefficients > 0, rng.normal(1, 0.5, (3, 3)), 0.0)
        other /= (1 - code.p) @ other
        assert ((code.p * (1 - code.p)) @ other**2).sum() >= code.unbiased_error - 1e-12


def test_worked_allocation():
    p = [0.1, 0.2, 0.3, 0.4]
    placement = allocate(p, 4, 2)
    assert placement == [(0,), (0,), (1, 2, 3), (1, 2, 3)]
    assert HeterogeneousCode(4, 4, p=p).unbiased_error == pytest.approx(0.4775414, abs=5e-8)
    cyclic = HeterogeneousCode(4, 4, p=p, placement=[[j, (j - 1) % 4] for j in range(4)])
    assert cyclic.unbiased_error == pytest.approx(0.5909255, abs=5e-8)
    odds = [9, 9, 7.8333333, 7.8333333]
    np.testing.assert_allclose(1 / HeterogeneousCode(4, 4, p=p, placement=placement).variances, odds, atol=5e-8)


def test_allocation_stops_at_the_tolerance():
    p = [0.1] * 6
    assert allocate(p, 3, 3, tolerance=1 / 9) == [(0,), (0,), (0,)]
    assert allocate(p, 3, 3, tolerance=0.08) == [(0, 1)] * 3
    reached = HeterogeneousCode(6, 3, p=p, placement=allocate(p, 3, 3, tolerance=0.08)).unbiased_error
    assert reached <= 0.08 * 3
    assert allocate([0.5, 0.1], 2, [1, 2]) == [(0, 1), (1,)]


def test_equal_probabilities_give_the_common_closed_form():
    code = HeterogeneousCode(4, 4, p=0.2, placement=[[j, (j + 1) % 4] for j in range(4)])
    np.testing.assert_allclose(code.coefficients[code.coefficients > 0], 1 / (2 * 0.8))
    assert code.unbiased_error == pytest.approx(4 * 0.2 / (2 * 0.8))


def test_workers_that_never_straggle_take_over():
    code = HeterogeneousCode(3, 2, p=[0.0, 1e-13, 0.3], placement=[[0, 1, 2], [2]])
    np.testing.assert_allclose(code.coefficients, [[0.5, 0], [0.5, 0], [0, 1 / 0.7]])
    assert code.variances[0] == pytest.approx(0.0, abs=1e-12)
    assert code.weights([0, 1], "unbiased").alpha.tolist() == [1.0, 0.0]
    assert code.uncovered([0, 1]) == (1,)
    assert code.uncovered([0, 1, 2]) == ()
    assert allocate([0.5, 0.0, 0.0], 3, 2) == [(1, 2), (1,), (2,)]


def test_the_optimal_weights_have_a_smaller_error_and_are_biased():
    code = HeterogeneousCode(3, 3, **THREE)
    mean, square = 0.0, 0.0
    for outcome in product((0, 1), repeat=3):
        chance = np.prod(np.where(outcome, 1 - code.p, code.p))
        best = code.weights(np.flatnonzero(outcome).tolist())
        mean, square = mean + chance * best.alpha.mean(), square + chance * best.error
    assert square < code.unbiased_error
    assert mean < 1 - 1e-3


def test_decoding_with_the_fixed_weights():
    code = HeterogeneousCode(3, 3, **THREE)
    g = np.random.default_rng(1).normal(size=(3, 2))
    sent = code.encode(g)
    total, certificate = code.decode({0: sent[0], 2: sent[2]}, method="unbiased")
    np.testing.assert_allclose(total, (code.coefficients[0] + code.coefficients[2]) @ g)
    assert certificate.method == "unbiased"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"p": 1.0}, r"p must be in \[0, 1\), that of worker 0 is 1.0"),
        ({"p": [0.1, -0.1, 0.2]}, "worker 1 is -0.1"),
        ({"p": [0.1, float("nan"), 0.2]}, "worker 1 is nan"),
        ({"p": [0.1, 0.2]}, "one for each of 3 workers"),
        ({"placement": [[0], [1]]}, "k=3 partitions, got 2 lists"),
        ({"placement": [[0], [], [1]]}, "partition 1 has none"),
        ({"placement": [[0], [3], [1]]}, r"placement of partition 1 must be an integer in 0\.\.2"),
        ({"placement": [[0], [1, 1], [1]]}, "partition 1 names worker 1 twice"),
        ({"placement": [[0], [1], [2]], "load": 2}, "load must not be given together with placement"),
        ({"load": [1, 0, 1]}, r"capacity must be at least k=3 in all, it is 2: partitions \[\d\] have no holder"),
        ({"load": [1, 1]}, "one for each of 3 workers, got 2"),
        ({"load": 4}, r"capacity must be an integer in 0\.\.3"),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        HeterogeneousCode(3, 3, **params)
    with pytest.raises(InputError, match="tolerance must be positive"):
        allocate([0.1], 1, 1, tolerance=0.0)
    with pytest.raises(InputError, match="message id"):
        HeterogeneousCode(3, 3).uncovered([3])
