"""The generic gradient code: identities of the optimal decoder, running error, refusals."""

from itertools import combinations

import numpy as np
import pytest

from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

PAPER = [[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]
FANO = [[1.0 if (j - i) % 7 in (0, 1, 3) else 0.0 for j in range(7)] for i in range(7)]
MATRICES = {
    "paper": np.array(PAPER),
    "fano": np.array(FANO),
    "bernoulli": (np.random.default_rng(3).random((8, 8)) < 0.4).astype(float),
    "complex": np.fft.fft(np.eye(6))[:, :4],
}


@pytest.mark.parametrize("name", MATRICES)
def test_identities_of_the_optimal_decoder_on_every_set(name):
    matrix = MATRICES[name]
    code = LinearGradientCode(matrix)
    n, k = matrix.shape
    errors = {}
    for size in range(n + 1):
        for arrived in combinations(range(n), size):
            w = code.weights(arrived)
            tracker = code.tracker()
            for i in arrived:
                tracker.add(i)
            errors[arrived] = w.error
            assert w.error == pytest.approx(tracker.error, abs=1e-9)
            assert w.alpha.sum() == pytest.approx(k - w.error, abs=1e-9)
            assert np.vdot(w.alpha, w.alpha).real == pytest.approx(k - w.error, abs=1e-9)
            assert not np.any(np.delete(w.a, arrived))
            for i in arrived:
                assert w.error <= errors[tuple(j for j in arrived if j != i)] + 1e-9
    assert errors[()] == k


def test_worked_values_of_the_papers_example():
    code = LinearGradientCode(PAPER)
    for arrived, expected in {(0, 1): (2, -1, 0), (0, 2): (1, 0, 1), (1, 2): (0, 1, 2)}.items():
        np.testing.assert_allclose(code.weights(arrived).a, expected, atol=1e-12)
        assert code.tracker().add(arrived[0]).missing


def test_algorithmic_decoder_reaches_the_optimum_and_one_step_counts_each_partition_once_on_average():
    code = LinearGradientCode(FANO, exact=False)
    for arrived in combinations(range(7), 5):
        best, steps, common = (code.weights(arrived, how) for how in ("optimal", "algorithmic", "one-step"))
        assert steps.error == pytest.approx(best.error, abs=1e-7)
        assert common.error >= best.error - 1e-12
        assert common.alpha.mean() == pytest.approx(1.0)
    assert code.weights(range(5)).error == pytest.approx(0.5714285714)
    assert code.weights(range(5), "one-step").error == pytest.approx(0.6222222222)
    assert code.weights(range(5), "one-step").a[0] == pytest.approx(7 / (5 * 3))


def test_an_exact_code_refuses_an_approximation_that_nobody_asked_for():
    code = LinearGradientCode(FANO)
    g = np.random.default_rng(0).normal(size=(7, 3))
    sent = dict(enumerate(code.encode(g)))
    total, certificate = code.decode(sent)
    np.testing.assert_allclose(total, g.sum(axis=0), atol=1e-12)
    assert certificate.error < 1e-20
    del sent[6]
    with pytest.raises(NotDecodableError, match="approximate gradient"):
        code.decode(sent)
    rough, certificate = code.decode(sent, approximate=True)
    assert certificate.error == pytest.approx(0.25)
    weights = np.array([certificate.weights[i] for i in range(6)])
    np.testing.assert_allclose(weights, 3 / 8)
    np.testing.assert_allclose(rough, weights @ np.array([sent[i] for i in range(6)]))
    assert np.linalg.norm(rough - g.sum(axis=0)) <= np.sqrt(certificate.error) * np.linalg.norm(g, 2) + 1e-12


def test_complex_messages_give_a_real_gradient():
    n, s = 8, 2
    roots = np.exp(2j * np.pi * np.arange(1, s + 1) / n)
    first = np.poly(roots)[::-1]
    matrix = np.array([np.roll(np.r_[first, np.zeros(n - s - 1)], i) for i in range(n)])
    code = LinearGradientCode(matrix)
    g = np.random.default_rng(1).normal(size=(n, 4))
    sent = code.encode(g)
    for lost in combinations(range(n), s):
        total, certificate = code.decode({i: sent[i] for i in range(n) if i not in lost})
        assert total.dtype == np.float64
        np.testing.assert_allclose(total, g.sum(axis=0), rtol=1e-9)
        assert certificate.error < 1e-20


def test_manifest_and_refused_arguments():
    code = LinearGradientCode(np.eye(4)[[0, 1, 2, 3, 0]], placement=[[0, 1], [2], [3, 4]], exact=False)
    again = LinearGradientCode.from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert [again.placement(i) for i in range(3)] == [(0, 1), (2,), (3, 4)]
    assert not again.exact
    assert np.array_equal(again.generator, code.generator)
    with pytest.raises(InputError, match="matrix must be a finite matrix"):
        LinearGradientCode([[np.nan]])
    with pytest.raises(InputError, match="placement of worker 1 names message 7"):
        LinearGradientCode(np.eye(2), placement=[[0, 1], [7]])
    with pytest.raises(InputError, match="method must be"):
        code.weights([0], "best")
    with pytest.raises(InputError, match=r"message id must be in 0\.\.4"):
        code.weights([5])
