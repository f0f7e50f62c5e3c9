"""Kernels against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.wire import CsrBlock
from serverless_gc.worker import kernels, losses, products
from serverless_gc.worker.kernels import multiply, multiply_transposed

dtypes = st.sampled_from([bool, np.int8, np.uint16, np.int32, np.float16, np.float32, np.float64, np.complex128])


def csr_block(matrix):
    m = scipy.sparse.csr_array(wide(matrix))  # SciPy knows no float16
    return CsrBlock(m.data.astype(matrix.dtype), m.indices, m.indptr, m.shape)


def wide(a):
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def random_matrix(rng, shape, dtype):
    values = rng.integers(-3 if np.dtype(dtype).kind not in "bu" else 0, 4, shape)
    values = values * (rng.random(shape) < 0.4)
    if np.dtype(dtype).kind == "c":
        return values + 1j * values[::-1]
    return values.astype(dtype)


@given(
    seed=st.integers(0, 10_000), m=st.integers(0, 9), p=st.integers(1, 9), c=st.none() | st.integers(1, 3),
    block_dtype=dtypes, operand_dtype=dtypes, strip=st.sampled_from([1, 64, 1 << 20]),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_products_are_exact_for_small_integers(seed, m, p, c, block_dtype, operand_dtype, strip):
    """Every value here is a small integer, so all correct ways to compute the product agree exactly."""
    rng = np.random.default_rng(seed)
    block = random_matrix(rng, (m, p), block_dtype)
    trailing = () if c is None else (c,)
    right = random_matrix(rng, (p, *trailing), operand_dtype)
    left = random_matrix(rng, (m, *trailing), operand_dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_STRIP_BYTES", strip)
        for form in (block, csr_block(block)):
            product = multiply(form, right)
            np.testing.assert_array_equal(product, wide(block) @ wide(right))
            assert product.shape == (m, *trailing)
            transposed = multiply_transposed(form, left)
            np.testing.assert_array_equal(transposed, wide(block).conj().T @ wide(left))
            assert transposed.shape == (p, *trailing)


def test_sums_are_wide_enough():
    ones = np.ones((1, 300), bool)
    assert multiply(ones, np.ones(300, bool)) == [300]
    assert multiply(np.full((1, 300), 100, np.int8), np.full(300, 100, np.int8)) == [3_000_000]
    assert multiply(np.full((1, 300), 60000, np.float16), np.ones(300, np.float16)).dtype == np.float32
    assert multiply(np.ones((2, 3), np.float32), np.ones(3)).dtype == np.float64
    assert multiply(np.ones((2, 3), np.float32), np.ones(3, np.float32)).dtype == np.float32


def test_empty_rows_own_nothing():
    block = csr_block(np.array([[0.0, 0], [1, 2], [0, 0], [0, 0], [3, 0], [0, 0]]))
    np.testing.assert_array_equal(multiply(block, np.array([1.0, 10.0])), [0, 21, 0, 0, 3, 0])
    empty = csr_block(np.zeros((3, 2)))
    np.testing.assert_array_equal(multiply(empty, np.ones((2, 2))), np.zeros((3, 2)))


def test_larger_sparse_blocks_agree_with_scipy():
    matrix = scipy.sparse.random_array((3000, 500), density=0.02, rng=np.random.default_rng(0), format="csr")
    block = CsrBlock(matrix.data, matrix.indices, matrix.indptr, matrix.shape)
    rng = np.random.default_rng(1)
    for trailing in ((), (4,)):
        w, r = rng.standard_normal((500, *trailing)), rng.standard_normal((3000, *trailing))
        np.testing.assert_allclose(multiply(block, w), matrix @ w, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(multiply_transposed(block, r), matrix.T @ r, rtol=1e-12, atol=1e-12)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"block of shape \(2, 3\) needs an operand of shape \(3,\).*got \(2,\)"):
        multiply(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="must be a matrix"):
        multiply(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="needs a block, the task names none"):
        kernels.get("matvec")([], np.ones(1), {})
    with pytest.raises(ValueError, match="needs an operand"):
        kernels.get("matvec")([np.ones((1, 1))], None, {})
    with pytest.raises(ValueError, match=r"no kernel 'sort'; it has .*gradient, matmul, matvec, node-gradient, noop"):
        kernels.get("sort")
    with pytest.raises(ValueError, match="takes two blocks, the task names 1"):
        kernels.get("matmul")([np.ones((1, 1))], None, {})


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("name", "params"), [("squared", {}), ("logistic", {}), ("huber", {"delta": 0.5})])
def test_gradient_is_the_gradient(name, params, sparse):
    rng = np.random.default_rng(4)
    X, w = rng.standard_normal((30, 5)), rng.standard_normal(5)
    y, weight = rng.integers(0, 2, 30), rng.uniform(0, 1, 30)
    loss = losses.get(name, **params)
    form = csr_block(X) if sparse else X
    gradient = kernels.get("gradient")([form, y, weight], w, {"loss": name, "loss_params": params, "weighted": True})
    for j in range(5):
        step = 1e-6 * np.eye(5)[j]
        slope = (loss.value(X @ (w + step), y, weight) - loss.value(X @ (w - step), y, weight)) / 2e-6
        assert gradient[j] == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_gradient_combines_parts_with_coefficients():
    rng = np.random.default_rng(5)
    parts = [(rng.standard_normal((4, 3)), rng.standard_normal(4)) for _ in range(3)]
    w = rng.standard_normal(3)
    each = [X.T @ (X @ w - y) for X, y in parts]
    blocks = [a for part in parts for a in part]
    run = kernels.get("gradient")
    np.testing.assert_allclose(run(blocks, w, {}), sum(each))
    np.testing.assert_allclose(run([], w, {}), np.zeros(3))
    two = [[0, [0, 1, 2], [2, 0, -0.5]], [1, [2], [3]]]
    np.testing.assert_allclose(run(blocks, w, {"messages": two}), [2 * each[0] - 0.5 * each[2], 3 * each[2]])
    turned = {"messages": [[0, [0, 2], [[0.0, 1.0], [1, 0]]]], "complex": True, "dtype": "<c16"}
    np.testing.assert_allclose(run(blocks, w, turned), 1j * each[0] + each[2])
    single = run(blocks, w, {"dtype": "<f4", "value": True})
    assert single.dtype == np.float32
    value = sum(0.5 * np.sum((X @ w - y) ** 2) for X, y in parts)
    np.testing.assert_allclose(single, np.append(sum(each), value), rtol=1e-6)
    with pytest.raises(ValueError, match="message 7 combines 3 parts with 2 coefficients"):
        run(blocks, w, {"messages": [[7, [0, 1, 2], [1, 2]]]})
    with pytest.raises(ValueError, match="2 blocks for each part, the task names 5"):
        run(blocks[:5], w, {})
    with pytest.raises(ValueError, match="labels and weights must be dense"):
        run([blocks[0], csr_block(np.ones((4, 1)))], w, {})


@pytest.mark.parametrize("size", [1, 4, 5])
def test_folded_messages_are_those_of_the_definition(size):
    """Entry v is the sum over parts i and u of E[i][u] * g_i[v * m + u], of gradients padded with zeros."""
    rng = np.random.default_rng(size)
    blocks = [a for _ in range(3) for a in (rng.standard_normal((4, size)), rng.standard_normal(4))]
    w, E, m = rng.standard_normal(size), rng.standard_normal((3, 3)), 3
    g = np.zeros((3, -(-size // m) * m))
    for i in range(3):
        g[i, :size] = blocks[2 * i].T @ (blocks[2 * i] @ w - blocks[2 * i + 1])
    expected = [sum(E[i, u] * g[i, v * m + u] for i in range(3) for u in range(m)) for v in range(g.shape[1] // m)]
    params = {"messages": [[0, [0, 1, 2], E.tolist()]], "fold": m}
    np.testing.assert_allclose(kernels.get("gradient")(blocks, w, params), expected)


def test_each_part_is_computed_once_and_messages_come_as_they_are_done():
    computed = []

    class Told(losses.Squared):
        def residual(self, z, y, sample_weight=None):
            computed.append(len(y))
            return super().residual(z, y, sample_weight)

    blocks = [a for rows in (1, 2, 3) for a in (np.ones((rows, 2)), np.zeros(rows))]
    messages = [[4, [0, 1], [1, 1]], [5, [1, 2], [1, -1]], [6, [0, 2], [2, 2]]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "LOSSES", {"told": Told})
        params = {"loss": "told", "messages": messages}
        stream = kernels.STREAMS["gradient"](blocks, np.ones(2), params)
        assert next(stream).tolist() == [6.0, 6.0]
        assert computed == [1, 2]
        assert [message.tolist() for message in stream] == [[-2.0, -2.0], [16.0, 16.0]]
        assert computed == [1, 2, 3]
        assert [m.tolist() for m in kernels.STREAMS["gradient"](blocks, np.ones(2), params, first=2)] == [[16.0, 16.0]]
    assert computed == [1, 2, 3, 1, 3]


def test_softmax_takes_a_matrix_of_weights():
    rng = np.random.default_rng(6)
    X, W, y = rng.standard_normal((8, 3)), rng.standard_normal((3, 4)), rng.integers(0, 4, 8)
    gradient = kernels.get("gradient")([X, y], W, {"loss": "softmax"})
    p = np.exp(X @ W)
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient.reshape(W.shape), X.T @ (p - np.eye(4)[y]))


def test_noop():
    assert kernels.get("noop")([], None, {"size": 3}).tolist() == [0, 0, 0]
    assert kernels.get("noop")([], None, {}).shape == (0,)


def test_several_blocks_give_the_stack_of_their_products():
    blocks = [np.arange(6.0).reshape(2, 3), np.ones((2, 3))]
    product = kernels.get("matvec")(blocks, np.array([1.0, 0.0, 2.0]), {})
    assert product.tolist() == [[4.0, 13.0], [3.0, 3.0]]
