"""Ye-Abbe: the worked example, folding, both constructions, stability, refusals."""

from itertools import combinations

import numpy as np
import pytest
from gradient_sets import least_error
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.gradient import YeAbbeCode
from serverless_gc.codes.gradient.ye_abbe import _by_definition, standard_points
from serverless_gc.errors import InputError, NotDecodableError

E0 = [(2, 6, 12, 0, 0), (0, 2, 6, -3, 0), (0, 0, 2, -4, 2), (2, 0, 0, -3, 6), (6, 2, 0, 0, 12)]
E1 = [(-6, -6, 12, 0, 0), (0, 0, 12, 3, 0), (0, 0, 6, 0, -6), (0, 0, 0, -3, -12), (6, 6, 0, 0, -12)]
GRADIENTS = np.arange(1.0, 11.0).reshape(5, 2)


def example():
    return YeAbbeCode(5, 5, load=3, stragglers=1, fold=2, matrix="vandermonde", points=[-2, -1, 0, 1, 2])


def test_worked_coefficients_and_messages():
    code = example()
    cube = code.generator.reshape(5, 5, 2)
    np.testing.assert_allclose(cube[:, :, 0], E0, atol=1e-12)
    np.testing.assert_allclose(cube[:, :, 1], E1, atol=1e-12)
    sent = code.encode(GRADIENTS)
    np.testing.assert_allclose(sent[:, 0], [116, 111, -24, -109, 36], atol=1e-12)
    for lost in range(5):
        total, _ = code.decode({w: sent[w] for w in range(5) if w != lost})
        np.testing.assert_allclose(total, [25, 30], atol=1e-11)


def test_worked_decoding_matrix():
    weights = example().weights([1, 2, 3, 4])
    np.testing.assert_allclose(
        weights.a, [[0, 0], [1 / 2, -1 / 6], [-1, 1 / 2], [1 / 2, -1 / 2], [0, 1 / 6]], atol=1e-12
    )
    np.testing.assert_allclose(weights.alpha, 1, atol=1e-12)


def test_worked_block_rows():
    # [R_i | I] are the rows that give E by V: solve for them again.
    code = example()
    v = np.vander([-2.0, -1, 0, 1, 2], 4, increasing=True).T
    blocks = {
        i: np.linalg.lstsq(v.T, code.generator.reshape(5, 5, 2)[:, i], rcond=None)[0].T.round(9).tolist()
        for i in range(5)
    }
    assert blocks[0] == [[0, 1, 1, 0], [0, -1, 0, 1]]
    assert blocks[1] == [[0, -1, 1, 0], [0, -1, 0, 1]]
    assert blocks[2] == [[2, -3, 1, 0], [6, -7, 0, 1]]
    assert blocks[3] == [[-4, 0, 1, 0], [0, -4, 0, 1]]
    assert blocks[4] == [[2, 3, 1, 0], [-6, -7, 0, 1]]


@pytest.mark.parametrize(
    ("n", "s", "m"), [(1, 0, 1), (2, 0, 2), (5, 2, 2), (6, 1, 3), (6, 0, 6), (6, 5, 1), (30, 3, 3)]
)
def test_both_constructions_agree(n, s, m):
    code = YeAbbeCode(n, n, stragglers=s, fold=m)
    direct = _by_definition(code._basis, s, m)
    np.testing.assert_allclose(
        code.coefficients.reshape(direct.shape), direct, rtol=0, atol=1e-9 * np.abs(direct).max()
    )


