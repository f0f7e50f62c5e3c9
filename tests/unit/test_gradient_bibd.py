"""BIBD codes: tables over every set, the families, reversed roles, refused matrices."""

import numpy as np
import pytest
from approx_codes import errors, subsets

from serverless_gc.codes import get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.bibd import BIBDCode
from serverless_gc.codes.gradient.designs import check_design, find_design, known_designs
from serverless_gc.errors import InputError

TABLE = {
    7: (0, 0.25, 0.571429, 1, 1.6, 2.5),
    21: (0, 0.166667, 0.347826, 0.545455, 0.761905, 1),
    31: (0, 0.142857, 0.294118, 0.454545, 0.625, 0.806452),
}


@pytest.mark.parametrize("v", TABLE)
def test_tables(v):
    code = BIBDCode(v)
    for s, expected in enumerate(TABLE[v]):
        assert code.worst_error(s) == pytest.approx(expected, abs=6e-7)
        assert code.expected_error(v - s) == pytest.approx(expected, abs=6e-7)
        if v <= 21 and s <= 2:
            np.testing.assert_allclose(errors(code, s, "lstsq"), expected, atol=6e-7)


def test_weights_and_one_step_errors_of_the_fano_plane():
    code = BIBDCode(7)
    for s, expected in {1: 3 / 8, 2: 3 / 7, 3: 1 / 2, 6: 1}.items():
        for arrived in subsets(7, [7 - s]):
            np.testing.assert_allclose(code.weights(arrived).a[list(arrived)], expected)
    for s, expected in {1: 7 / 27, 2: 0.6222222, 3: 1.1666667}.items():
        np.testing.assert_allclose(errors(code, s, "one-step"), expected, atol=5e-8)
        assert code.one_step_error(7 - s) == pytest.approx(expected, abs=5e-8)


def test_affine_plane_of_order_five():
    code = BIBDCode(25)
    assert (code.k, code.load, str(code.numbers)) == (30, 6, "(25,5,1)")
    for s, expected in {1: 0.2068966, 2: 0.4285714}.items():
        np.testing.assert_allclose(errors(code, s, "lstsq"), expected, atol=5e-8)
        assert code.worst_error(s) == pytest.approx(expected, abs=5e-8)


def test_a_plain_circulant_is_better_at_few_stragglers():
    fano = BIBDCode(7)
    plain = LinearGradientCode([[1.0 if (j - i) % 7 < 3 else 0.0 for j in range(7)] for i in range(7)], exact=False)
    designed = [0.25, 0.571429, 1, 1.6, 2.5]
    circulant = [0.076923, 0.25, 1, 2.5, 3.4]
    for s in range(1, 6):
        assert errors(fano, s).max() == pytest.approx(designed[s - 1], abs=6e-7)
        assert errors(plain, s).max() == pytest.approx(circulant[s - 1], abs=6e-7)
        if s >= 2:
            assert errors(fano, s, "one-step").max() < errors(plain, s, "one-step").max()


@pytest.mark.parametrize("v", [4, 7, 9, 11, 13, 19, 21, 23, 25, 31, 49, 57])
def test_every_known_design_is_one(v):
    assert known_designs(v)
    for family, numbers in known_designs(v).items():
        made = find_design(points=v, family=family)
        assert made.numbers == numbers
        assert check_design(made.incidence).numbers == numbers
        assert numbers.points * numbers.replication == numbers.blocks * numbers.size
        assert numbers.replication * (numbers.size - 1) == numbers.pairs * (numbers.points - 1)
        assert BIBDCode(v, design=family).family == family


def test_the_load_chooses_among_designs():
    assert BIBDCode(31, load=15).family == "quadratic-residues"
    assert BIBDCode(31, load=6).family == "difference-set"
    assert (get("bibd").n_workers, get("bibd", k=30).n_workers) == (21, 25)


def test_lines_of_an_affine_plane_leave_a_parallel_class():
    code = get("bibd", n_workers=12, reverse=True)
    assert (code.n_workers, code.k, code.tolerated, code.load) == (12, 9, 3, 3)
    assert BIBDCode(reverse=True).n_workers == 12
    for s in (2, 3):
        for arrived in subsets(12, [12 - s]):
            weights = code.weights(arrived)
            assert set(weights.a.tolist()) == {0.0, 1.0}
            np.testing.assert_array_equal(weights.alpha, 1.0)
    assert code.worst_error(3) == 0.0
    assert errors(code, 4).max() <= code.worst_error(4)


def test_the_answer_is_that_of_the_parallel_class():
    code = BIBDCode(12, reverse=True)
    g = np.random.default_rng(0).normal(size=(9, 4))
    sent = code.encode(g)
    total, certificate = code.decode({i: sent[i] for i in (0, 2, 3, 4, 5, 7, 10)}, approximate=False)
    np.testing.assert_allclose(total, g.sum(axis=0), atol=1e-12)
    assert certificate.used == (3, 4, 5)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_workers": 22}, r"points=22 \(nearest sizes: 19, 21, 23, 25\)"),
        ({"n_workers": 31, "load": 9}, "load=9"),
        ({"n_workers": 20, "reverse": True}, r"blocks=20 \(nearest sizes: 19, 20, 21|blocks=20 \(nearest sizes"),
        ({"n_workers": 7, "k": 9}, "blocks=9"),
        ({"n_workers": 7, "design": "conic"}, "design must be 'difference-set'.*got 'conic'"),
        ({"n_workers": 7, "design": "affine-plane"}, "family=affine-plane.*4, 9"),
        ({"design": np.eye(3)[:2]}, "design must be balanced"),
        ({"design": [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]}, "block sizes range from 1 to 3"),
        ({"design": [[1, 2], [1, 1]]}, "design must be a 0/1 matrix"),
        ({"design": [1, 0]}, "design must be a 0/1 matrix"),
        ({"design": 1 - np.eye(3), "n_workers": 4}, "n_workers must be that of the design, 3, got 4"),
        ({"design": 1 - np.eye(3), "load": 1}, "load must be that of the design, 2, got 1"),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        BIBDCode(**params)
