"""Cyclic repetition: worked values, stability rule, structured decoding against least squares, traps."""

import math
from itertools import combinations

import numpy as np
import pytest
from gradient_sets import fed

from serverless_gc.codes import from_manifest
from serverless_gc.codes.gradient import CyclicRepetitionCode
from serverless_gc.codes.gradient.coefficients import best_draw
from serverless_gc.codes.gradient.cyclic import annihilated_rows
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

PAPER = [[0.5, 1], [1, -1], [1, 0.5]]


def test_rows_annihilated_by_a_small_matrix():
    band = annihilated_rows(np.array([[1.0, 2.0, -3.0]]))
    code = CyclicRepetitionCode(3, 3, stragglers=1, coefficients=band)
    np.testing.assert_allclose(code.generator, [[1, -1 / 2, 0], [0, 1, 2 / 3], [3, 0, 1]], atol=1e-12)
    expected = {(0, 1): (1, 3 / 2, 0), (0, 2): (-2, 0, 1), (1, 2): (0, 1, 1 / 3)}
    for arrived, a in expected.items():
        np.testing.assert_allclose(code.weights(arrived).a, a, atol=1e-12)


def test_the_papers_example():
    code = CyclicRepetitionCode(3, 3, stragglers=1, coefficients=PAPER)
    np.testing.assert_array_equal(code.generator, [[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
    assert code.row(2)[0] == (2, 0)
    for arrived, a in {(0, 1): (2, -1, 0), (0, 2): (1, 0, 1), (1, 2): (0, 1, 2)}.items():
        np.testing.assert_allclose(code.weights(arrived).a, a, atol=1e-12)


def test_ten_workers_four_stragglers_every_set():
    code = CyclicRepetitionCode(10, 10, stragglers=4)
    for lost in combinations(range(10), 4):
        arrived = [i for i in range(10) if i not in lost]
        weights = code.weights(arrived)
        assert np.abs(weights.a @ code.generator - 1).max() < 1e-9
        np.testing.assert_allclose(weights.a, code.weights(arrived, "lstsq").a, rtol=1e-6, atol=1e-9)
    for lost in combinations(range(10), 5):
        arrived = [i for i in range(10) if i not in lost]
        assert code.weights(arrived).error > 1e-12
        assert not fed(code, arrived).decodable


def test_all_but_one_may_straggle():
    code = CyclicRepetitionCode(6, 6, stragglers=5)
    np.testing.assert_allclose(code.generator, np.ones((6, 6)), atol=1e-12)
    for worker in range(6):
        np.testing.assert_allclose(code.weights([worker]).a, np.eye(6)[worker], atol=1e-9)


def test_best_of_twenty_draws_is_kept():
    n, s, seed = 50, 5, 3
    code = CyclicRepetitionCode(n, n, stragglers=s, seed=seed)
    largest = []
    for t in range(20):
        h = np.random.default_rng([seed, t]).standard_normal((s, n))
        h[:, -1] = -h[:, :-1].sum(axis=1)
        largest.append(np.abs(annihilated_rows(h)).max())
    assert np.abs(code.coefficients).max() == min(largest) < max(largest)
    kept = best_draw(n, s, seed, lambda h: h)
    np.testing.assert_allclose(kept.sum(axis=1), 0, atol=1e-12)
    assert np.linalg.matrix_rank(code.generator) == n - s
    with pytest.raises(InputError, match="draws must be"):
        best_draw(n, s, seed, annihilated_rows, draws=0)


@pytest.mark.parametrize(("n", "s", "limit"), [(50, 5, 1e-9), (100, 10, 1e-8), (200, 20, 1e-8)])
def test_structured_decoding_is_as_good_as_least_squares(n, s, limit):
    code = CyclicRepetitionCode(n, n, stragglers=s)
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(n, 64))
    sent, exact = code.encode(gradients), gradients.sum(axis=0)
    for missing in (s, s - 1, 1, 0):
        arrived = sorted(rng.permutation(n)[missing:].tolist())
        total, certificate = code.decode({i: sent[i] for i in arrived})
        assert certificate.method == "structured"
        assert np.linalg.norm(total - exact) <= limit * np.linalg.norm(exact)
        full = code.weights(arrived, "lstsq")
        assert certificate.amplification <= 2 * full.amplification + 1e3
    contiguous = list(range(s, n))
    assert code.weights(contiguous).method == "structured"


def test_patterns_are_remembered_and_duplicates_count_once():
    code = CyclicRepetitionCode(8, 8, stragglers=2)
    once = code.weights([0, 1, 2, 3, 4, 5])
    assert code.weights([5, 4, 3, 2, 1, 0, 0, 5]) is once
    tracker = fed(code, [0, 1, 2, 3, 4, 4, 4, 4])
    assert not tracker.decodable
    assert tracker.missing() == tuple(range(8))
    assert tracker.add(7)


def test_a_loose_residual_does_not_make_a_set_decodable():
    code = CyclicRepetitionCode(10, 10, stragglers=4)
    smallest = min((code.weights(arrived).error, arrived) for arrived in combinations(range(10), 5))
    sent = code.encode(np.eye(10))
    assert smallest[0] < 1e-2
    with pytest.raises(NotDecodableError):
        code.decode({i: sent[i] for i in smallest[1]})


def test_float32_messages_are_warned_of_large_weights():
    code = CyclicRepetitionCode(200, 200, stragglers=10)
    sent = code.encode(np.ones((200, 3), np.float32))
    _, certificate = code.decode({i: sent[i] for i in range(10, 200)})
    assert certificate.amplification > 1e3
    assert "np.float64" in certificate.warning


def test_given_coefficients():
    code = CyclicRepetitionCode(3, 3, stragglers=1, coefficients=PAPER)
    again = CyclicRepetitionCode(3, 3, **code.params())
    np.testing.assert_array_equal(again.generator, code.generator)
    stored = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert stored.params() == code.params()
    assert "coefficients" not in from_manifest(CyclicRepetitionCode(5, 5).manifest()).params()
    with pytest.raises(InputError, match=r"coefficients must be finite, of shape .* = \(3, 2\), got shape \(2, 2\)"):
        CyclicRepetitionCode(3, 3, stragglers=1, coefficients=PAPER[:2])
    with pytest.raises(InputError, match="rank n_workers - stragglers = 2"):
        CyclicRepetitionCode(3, 3, stragglers=1, coefficients=[[1, 0], [1, 0], [1, 0]])


def test_coefficients_that_fail_for_some_set_are_refused_there():
    # Partition 0 is with worker 3 alone: without it the count of three is reached, and the sum is not determined.
    code = CyclicRepetitionCode(4, 4, stragglers=1, coefficients=[[0, 1], [1, 1], [1, 0], [1, 1]])
    sent = code.encode(np.eye(4))
    assert fed(code, [0, 1, 2]).decodable
    with pytest.raises(DecodeError, match="ill-conditioned"):
        code.decode({i: sent[i] for i in (0, 1, 2)})
    np.testing.assert_allclose(code.decode({i: sent[i] for i in (0, 2, 3)})[0], 1, atol=1e-12)


@pytest.mark.parametrize(("n", "s", "median", "largest"), [(20, 3, 1e-6, 6e-6), (100, 10, 2e-5, 3e-4)])
def test_accuracy_of_single_precision_messages(n, s, median, largest):
    code = CyclicRepetitionCode(n, n, stragglers=s)
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(n, 64))
    sent, exact = code.encode(gradients).astype(np.float32), gradients.sum(axis=0)
    errors = []
    for _ in range(20):
        total, _ = code.decode({int(i): sent[i].astype(float) for i in rng.permutation(n)[s:]})
        errors.append(np.linalg.norm(total - exact) / np.linalg.norm(exact))
    assert median / 10 < np.median(errors) < median * 10
    assert max(errors) < largest * 10


def test_mean_error_is_at_least_what_the_load_allows():
    n, s = 9, 2
    code = CyclicRepetitionCode(n, n, stragglers=s)
    for f in range(1, n + 1):
        errors = [code.weights(arrived).error for arrived in combinations(range(n), f)]
        assert np.mean(errors) >= n * math.comb(n - s - 1, f) / math.comb(n, f) - 1e-9