def test_every_set_of_stragglers_with_the_rank_test():
    for n, s, m in ((6, 2, 2), (5, 1, 3), (5, 3, 2)):
        code = YeAbbeCode(n, n, stragglers=s, fold=m)
        for size in range(n + 1):
            for arrived in combinations(range(n), size):
                error = least_error(code, arrived)
                assert (error < 1e-12) == (size >= n - s)
                assert code.weights(arrived, "lstsq").error == pytest.approx(error, abs=1e-9)
                assert (np.abs(code.weights(arrived).alpha - 1).max() < 1e-8) == (size >= n - s)


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 9), m=st.integers(1, 4), lost=st.integers(0, 5))
def test_gradients_of_any_length_are_padded(length, m, lost):
    code = YeAbbeCode(6, 6, stragglers=1, fold=m)
    gradients = np.random.default_rng(length).normal(size=(6, length))
    sent = code.encode(gradients)
    assert sent.shape == (6, code.fold_length(length))
    arrived = {w: sent[w] for w in range(6) if w != lost}
    total, _ = code.decode(arrived)
    assert total.shape == (code.fold_length(length) * m,)
    assert code.row(2)[1].shape == ((1 + m, m) if m > 1 else (2,))
    np.testing.assert_allclose(total[:length], gradients.sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(total[length:], 0, atol=1e-10)
    out = np.empty(length)
    assert code.decode(arrived, out=out)[0] is out
    np.testing.assert_array_equal(out, total[:length])


def test_shapes_of_gradients_and_answers():
    code = YeAbbeCode(6, 6, stragglers=1, fold=2)
    gradients = np.random.default_rng(0).normal(size=(6, 3, 3)).astype(np.float32)
    sent = code.encode(list(gradients), messages=[5, 0, 1, 2, 3])
    assert (sent.shape, sent.dtype) == ((5, 5), np.float32)
    placed = np.empty((5, 5))
    assert code.encode(gradients, placed, messages=[5, 0, 1, 2, 3]) is placed
    out = np.empty((3, 3))
    _, certificate = code.decode(dict(zip((5, 0, 1, 2, 3), sent.astype(float), strict=True)), out=out)
    np.testing.assert_allclose(out, gradients.sum(axis=0), atol=1e-3)
    assert len(certificate.weights[5]) == 2
    with pytest.raises(InputError, match="out must hold a gradient that folds into 5 numbers of 2 each, got 8"):
        code.decode(dict(enumerate(sent)), out=np.empty(8))
    with pytest.raises(InputError, match="must be flat"):
        code.decode({i: sent[i].reshape(1, 5) for i in range(5)})
    with pytest.raises(NotDecodableError):
        code.decode({i: sent[i] for i in range(4)})
    with pytest.raises(InputError, match="method must be"):
        code.weights(range(6), "one-step")


@pytest.mark.parametrize(("n", "s", "m"), [(30, 3, 3), (100, 10, 2), (100, 10, 10)])
def test_the_gaussian_matrix_is_stable(n, s, m):
    code = YeAbbeCode(n, n, stragglers=s, fold=m)
    rng = np.random.default_rng(2)
    gradients = rng.normal(size=(n, 20))
    sent, exact = code.encode(gradients), gradients.sum(axis=0)
    for _ in range(5):
        arrived = rng.permutation(n)[s:].tolist()
        total, certificate = code.decode({w: sent[w] for w in arrived})
        assert np.linalg.norm(total[:20] - exact) <= 1e-9 * np.linalg.norm(exact)
        assert certificate.method == "structured"


def test_sizes_follow_from_one_another():
    assert YeAbbeCode(10, 10, load=4).params()["fold"] == 3
    assert (YeAbbeCode(10, 10, load=4, fold=1).tolerated, YeAbbeCode(10, 10, load=4, stragglers=1).fold) == (3, 3)
    assert YeAbbeCode(10, 10, fold=10).tolerated == 0
    assert [YeAbbeCode(n, n).load for n in (1, 2, 3, 30)] == [1, 2, 3, 5]
    code = YeAbbeCode(12, 12, matrix="vandermonde")
    np.testing.assert_array_equal(standard_points(12)[[0, 5, 6, 11]], [-3.5, -1, 1, 3.5])
    assert np.abs(code.weights(range(2, 12)).alpha - 1).max() < 1e-6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"load": 4, "stragglers": 1, "fold": 2}, r"load must equal stragglers \+ fold = 1 \+ 2, got 4"),
        ({"stragglers": 4, "fold": 3}, r"load = stragglers \+ fold = 4 \+ 3 must not exceed n_workers=6"),
        ({"fold": 0}, "fold must be an integer of at least 1"),
        ({"load": 2, "stragglers": 2}, "fold = load - stragglers must be an integer of at least 1, got 0"),
        ({"load": 1, "fold": 2}, "stragglers must be an integer of at least 0"),
        ({"matrix": "chebyshev"}, "matrix must be"),
        ({"points": [1, 2]}, "points belong to"),
        ({"matrix": "vandermonde", "points": [1, 2, 3, 4, 5, 5]}, "distinct"),
        ({"basis": [[1.0]]}, "basis and coefficients must both be given"),
    ],
)
def test_refusals(given, words):
    with pytest.raises(InputError, match=words):
        YeAbbeCode(6, 6, **given)


def test_vandermonde_is_refused_where_it_is_lost():
    with pytest.raises(InputError, match="too ill-conditioned for n_workers=13"):
        YeAbbeCode(13, 13, matrix="vandermonde")


def test_without_folding_it_is_a_code_like_any_other():
    code = YeAbbeCode(5, 5, stragglers=2, fold=1)
    gradients = np.random.default_rng(3).normal(size=(5, 2, 3))
    sent = code.encode(gradients)
    assert sent.shape == (5, 2, 3)
    np.testing.assert_allclose(code.decode({i: sent[i] for i in (0, 2, 4)})[0], gradients.sum(axis=0), atol=1e-10)
    assert code.weights([0, 2, 4]).a.shape == (5,)
    np.testing.assert_allclose(code.weights([0, 2, 4], "lstsq").a, code.weights([0, 2, 4]).a, atol=1e-9)
    assert code.weights([0, 2], "algorithmic").error == pytest.approx(code.weights([0, 2]).error, rel=0.1)
