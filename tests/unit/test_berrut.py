"""Berrut code: measured errors, any number of results, refusals."""

import numpy as np
import pytest

from serverless_gc.codes.lagrange.berrut import BerrutCode
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest, get
from serverless_gc.errors import DecodeError, InputError, NotDecodableError


def relative_error(answer, exact):
    return np.linalg.norm(answer - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize(("arrived", "typical", "worst"), [(100, 0.015, 0.02), (75, 0.023, 0.1), (50, 0.05, 0.25)])
def test_errors_for_tanh(arrived, typical, worst):
    code = BerrutCode(100, 8)
    rng = np.random.default_rng(arrived)
    errors, predicted = [], []
    for _ in range(60):
        data = rng.normal(size=(8, 10))
        sent = np.tanh(code.encode(data))
        ids = rng.choice(100, arrived, replace=False).tolist()
        answer, certificate = code.decode({i: sent[i] for i in ids})
        errors.append(relative_error(answer, np.tanh(data)))
        predicted.append(certificate.error**0.5)
    assert np.median(errors) == pytest.approx(typical, rel=0.3)
    assert max(errors) < worst
    assert np.median(predicted) == pytest.approx(np.median(errors), rel=0.2), "what a linear function would lose"


def test_weights_by_the_formula_with_signs_by_rank():
    code = BerrutCode(7, 2)
    ids = (0, 2, 3, 6)
    beta = np.cos(np.pi * np.array(ids) / 6)
    terms = np.array([1, -1, 1, -1]) / (code.data_points[:, None] - beta)
    np.testing.assert_allclose(code.weights(ids), terms / terms.sum(axis=1, keepdims=True))
    alpha = np.cos(np.pi * (np.arange(2) + 0.5) / 2)
    terms = np.array([1, -1]) / (code.worker_points[:, None] - alpha)
    np.testing.assert_allclose(code.generator, terms / terms.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_constants_are_exact_from_any_results(count):
    code = BerrutCode(20, 3)
    ids = np.random.default_rng(count).permutation(20)[:count].tolist()
    answer, _ = code.decode({i: np.full(4, 7.0) for i in ids})
    np.testing.assert_allclose(answer, 7.0, rtol=1e-14)


def test_a_data_point_that_a_worker_has_is_copied():
    code = BerrutCode(5, 1)
    assert [code.source_of(i) for i in range(5)] == [None, None, 0, None, None]
    code = BerrutCode(9, 2)  # cos(pi/4) is both a data point and a worker's
    copies = [i for i in range(9) if code.source_of(i) is not None]
    assert copies == [2, 6]
    data = np.random.default_rng(0).normal(size=(2, 3))
    stored = code.encode(data)
    assert np.array_equal(stored[copies], data)
    answer, certificate = code.decode({i: np.exp(stored[i]) for i in (0, 2, 6)})
    assert np.array_equal(answer, np.exp(data))
    assert certificate.amplification == 1.0


def test_dtypes_and_memory():
    code = BerrutCode(12, 2)
    data = np.random.default_rng(1).normal(size=(2, 3)).astype(np.complex64)
    stored = code.encode(data)
    out = np.empty((2, 3), np.complex64)
    answer, _ = code.decode(dict(enumerate(stored)), out=out)
    assert answer is out
    assert relative_error(answer, data) < 0.1
    np.testing.assert_allclose(code.encode(data, messages=[3, 1]), stored[[3, 1]], rtol=1e-6)


def test_tracker_waits_for_three_quarters_by_default():
    for code, enough in ((BerrutCode(10, 2), 8), (BerrutCode(10, 2, awaited=3), 3)):
        tracker = code.tracker()
        verdicts = [bool(tracker.add(i)) for i in (9, 8, 7, 6, 5, 4, 3, 0)]
        assert verdicts.index(True) + 1 == enough
        again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
        assert (again.awaited, repr(again)) == (enough, repr(code))
    assert get("berrut").k == 2
    assert not get("berrut", k=3).exact


def test_refusals():
    with pytest.raises(InputError, match="k must be at most n_workers=3"):
        BerrutCode(3, 4)
    for bad in (0, 5, 2.5, True):
        with pytest.raises(InputError, match="awaited"):
            BerrutCode(4, 2, awaited=bad)
    code = BerrutCode(6, 2)
    with pytest.raises(NotDecodableError):
        code.decode({})
    with pytest.raises(NotDecodableError):
        code.certify([])
    with pytest.raises(InputError, match="message id"):
        code.decode({6: np.ones(2)})
    with pytest.raises(InputError, match="NaN"):
        code.decode({0: np.array([np.nan]), 1: np.ones(1)})
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode({0: np.ones(1)}, tolerance=1e-20)
