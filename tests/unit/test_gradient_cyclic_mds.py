"""Cyclic MDS: worked values, every formula on every set, stability, parity."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from gradient_sets import fed, least_error, subsets

from serverless_gc.codes import get
from serverless_gc.codes.gradient import CyclicMDSCode, GradientTracker
from serverless_gc.codes.gradient.cyclic_mds import contiguous_growth
from serverless_gc.errors import DecodeError, InputError

PHI = (1 + 5**0.5) / 2


def weights_without(code, *lost):
    return code.weights([i for i in range(code.n_workers) if i not in lost])


@pytest.mark.parametrize(
    ("n", "s", "row"), [(4, 1, (1, 1)), (5, 2, (1, PHI, 1)), (6, 3, (1, 2, 2, 1)), (7, 2, (1, 1.8019377358, 1))]
)
def test_first_rows_of_the_real_variant(n, s, row):
    code = CyclicMDSCode(n, n, stragglers=s)
    np.testing.assert_allclose(code.coefficients, np.tile(row, (n, 1)), atol=1e-9)
    assert code.generator.dtype == np.float64


def test_worked_values():
    real = CyclicMDSCode(5, 5, stragglers=2)
    assert real.generator[0].sum() == pytest.approx(3.6180339887)
    np.testing.assert_allclose(weights_without(real, 0, 1).a, (0, 0, 1, -0.6180339887, 1), atol=1e-9)
    np.testing.assert_allclose(
        weights_without(real, 0, 2).a, (0, 0.6180339887, 0, 0.3819660113, 0.3819660113), atol=1e-9
    )
    three = CyclicMDSCode(3, 3, stragglers=1, variant="complex", first_exponent=1)
    np.testing.assert_allclose(three.coefficients[0], (0.5 - 0.8660254j, 1), atol=1e-7)
    np.testing.assert_allclose(weights_without(three, 0).a, (0, 0.5 + 0.8660254j, 1), atol=1e-7)
    eight = CyclicMDSCode(8, 8, stragglers=2, variant="complex", first_exponent=1)
    assert abs(eight.generator[0].sum()) == pytest.approx(1.0823922003)
    assert np.abs(weights_without(eight, 2, 5).a).max() == pytest.approx(2.4142135624)


@pytest.mark.parametrize(("variant", "first"), [("real", None), ("complex", None), ("complex", 1), ("complex", 2)])
@pytest.mark.parametrize(("n", "s"), [(6, 1), (7, 2), (8, 3), (9, 4), (8, 7), (3, 0)])
def test_formulas_on_every_set(n, s, variant, first):
    if first is not None and first + s > n:
        first = n - s
    code = CyclicMDSCode(n, n, stragglers=s, variant=variant, first_exponent=first)
    for missing in range(s + 1):
        for lost in combinations(range(n), missing):
            weights = weights_without(code, *lost)
            assert weights.method == "structured"
            assert np.abs(weights.a @ code.generator - 1).max() < 1e-10
            assert not np.any(weights.a[list(lost)])
            if missing == s:
                np.testing.assert_allclose(weights.a, code.weights(np.flatnonzero(weights.a), "lstsq").a, atol=1e-9)


def test_plain_transpose_in_the_decoding_condition_conjugate_in_projections():
    code = CyclicMDSCode(6, 6, stragglers=2, variant="complex")
    weights = weights_without(code, 1, 4)
    assert np.abs(weights.a @ code.generator - 1).max() < 1e-12
    assert np.abs(weights.a.conj() @ code.generator - 1).max() > 0.1
    for size in range(7):
        for arrived in combinations(range(6), size):
            running = GradientTracker(code.generator)
            for worker in arrived:
                running.add(worker)
            assert running.decodable == fed(code, arrived).decodable == (least_error(code, arrived) < 1e-12)
            assert running.decodable or size < 4


def test_stability_is_good_apart_and_bad_among_neighbours():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = CyclicMDSCode(100, 100, stragglers=9)
    apart = [round(i * 100 / 9) for i in range(9)]
    assert np.abs(weights_without(code, *apart).a).max() == pytest.approx(0.007, abs=5e-4)
    assert np.abs(weights_without(code, *range(9)).a).max() == pytest.approx(1.3e7, rel=0.05)
    first = CyclicMDSCode(100, 100, stragglers=5, variant="complex", first_exponent=1)
    assert np.abs(weights_without(first, *range(5)).a).max() == pytest.approx(contiguous_growth(100, 5), rel=1e-3)
    assert contiguous_growth(100, 10) == pytest.approx(3.0e8, rel=0.1)
    assert contiguous_growth(500, 5) == pytest.approx(8.5e8, rel=0.02)


def test_an_unstable_code_warns_and_refuses_wrong_answers():
    with pytest.warns(RuntimeWarning, match="25 neighbours of 100"):
        code = CyclicMDSCode(100, 100, stragglers=25, variant="complex", first_exponent=1)
    sent = code.encode(np.ones((100, 1)))
    with pytest.raises(DecodeError, match="ill-conditioned"):
        code.decode({i: sent[i] for i in range(25, 100)})


@pytest.mark.parametrize("variant", ["real", "complex"])
def test_defaults_are_stable_and_of_the_right_parity(variant):
    for n in (1, 2, 3, 10, 11, 50, 100, 500, 1000):
        code = get("cyclic-mds", n_workers=n, variant=variant)
        assert 1 <= code.tolerated <= 5 or n == 1
        assert variant == "complex" or (n - code.tolerated) % 2 == 1


def test_refusals():
    with pytest.raises(InputError, match=r"n_workers - stragglers odd, got 6 - 2: use stragglers=3"):
        CyclicMDSCode(6, 6, stragglers=2)
    with pytest.raises(InputError, match="got 5 - 3: use stragglers=4"):
        CyclicMDSCode(5, 5, stragglers=3)
    with pytest.raises(InputError, match="variant must be"):
        CyclicMDSCode(5, 5, variant="quaternion")
    with pytest.raises(InputError, match="belongs to variant='complex'"):
        CyclicMDSCode(5, 5, stragglers=2, first_exponent=1)
    with pytest.raises(InputError, match=r"first_exponent must be in 1\.\.n_workers - stragglers = 4, got 5"):
        CyclicMDSCode(6, 6, stragglers=2, variant="complex", first_exponent=5)


def test_fewer_arrivals_that_decode_are_found():
    code = CyclicMDSCode(4, 4, stragglers=1)
    np.testing.assert_array_equal(code.generator[0], [1, 1, 0, 0])
    assert fed(code, [0, 2]).decodable
    assert not fed(code, [0, 1]).decodable
    np.testing.assert_allclose(code.weights([1, 3]).a, [0, 1, 0, 1], atol=1e-12)
    assert fed(CyclicMDSCode(66, 66, stragglers=1), range(0, 66, 2)).decodable is False


@pytest.mark.parametrize("variant", ["real", "complex"])
@pytest.mark.parametrize("n", [4, 6, 8])
def test_trackers_of_composite_sizes_agree_with_the_rank(n, variant):
    for s in range(n):
        if variant == "real" and (n - s) % 2 == 0:
            continue
        code = CyclicMDSCode(n, n, stragglers=s, variant=variant)
        for arrived in subsets(range(n)):
            decodable = least_error(code, arrived) <= 1e-12 * n
            assert fed(code, arrived).decodable == decodable
            assert decodable or len(arrived) < n - s
            assert (code.weights(arrived).error <= 1e-12 * n) == decodable
