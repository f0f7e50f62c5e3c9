"""What workers compute of a loss's curvature: sketches, Fisher matrices, squares of single rows' gradients."""

import numpy as np
import pytest
import scipy.sparse as sp
from gradient_cases import problem

from serverless_gc.wire import CsrBlock
from serverless_gc.worker import kernels, losses
from serverless_gc.worker.curvature import (
    buckets_and_signs,
    measured,
    sketched_columns,
    sketched_rows,
    squared_slopes,
)

SMOOTH = ["squared", "logistic", "poisson"]
CURVED = [*SMOOTH, "huber", "squared_hinge"]


def sketch_matrix(seed, n, rows):
    S = np.zeros((rows, n))
    buckets, signs = buckets_and_signs(seed, 0, n, rows)
    S[buckets, np.arange(n)] = signs
    return S


def forms(X):
    """The same matrix dense, in single precision and sparse, as workers hold it."""
    csr = sp.csr_matrix(np.where(np.abs(X) < 0.7, 0, X))
    return [
        (X, X),
        (X.astype(np.float32), X.astype(np.float32).astype(float)),
        (CsrBlock(csr.data, csr.indices, csr.indptr, csr.shape), csr.toarray()),
    ]


def test_a_sketch_is_the_same_in_every_version_and_wherever_it_begins():
    buckets, signs = buckets_and_signs([7, 2], 0, 8, 5)
    assert buckets.tolist() == [4, 4, 0, 0, 4, 1, 0, 1]
    assert signs.tolist() == [1, -1, 1, 1, 1, 1, 1, 1]
    later = buckets_and_signs([7, 2], 3, 5, 5)
    assert [part.tolist() for part in later] == [buckets[3:].tolist(), signs[3:].tolist()]
    assert buckets_and_signs([7, 3], 0, 8, 5)[0].tolist() != buckets.tolist()


def test_a_sketch_keeps_squares_in_the_mean():
    n, rows = 12, 5
    mean = np.mean([S.T @ S for S in (sketch_matrix([seed], n, rows) for seed in range(4000))], axis=0)
    np.testing.assert_allclose(mean, np.eye(n), atol=6 * np.sqrt(1 / rows / 4000))


@pytest.mark.parametrize("form", [0, 1, 2], ids=["dense", "single", "sparse"])
def test_rows_and_columns_are_sketched(form):
    rng = np.random.default_rng(1)
    X, plain = forms(rng.standard_normal((30, 4)))[form]
    buckets, signs = buckets_and_signs([3], 0, 30, 7)
    factors = signs * rng.random(30)
    expected = sketch_matrix([3], 30, 7) @ (plain * np.abs(factors)[:, None])
    np.testing.assert_allclose(sketched_rows(X, buckets, factors, 7), expected, atol=1e-12)
    columns = forms(plain.T.copy())[form][0] if form != 2 else _csr(plain.T)
    np.testing.assert_allclose(sketched_columns(columns, buckets, factors, 7), expected.T, atol=1e-12)


def _csr(A):
    csr = sp.csr_matrix(A)
    return CsrBlock(csr.data, csr.indices, csr.indptr, csr.shape)


def test_blocks_with_complex_coefficients_are_sketched():
    block = np.array([[1.0, 2.0, 4.0]]) * (1 + 2j)
    buckets, factors = np.array([1, 0, 1]), np.array([1.0, 1.0, -1.0])
    np.testing.assert_array_equal(sketched_columns(block, buckets, factors, 2), [[2 + 4j, -3 - 6j]])
    np.testing.assert_array_equal(sketched_columns(_csr(block), buckets, factors, 2), [[2 + 4j, -3 - 6j]])


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("form", [0, 2], ids=["dense", "sparse"])
@pytest.mark.parametrize("loss", CURVED)
def test_parts_add_up_to_the_whole(loss, form, weighted):
    X, y, w, _ = problem(loss, 60)
    block, plain = forms(X)[form]
    weight = np.random.default_rng(2).random(60) if weighted else None
    ones = np.ones(60) if weight is None else weight
    function = losses.get(loss)
    z = plain @ w
    D = function.curvature(z, y) * ones
    expected = {
        "fisher": plain.T @ (D[:, None] * plain),
        "sum_of_squares": (plain**2).T @ (function.residual(z, y) ** 2 * ones),
        "hessian_root": sketch_matrix([5], 60, 11) @ (np.sqrt(D)[:, None] * plain),
    }
    for kind, whole in expected.items():
        what = {"kind": kind, "seed": [5], "rows": 11, "whole": False}
        total = np.zeros_like(whole)
        for a, b in ((0, 25), (25, 60)):
            part = block[a:b] if form == 0 else _csr(plain[a:b])
            total += measured(what, part, y[a:b], None if weight is None else weight[a:b], z[a:b], function, a)
        np.testing.assert_allclose(total, whole, atol=1e-10 * np.abs(whole).max())


