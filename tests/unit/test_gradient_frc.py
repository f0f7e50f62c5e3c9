"""Fractional repetition: worked values, layouts, closed forms against enumeration, refusals."""

from itertools import combinations

import numpy as np
import pytest
from gradient_sets import fed

from serverless_gc.codes import get
from serverless_gc.codes.gradient import FractionalRepetitionCode, worst_case
from serverless_gc.errors import InputError


def test_probabilities_of_six_workers():
    code = FractionalRepetitionCode(6, 6, stragglers=1)
    assert [code.p_decodable(f) for f in (3, 4, 5)] == pytest.approx([0.4, 0.8, 1.0])
    assert (code.average_threshold, code.guaranteed_threshold) == (pytest.approx(3.8), 5)


def test_probabilities_of_twelve_workers():
    code = FractionalRepetitionCode(12, 12, stragglers=2)
    expected = [0.163636, 0.409091, 0.642857, 0.818182, 0.927273, 0.981818, 1]
    np.testing.assert_allclose([code.p_decodable(f) for f in range(4, 11)], expected, atol=1e-6)
    assert code.average_threshold == pytest.approx(6.057143, abs=1e-6)
    assert code.p_decodable(3) == 0


def test_mean_errors():
    assert FractionalRepetitionCode(100, 100, stragglers=4).expected_error(80) == pytest.approx(0.0205931, abs=1e-7)
    assert FractionalRepetitionCode(12, 12, stragglers=2).expected_error(8) == pytest.approx(0.2181818, abs=1e-7)


@pytest.mark.parametrize("layout", ["stacked", "grouped"])
def test_closed_forms_against_enumeration(layout):
    code = FractionalRepetitionCode(8, 16, stragglers=1, layout=layout)
    for f in range(9):
        sets = list(combinations(range(8), f))
        errors = [code.weights(arrived).error for arrived in sets]
        assert np.mean(errors) == pytest.approx(code.expected_error(f))
        assert sum(fed(code, arrived).decodable for arrived in sets) == code.decodable_sets(f)
        assert worst_case(code, 8 - f).error == code.worst_error(8 - f) == max(errors)
        for arrived in sets:
            assert fed(code, arrived).error == code.weights(arrived).error


def test_layouts_are_one_code_up_to_the_names_of_workers():
    stacked, grouped = (FractionalRepetitionCode(6, 6, stragglers=1, layout=name) for name in ("stacked", "grouped"))
    assert [stacked.row(i)[0] for i in range(6)] == [(0, 1), (2, 3), (4, 5)] * 2
    assert [grouped.row(i)[0] for i in range(6)] == [(0, 1), (0, 1), (2, 3), (2, 3), (4, 5), (4, 5)]
    assert sorted(map(tuple, stacked.generator)) == sorted(map(tuple, grouped.generator))


def test_the_first_of_a_class_counts_once_and_nothing_is_rounded():
    code = FractionalRepetitionCode(6, 6, stragglers=1)
    gradients = np.random.default_rng(0).integers(-9, 9, size=(6, 4)).astype(np.float32)
    sent = code.encode(gradients)
    total, certificate = code.decode({i: sent[i] for i in (5, 4, 3, 0)})
    assert certificate.weights == {0: 1.0, 4: 1.0, 5: 1.0}
    assert (certificate.method, certificate.error, certificate.warning) == ("copy", 0.0, "")
    np.testing.assert_array_equal(total, gradients.sum(axis=0))
    averaged = code.weights([0, 3, 4, 5], "lstsq")
    np.testing.assert_allclose(averaged.a, [0.5, 0, 0, 0.5, 1, 1], atol=1e-12)
    np.testing.assert_allclose(averaged.alpha, code.weights([0, 3, 4, 5]).alpha, atol=1e-12)


def test_missing_names_the_partitions_of_uncovered_classes():
    code = FractionalRepetitionCode(6, 12, stragglers=1)
    tracker = fed(code, [1, 4, 1])
    assert tracker.missing() == (0, 1, 2, 3, 8, 9, 10, 11)
    assert tracker.error == 8


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 0), (2, 1), (7, 6), (10, 1), (12, 2), (16, 3), (30, 4), (1000, 124), (15, 2)]
)
def test_default_is_the_smallest_that_fits_and_is_a_tenth(n, expected):
    code = get("frc", n_workers=n)
    assert code.tolerated == expected
    assert n % (expected + 1) == 0
    assert expected >= n / 10 or n == 1


def test_refusals():
    with pytest.raises(InputError, match=r"stragglers \+ 1 must divide n_workers=12, got stragglers=4: use 3 or 5"):
        FractionalRepetitionCode(12, 12, stragglers=4)
    with pytest.raises(InputError, match="k must be a multiple of the 6 classes"):
        FractionalRepetitionCode(12, 8, stragglers=1)
    with pytest.raises(InputError, match="layout must be"):
        FractionalRepetitionCode(12, 12, layout="mixed")


def test_a_thousand_workers_need_no_dense_matrix():
    code = FractionalRepetitionCode(1000, 1000, stragglers=9)
    weights = code.weights(range(100, 1000))
    assert weights.error == 0
    assert fed(code, range(900, 1000)).decodable
    assert not code._cache.generator
