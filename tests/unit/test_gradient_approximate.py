"""What every approximate gradient code obeys, tried on every set of arrivals of small ones."""

import math
import random

import numpy as np
import pytest
from approx_codes import CASES, errors, generic, subsets
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import available, from_manifest, get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.approximate import missed_by_all
from serverless_gc.codes.gradient.product import ProductGradientCode
from serverless_gc.codes.gradient.spectral import spectral_bound
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

NAMES = [
    "bgc",
    "bibd",
    "erasurehead",
    "expander",
    "graph",
    "heterogeneous",
    "ignore-stragglers",
    "product-gradient",
    "rbgc",
    "sbc",
    "soft-bibd",
]


@pytest.fixture(scope="module", params=CASES)
def code(request):
    return CASES[request.param]()


def test_identities_tracker_and_solution_agree_with_linear_algebra_on_every_set(code):
    plain, k = generic(code), code.k
    known = {}
    for arrived in subsets(code.n_workers):
        best, own = plain._least_squares(np.array(arrived, int)), code.weights(arrived)
        tracker, reference = code.tracker(), plain.tracker()
        for i in arrived:
            verdict, expected = tracker.add(i), reference.add(i)
        known[arrived] = own.error
        np.testing.assert_allclose(own.alpha, best.alpha, atol=1e-8)
        np.testing.assert_allclose(own.a @ code.generator, own.alpha, atol=1e-10)
        assert not np.delete(own.a, list(arrived)).any()
        assert own.alpha.sum() == pytest.approx(k - own.error, abs=1e-8)
        assert own.alpha @ own.alpha == pytest.approx(k - own.error, abs=1e-8)
        assert tracker.error == pytest.approx(own.error, abs=1e-8)
        assert tracker.decodable == reference.decodable
        if arrived:
            assert (bool(verdict), verdict.missing) == (bool(expected), expected.missing)
        assert all(own.error <= known[tuple(j for j in arrived if j != i)] + 1e-8 for i in arrived)


def test_closed_forms_and_bounds_hold_over_every_set(code):
    n, k = code.n_workers, code.k
    for s in range(n + 1):
        best, one_step = errors(code, s), errors(code, s, "one-step")
        expected, worst = code.expected_error(n - s), code.worst_error(s)
        if expected is not None:
            assert best.mean() == pytest.approx(expected, abs=1e-9)
        if worst is not None:
            assert best.max() <= worst + 1e-9
        if s <= code.tolerated:
            assert best.max() == pytest.approx(code.worst_error(0), abs=1e-9)
        assert one_step.mean() == pytest.approx(code.one_step_error(n - s), rel=1e-9, abs=1e-9)
        low, high = code.expected_error_bounds(n - s)
        assert low - 1e-9 <= best.mean() <= high + 1e-9
        assert best.max() >= code.least_worst_error(s) - 1e-9
        assert low == pytest.approx(missed_by_all(code.generator, n - s))
    assert code.expected_error(0) in {None, float(k)}


def test_the_rescaled_answer_counts_partitions_once_on_average(code):
    for arrived in subsets(code.n_workers, [1, code.n_workers - 1]):
        best, rescaled = code.weights(arrived), code.weights(arrived, "rescaled")
        if best.error < code.k - 1e-9:
            assert rescaled.alpha.mean() == pytest.approx(1.0)
            assert rescaled.error == pytest.approx(code.k * best.error / (code.k - best.error), abs=1e-8)


def test_the_iterations_reach_the_optimum(code):
    for arrived in subsets(code.n_workers, [code.n_workers - 1]):
        best, steps = code.weights(arrived), code.weights(arrived, "algorithmic")
        assert best.error - 1e-9 <= steps.error <= best.error + 1e-4 * code.k


def test_the_manifest_alone_rebuilds_the_code(code):
    stored = manifest_to_bytes(code.manifest())
    again = from_manifest(manifest_from_bytes(stored))
    assert type(again) is type(code)
    np.testing.assert_array_equal(again.generator, code.generator)
    assert (again.params(), again.awaited, again.exact) == (code.params(), code.awaited, code.exact)
    assert manifest_to_bytes(again.manifest()) == stored
    rebuilt = get(code.name, n_workers=code.n_workers, k=code.k, **code.params())
    np.testing.assert_array_equal(rebuilt.generator, code.generator)
    assert type(code).__name__ in repr(code)


def test_rows_are_workers_and_no_tolerance_is_free(code):
    assert code.generator.shape == (code.n_workers, code.k)
    holders = np.count_nonzero(code.generator, axis=0)
    assert holders.min() >= code.tolerated + 1 or code.worst_error(0) > 0


