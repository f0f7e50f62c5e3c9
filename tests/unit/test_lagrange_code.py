"""Lagrange and PCR codes: worked values, every subset of small codes, errors, refusals."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.lagrange.code import EvaluatedCode, LagrangeCode
from serverless_gc.codes.lagrange.pcr import PCRCode
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest, get
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

X = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
W = np.ones(2)


def gradients(stored, w):
    return np.array([block.conj().T @ (block @ w) for block in stored])


def test_points_and_coefficients_of_the_worked_example():
    code = PCRCode(5, 2)
    np.testing.assert_allclose(code.data_points, [0.70710678, -0.70710678], atol=1e-8)
    np.testing.assert_allclose(code.worker_points, [0.95105652, 0.58778525, 0, -0.58778525, -0.95105652], atol=1e-8)
    np.testing.assert_allclose(code.generator[0], [1.172498512, -0.172498512], atol=1e-9)
    np.testing.assert_allclose(code.generator[2], [0.5, 0.5], atol=1e-15)


@pytest.mark.parametrize(
    ("arrived", "weights", "norm"),
    [
        ((0, 2, 4), (0.5527864045, 0.8944271910, 0.5527864045), 1.187917),
        ((0, 1, 2), (2.8944271910, -4.6832815730, 3.7888543820), 6.683282),
    ],
)
def test_weights_of_the_worked_example(arrived, weights, norm):
    certificate = PCRCode(5, 2).gradient_round.certify(arrived)
    np.testing.assert_allclose([certificate.weights[i] for i in arrived], weights, atol=1e-9)
    assert certificate.amplification == pytest.approx(norm, abs=1e-6)
    assert certificate.predicted_error == pytest.approx(2.0**-53 * norm * 3**0.5, rel=1e-6)


def test_all_ten_triples_give_the_gradient():
    code = PCRCode(5, 2)
    sent = gradients(code.encode(X), W)
    for triple in combinations(range(5), 3):
        total, certificate = code.gradient_round.decode({i: sent[i] for i in triple})
        np.testing.assert_allclose(total, [24, 34], rtol=1e-13)
        assert set(certificate.used) <= set(triple)


def test_squares_by_lagrange_coding():
    code = LagrangeCode(8, 3)
    squares = code.evaluated(2)
    assert squares.threshold == squares.guaranteed_threshold == 5
    sent = code.encode(np.array([1.0, 2.0, 3.0])) ** 2
    answer, _ = squares.decode({i: sent[i] for i in (0, 2, 3, 5, 7)})
    np.testing.assert_allclose(answer, [1, 4, 9], rtol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("total", [False, True])
def test_every_subset_decodes_or_is_refused(k, degree, total):
    code = LagrangeCode(9, k, allow_unstable=True)
    evaluated = code.evaluated(degree, total=total)
    data = np.random.default_rng(k).normal(size=(k, 3))
    sent = code.encode(data) ** degree - code.encode(data)
    wanted = data**degree - data
    wanted = wanted.sum(axis=0) if total else wanted
    for size in range(10):
        for subset in combinations(range(9), size):
            tracker = evaluated.tracker()
            for i in subset:
                tracker.add(i)
            copied = {code.source_of(i) for i in subset} - {None}
            assert tracker.decodable == (size >= evaluated.threshold or len(copied) == k)
            values = {i: sent[i] for i in subset}
            if tracker.decodable:
                answer, certificate = evaluated.decode(values)
                assert answer.shape == wanted.shape
                limit = 20 * np.abs(sent).max() * (certificate.predicted_error + 1e-15)
                np.testing.assert_allclose(answer, wanted, rtol=0, atol=limit)
            else:
                assert set(tracker.missing()) == set(range(k)) - copied
                with pytest.raises(NotDecodableError):
                    evaluated.decode(values)


@pytest.mark.parametrize("n", [7, 8])
def test_tracker_of_the_linear_round_equals_rank(n):
    code = LagrangeCode(n, 4)
    reference = as_linear(code)
    for size in range(n + 1):
        for subset in combinations(range(n), size):
            fast, slow = code.tracker(), reference.tracker()
            for i in subset:
                fast.add(i)
                slow.add(i)
            assert (fast.decodable, fast.missing()) == (slow.decodable, slow.missing())


def test_copies_are_bit_identical_and_not_amplified():
    code = LagrangeCode(9, 3)  # three times as many points: every third one is a data point
    assert [code.source_of(i) for i in range(9)] == [None, 0, None, None, 1, None, None, 2, None]
    data = np.random.default_rng(0).normal(size=(3, 5))
    stored = code.encode(data)
    assert np.array_equal(stored[[1, 4, 7]], data)
    squares = code.evaluated(2)
    answer, certificate = squares.decode({i: stored[i] ** 2 for i in (7, 1, 4)})
    assert np.array_equal(answer, data**2)
    assert (certificate.method, certificate.amplification, certificate.predicted_error) == ("copy", 1.0, 0.0)
    answer, _ = squares.decode({i: stored[i] ** 2 for i in (0, 1, 2, 3, 5)})
    assert np.array_equal(answer[0], data[0] ** 2)
    total, certificate = code.evaluated(2, total=True).decode({i: stored[i] ** 2 for i in (1, 4, 7)})
    np.testing.assert_allclose(total, (data**2).sum(axis=0))
    assert certificate.weights == {1: 1.0, 4: 1.0, 7: 1.0}


@pytest.mark.parametrize(
    ("n", "k", "median", "p95"),
    [(10, 4, 4e-16, 8e-15), (20, 5, 2e-15, 4e-13), (50, 10, 2e-13, 2e-9), (100, 20, 2e-10, 4e-5)],
)
def test_errors_of_gradients_are_those_measured_and_those_predicted(n, k, median, p95):
    code = PCRCode(n, k, allow_unstable=True)
    threshold = 2 * k - 1
    rng = np.random.default_rng(n)
    found, oversampled = [], []
    for _ in range(60):
        data, w = rng.normal(size=(k, 6, 4)), rng.normal(size=4)
        sent = gradients(code.encode(data), w)
        exact = gradients(data, w).sum(axis=0)
        order = rng.permutation(n).tolist()
        for count, errors in ((threshold, found), (int(np.ceil(1.3 * threshold)), oversampled)):
            answer, certificate = code.gradient_round.decode({i: sent[i] for i in order[:count]})
            error = np.linalg.norm(answer - exact) / np.linalg.norm(exact)
            assert error < 6 * certificate.predicted_error + 1e-15
            errors.append(error)
    assert median / 5 < np.median(found) < 5 * median
    assert np.quantile(found, 0.95) < 30 * p95
    assert max(oversampled) < max(found) / 10
    if (n, k) == (20, 5):
        assert max(oversampled) < 1e-11


def test_chebyshev_points_beat_equispaced_ones():
    good = PCRCode(20, 5).gradient_round
    even = PCRCode(20, 5, data_points=np.linspace(-0.9, 0.9, 5), worker_points=np.linspace(-1, 1, 20)).gradient_round
    rng = np.random.default_rng(3)
    sets = [rng.choice(20, 12, replace=False).tolist() for _ in range(60)]
    medians = [np.median([c.certify(s).amplification for s in sets]) for c in (good, even)]
    assert medians[1] > 1.2 * medians[0]


def test_points_of_ones_own():
    code = LagrangeCode(5, 2, data_points=[10, 12], worker_points=[10, 11, 12, 13, 14])
    np.testing.assert_allclose(code.generator, [[1, 0], [0.5, 0.5], [0, 1], [-0.5, 1.5], [-1, 2]], atol=1e-15)
    data = np.array([[1.0, -2.0], [3.0, 5.0]])
    cubes = code.evaluated(3)
    answer, _ = cubes.decode({i: code.encode(data)[i] ** 3 for i in (1, 2, 3, 4)})
    np.testing.assert_allclose(answer, data**3, rtol=1e-11)
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert again.params() == code.params() == {"data_points": [10, 12], "worker_points": [10, 11, 12, 13, 14]}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int32, bool])
def test_dtypes(dtype):
    rng = np.random.default_rng(2)
    code = PCRCode(12, 4)
    data = (rng.normal(size=(4, 5, 3)) * 4).astype(dtype)
    if data.dtype.kind == "c":
        data = data + dtype(1j) * rng.normal(size=data.shape).astype(data.real.dtype)
    w = rng.normal(size=3).astype(data.real.dtype if data.dtype.kind in "fc" else float)
    stored = code.encode(data)
    wide = data.astype(np.result_type(data, float))
    out = np.empty(3, np.result_type(stored, w))
    # A transpose without conjugation is a polynomial; X^H X is not one in X, but decodes all the same for real points.
    total, _ = code.gradient_round.decode({i: gradients(stored[i : i + 1], w)[0] for i in range(2, 12)}, out=out)
    assert total.base is out or total is out
    exact = gradients(wide, w).sum(axis=0)
    assert np.linalg.norm(out - exact) / np.linalg.norm(exact) < (1e-3 if stored.real.dtype == np.float32 else 1e-11)


def test_surplus_results_expose_a_wrong_one():
    code = PCRCode(12, 4)
    sent = gradients(code.encode(np.random.default_rng(0).normal(size=(4, 5, 3))), np.ones(3))
    values = {i: sent[i] for i in range(1, 10)}
    _, certificate = code.gradient_round.decode(values)
    assert certificate.surplus_checked == 2
    assert certificate.residual < 1e-14
    values[4] = values[4] + 1e-5
    with pytest.raises(DecodeError, match="contradict"):
        code.gradient_round.decode(values)
    values[4] = np.full(3, np.nan)
    with pytest.raises(InputError, match="messages \\[4\\]"):
        code.gradient_round.decode(values)


def test_the_guard_asks_for_more_results():
    code = PCRCode(50, 10).gradient_round
    assert isinstance(code, Certifier)
    bunched = list(range(19))
    assert code.certify(bunched).predicted_error > 1e-6
    assert code.certify([*bunched, 49, 40]).predicted_error < code.certify(bunched).predicted_error / 100
    assert code.certify(bunched, np.float32).predicted_error > 1e8 * code.certify(bunched).predicted_error
    values = {i: np.zeros(2) for i in bunched}
    with pytest.raises(DecodeError, match="wait for more results"):
        code.decode(values, tolerance=1e-8)


def test_weights_are_remembered_by_arrival_pattern():
    interpolation = PCRCode(12, 4).gradient_round._interpolation
    first = interpolation.weighting([3, 1, 2, 5, 8, 9, 10])
    assert interpolation.weighting((10, 9, 8, 5, 3, 2, 1)) is first
    for pattern in list(permutations(range(12), 7))[:1]:
        assert interpolation.weighting(pattern) is not first
    for subset in combinations(range(12), 7):
        interpolation.weighting(subset)
    assert len(interpolation._known) <= 128


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_any_threshold_results_determine_any_polynomial(k, degree, seed):
    rng = np.random.default_rng(seed)
    threshold = (k - 1) * degree + 1
    code = LagrangeCode(2 * threshold, k)
    evaluated = code.evaluated(degree)
    data = rng.normal(size=(k, 2))
    coefficients = rng.normal(size=degree + 1)
    sent = np.polynomial.polynomial.polyval(code.encode(data), coefficients)
    ids = rng.permutation(2 * threshold)[:threshold].tolist()
    answer, certificate = evaluated.decode({i: sent[i] for i in ids})
    exact = np.polynomial.polynomial.polyval(data, coefficients)
    size = np.abs(sent).max()
    assert np.abs(answer - exact).max() < 20 * size * (certificate.predicted_error + 1e-15)


@pytest.mark.parametrize("make", [lambda: LagrangeCode(7, 3), lambda: PCRCode(12, 4)])
def test_manifests(make):
    code = make()
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert type(again) is type(code)
    assert (repr(again), again.params()) == (repr(code), code.params())
    assert np.array_equal(again.generator, code.generator)
    sums = code.evaluated(2, total=True)
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(sums.manifest())))
    assert isinstance(again, EvaluatedCode)
    assert (again.degree, again.total, again.target, repr(again)) == (2, True, "sum", repr(sums))
    assert np.array_equal(again.generator, sums.generator)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LagrangeCode(3, 4), ["k must be at most n_workers=3", "4"]),
        (lambda: LagrangeCode(3, 0), ["k must be an integer of at least 1"]),
        (lambda: LagrangeCode(50, 21), ["k must be at most 20", "21", "allow_unstable"]),
        (lambda: LagrangeCode(4, 2, data_points=[1, 2, 3]), ["data_points", "2 finite"]),
        (lambda: LagrangeCode(3, 2, worker_points=[1, 2, 1]), ["worker_points", "different"]),
        (lambda: LagrangeCode(3, 2, worker_points=[1, 2, np.inf]), ["worker_points", "finite"]),
        (lambda: LagrangeCode(3, 2, worker_points=[1, 2, 3j]), ["worker_points", "real"]),
        (lambda: PCRCode(4, 3), ["n_workers must be at least", "= 5", "got 4"]),
        (lambda: LagrangeCode(8, 3).evaluated(0), ["degree", "0"]),
        (lambda: LagrangeCode(8, 3).evaluated(1.5), ["degree", "1.5"]),
        (lambda: LagrangeCode(8, 3).evaluated(4), ["n_workers", "= 9", "degree=4"]),
    ],
)
def test_refusals(make, words):
    with pytest.raises(InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_warnings_of_what_loses_accuracy():
    with pytest.warns(UserWarning, match="k=11 data blocks"):
        code = LagrangeCode(30, 11)
    assert from_manifest(code.manifest()).allow_unstable is False
    with pytest.warns(UserWarning, match="n_workers=5 for 5 results needed: launch at least 7"):
        PCRCode(5, 3)
    assert LagrangeCode(40, 25, allow_unstable=True).params() == {"allow_unstable": True}


def test_too_few_results_are_named():
    code = LagrangeCode(9, 3)
    with pytest.raises(NotDecodableError, match="any 5 determine them: 2 more are needed") as caught:
        code.evaluated(2).certify([0, 1, 2])
    assert caught.value.missing == (1, 2)
    with pytest.raises(InputError, match="message id"):
        code.decode({9: np.ones(2)})


@pytest.mark.parametrize(
    ("name", "given_sizes", "sizes"),
    [
        ("pcr", {}, (16, 6)),
        ("pcr", {"n_workers": 1}, (1, 1)),
        ("pcr", {"n_workers": 200}, (200, 10)),
        ("pcr", {"k": 5}, (12, 5)),
        ("lagrange", {}, (16, 10)),
        ("lagrange", {"n_workers": 8}, (8, 6)),
        ("lagrange", {"k": 3}, (4, 3)),
    ],
)
def test_default_sizes(name, given_sizes, sizes):
    code = get(name, **given_sizes)
    assert (code.name, code.n_workers, code.k) == (name, *sizes)