def test_a_fisher_matrix_of_many_rows_is_summed_up_in_strips():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 90)), rng.standard_normal(3000)  # more than one strip
    found = measured({"kind": "fisher"}, X, y, None, np.zeros(3000), losses.Squared(), 0)
    np.testing.assert_allclose(found, X.T @ X, atol=1e-9)


@pytest.mark.parametrize("name", CURVED)
def test_curvature_is_the_derivative_of_the_residual(name):
    loss, z, h = losses.get(name), np.linspace(-3, 3, 40), 1e-5
    y = np.where(np.arange(40) % 2, 1.0, -1.0) if name in {"squared_hinge", "logistic"} else np.ones(40)
    slopes = (loss.residual(z + h, y) - loss.residual(z - h, y)) / (2 * h)
    smooth = np.abs(np.diff(loss.curvature(np.stack([z - h, z + h], 1), np.stack([y, y], 1)), axis=1))[:, 0] < 1e-3
    np.testing.assert_allclose(loss.curvature(z, y)[smooth], slopes[smooth], rtol=1e-4)
    assert smooth.sum() > 36
    np.testing.assert_allclose(loss.curvature(z, y, np.full(40, 2.0)), 2 * loss.curvature(z, y))
    far = loss.curvature(np.array([1000.0, -1000.0]), np.array([1.0, 1.0]))
    assert np.isfinite(far).all()
    assert (far >= 0).all()


def test_softmax_tells_no_second_derivative():
    assert [name for name in losses.LOSSES if not losses.get(name).separable] == ["softmax"]
    with pytest.raises(ValueError, match="'softmax' does not tell its second derivative"):
        losses.get("softmax").curvature(np.zeros((1, 2)), [0])


def test_a_row_of_weight_two_counts_as_two():
    loss, z, y = losses.Squared(), np.array([3.0]), np.array([1.0])
    assert squared_slopes(loss, z, y, np.array([2.0])).tolist() == [8.0]
    assert squared_slopes(loss, z, y, None).tolist() == [4.0]


def test_kernels_by_name():
    block, operand = np.arange(6.0).reshape(2, 3), np.array([[0.0, 1.0], [1.0, -1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(kernels.get("sketch")([block], operand, {"rows": 2}), [[4.0, -1.0], [13.0, -4.0]])
    several = list(kernels.stream("sketch", [block, 2 * block], operand, {"rows": 2}, 1))
    np.testing.assert_array_equal(several, [[[8.0, -2.0], [26.0, -8.0]]])
    with pytest.raises(ValueError, match="needs an operand"):
        kernels.get("sketch")([block], None, {"rows": 2})
    X, y = np.eye(2), np.zeros(2)
    measure = {"kind": "sum_of_squares", "size": 2, "behind": False}
    params = {"measure": measure, "parts": [[0, 0, 2]], "loss": "squared"}
    np.testing.assert_array_equal(kernels.get("curvature")([X, y], np.array([2.0, 3.0]), params), [4.0, 9.0])
    params |= {"measure": {**measure, "behind": True}, "value": True}
    found = kernels.get("curvature")([X, y], np.array([2.0, 3.0]), params)
    np.testing.assert_array_equal(found, [2.0, 3.0, 4.0, 9.0, 6.5])  # gradient, squares, value