def test_rows_are_those_of_the_matrix(code):
    for i in range(code.n_messages):
        partitions, coefficients = code.row(i)
        row = np.zeros(code.k)
        row[list(partitions)] = coefficients
        np.testing.assert_array_equal(row, code.generator[i])
    with pytest.raises(InputError, match="message id"):
        code.row(code.n_messages)


@given(case=st.sampled_from(sorted(CASES)), seed=st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_order_and_repetition_of_arrivals_change_nothing(case, seed):
    code, shuffle = CASES[case](), random.Random(seed)
    arrived = shuffle.sample(range(code.n_workers), shuffle.randint(1, code.n_workers))
    once, again = code.tracker(), code.tracker()
    verdicts = [bool(once.add(i)) for i in arrived]
    assert verdicts == sorted(verdicts)
    for i in shuffle.sample(2 * arrived, 2 * len(arrived)):
        again.add(i)
    assert again.error == pytest.approx(once.error, abs=1e-9)
    assert again.missing() == once.missing()
    alpha = code.weights(arrived).alpha
    np.testing.assert_allclose(code.weights(sorted(arrived) * 2).alpha, alpha, atol=1e-9)
    with pytest.raises(InputError, match="message id"):
        once.add(code.n_workers)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_works_by_itself_and_decodes_what_arrived(name):
    code = get(name)
    info = next(info for info in available() if info.name == name)
    assert (info.kind, info.exact, code.name, code.kind) == ("gradient", False, name, "gradient")
    again = get(name, n_workers=code.n_workers)
    np.testing.assert_array_equal(again.generator, code.generator)
    assert (get(name, k=code.k).n_workers, get(name, k=code.k).k) == (code.n_workers, code.k)
    assert code.awaited == math.ceil(0.9 * code.n_workers)
    assert get(name, wait=2).awaited == 2
    g = np.random.default_rng(0).normal(size=(code.k, 3))
    sent = code.encode(g)
    arrived = {i: sent[i] for i in range(code.awaited)}
    total, certificate = code.decode(arrived)
    bound = np.sqrt(certificate.error) * np.linalg.norm(g, 2)
    assert np.linalg.norm(total - g.sum(axis=0)) <= bound + 1e-9
    assert certificate.error == pytest.approx(code.weights(arrived).error)
    with pytest.raises(NotDecodableError):
        code.decode({})
    if certificate.error > 1e-9:
        with pytest.raises(NotDecodableError):
            code.decode(arrived, approximate=False)


@pytest.mark.parametrize("wait", [0, 17, 2.5, True])
def test_refused_stopping_counts(wait):
    with pytest.raises(InputError, match="wait must be"):
        get("ignore-stragglers", n_workers=16, wait=wait)


def test_refused_arguments_of_bounds_and_decoders(code):
    for ask in (code.expected_error, code.worst_error, code.one_step_error, code.least_worst_error):
        for count in (-1, code.n_workers + 1):
            with pytest.raises(InputError, match=r"must be in 0\.\."):
                ask(count)
    with pytest.raises(InputError, match=r"method must be one of 'optimal'.*'rescaled'.*got 'best'"):
        code.weights([0], "best")


def test_no_redundancy_is_the_baseline():
    code = get("ignore-stragglers", n_workers=10)
    for s in range(10):
        arrived = range(10 - s)
        assert code.weights(arrived).error == s == code.expected_error(10 - s) == code.worst_error(s)
        assert code.weights(arrived, "one-step").error == pytest.approx(10 * s / (10 - s))
    with pytest.raises(InputError, match="k must equal n_workers=4"):
        get("ignore-stragglers", n_workers=4, k=3)


def test_the_spectral_certificate_is_for_even_codes_only():
    ring = LinearGradientCode([[1.0 if (j - i) % 6 in (0, 1) else 0.0 for j in range(6)] for i in range(6)])
    for s in range(6):
        assert errors(ring, s, "one-step").max() <= spectral_bound(ring, s) + 1e-9
    for uneven in ([[1, 1], [1, 0]], [[1, -1], [-1, 1]], [[1j, 1], [1, 1j]]):
        with pytest.raises(InputError, match="equal row sums"):
            spectral_bound(LinearGradientCode(uneven), 1)
    with pytest.raises(InputError, match="stragglers must be in"):
        spectral_bound(ring, 6)
    with pytest.raises(InputError, match="k must be"):
        ProductGradientCode(k=3)
