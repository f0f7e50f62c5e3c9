"""Soft BIBD: the search finds designs where there are some, its bounds hold, its sums never change."""

import numpy as np
import pytest
from approx_codes import errors, random_errors

from serverless_gc.codes.gradient.bibd import BIBDCode
from serverless_gc.codes.gradient.soft_bibd import SoftBIBDCode
from serverless_gc.codes.gradient.spectral import spectral_bound
from serverless_gc.errors import InputError


@pytest.mark.parametrize(("n", "load", "seeds"), [(7, 3, range(4)), (13, 4, range(2))])
def test_the_search_finds_a_design(n, load, seeds):
    for seed in seeds:
        code = SoftBIBDCode(n, n, load=load, seed=seed)
        assert code.imbalance == pytest.approx(0.0, abs=1e-9)
        design = BIBDCode(design=code.generator)
        for s in (1, 2, 3):
            np.testing.assert_allclose(errors(code, s), design.worst_error(s), atol=1e-9)
            assert code.mean_bound(n - s) == pytest.approx(design.worst_error(s))
            assert code.worst_error(s) == pytest.approx(design.worst_error(s))


def test_figures_of_twenty_workers():
    code = SoftBIBDCode(20, 20, load=5)
    shared = code.generator @ code.generator.T
    assert set(shared[np.triu_indices(20, 1)]) <= {0.0, 1.0, 2.0}
    assert code.mean_intersection == pytest.approx(20 / 19)
    assert code.largest_intersection == 2
    assert code.mean_bound(16) == pytest.approx(0.7595, abs=5e-5)
    assert code.one_step_error(16) == pytest.approx(0.7894737, abs=5e-8)
    found = random_errors(code, 16, 300, 0)
    assert np.mean(found) == pytest.approx(0.64, abs=0.02)
    assert max(found) <= 1.0 + 1e-9
    assert spectral_bound(code, 4) == pytest.approx(1.43, abs=0.25)
    assert code._formula(16, 2) == pytest.approx(8.57, abs=5e-3)
    assert code.worst_error(4) == pytest.approx(spectral_bound(code, 4))
    assert max(found) <= code.worst_error(4)


@pytest.mark.parametrize(
    ("n", "k", "load"), [(7, 7, 3), (6, 10, 4), (9, 5, 2), (5, 5, 5), (1, 4, 2), (4, 7, 7), (8, 8, 1)]
)
def test_exchanges_keep_the_sums_and_never_make_it_less_even(n, k, load):
    start = SoftBIBDCode(n, k, load=load, proposals=0, seed=3)
    end = SoftBIBDCode(n, k, load=load, proposals=400, seed=3)
    assert (start.generator.sum(axis=1) == load).all()
    assert np.ptp(start.generator.sum(axis=0)) <= 1
    assert set(np.unique(end.generator)) <= {0.0, 1.0}
    for axis in (0, 1):
        np.testing.assert_array_equal(start.generator.sum(axis=axis), end.generator.sum(axis=axis))
    assert end.imbalance <= start.imbalance + 1e-9
    for s in range(n + 1):
        assert errors(end, s).mean() <= end.mean_bound(n - s) + 1e-9
        assert errors(end, s).max() <= end.worst_error(s) + 1e-9


def test_the_constant_weight_is_that_of_a_design():
    code = SoftBIBDCode(7, 7, load=3)
    np.testing.assert_allclose(code.weights(range(5), "constant").a[:5], 3 / 7)
    assert code.weights(range(5), "constant").error == pytest.approx(code.weights(range(5)).error)
    soft = SoftBIBDCode(20, 20, load=5)
    for s in (1, 4):
        assert soft.weights(range(20 - s), "constant").error >= soft.weights(range(20 - s)).error - 1e-12


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"load": 9}, r"load must be an integer in 1\.\.8, got 9"),
        ({"load": 0}, r"load must be an integer in 1\.\.8, got 0"),
        ({"load": 2.5}, "load must be an integer"),
        ({"proposals": -1}, "proposals must be an integer of at least 0"),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        SoftBIBDCode(8, 8, **params)
