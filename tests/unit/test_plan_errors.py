"""Decode error against missing workers: enumerated, by closed forms, and for codes of blocks."""

import itertools

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.gradient import CodedReduceCode
from serverless_gc.errors import InputError
from serverless_gc.plan import error_curve


def test_the_curve_of_a_small_code_is_near_the_enumerated_one():
    code = get("graph", graph="petersen")
    curve = error_curve(code, most=0.4, trials=1500, seed=2)
    assert curve.fraction.tolist() == [s / 15 for s in range(7)]
    for s in range(5):
        errors = [
            code.weights(sorted(set(range(15)) - set(lost))).error / code.k
            for lost in itertools.combinations(range(15), s)
        ]
        three = 3 * np.std(errors) / np.sqrt(1500) + 1e-12
        assert abs(curve.mean[s] - np.mean(errors)) < three
        assert curve.worst[s] <= max(errors) + 1e-12


@pytest.mark.parametrize(("branching", "inner"), [(3, "cyclic"), (2, "frc")])
def test_a_parent_without_its_children_is_missing_too(branching, inner):
    """One missing child is tolerated: of the driver, and of each of its children."""
    code = CodedReduceCode.tree(branching, 2, stragglers=1, inner=inner)
    curve = error_curve(code, trials=1500, seed=1)
    for lost, mean, worst in zip(range(len(curve.mean)), curve.mean, curve.worst, strict=True):
        errors = []
        for gone in itertools.combinations(range(code.n_workers), lost):
            whole = [i for i in range(branching) if i not in gone and len(set(code.children(i)) & set(gone)) <= 1]
            errors.append(code.weights(whole).error / code.k)
        assert abs(mean - np.mean(errors)) < 4 * np.std(errors) / np.sqrt(1500) + 1e-12
        assert worst <= max(errors) + 1e-12
    assert np.mean(errors) > 0.25  # several levels of it, not only what the driver misses


def test_bound_and_mean_of_a_repetition_code():
    code = get("erasurehead", n_workers=12, load=3)
    curve = error_curve(code, most=1.0, trials=1000)
    assert len(curve.mean) == 13
    for s in range(13):
        spread = np.sqrt(code.expected_error(12 - s) / 12 / 1000)
        assert abs(curve.mean[s] - code.expected_error(12 - s) / 12) < 3 * spread + 1e-12
        assert curve.worst[s] <= code.worst_error(s) / 12
    assert curve.worst[12] == curve.mean[12] == 1.0


def test_a_tracker_without_an_error_is_asked_for_weights():
    code = get("soft-bibd", n_workers=8, load=3)

    class Silent(type(code)):
        def tracker(self):
            told = super().tracker()

            class Quiet(type(told)):
                error = None
                decodable = False

            quiet = Quiet.__new__(Quiet)
            for slot in ("_basis", "_generator", "_rank", "_residual", "_seen"):
                setattr(quiet, slot, getattr(told, slot))
            return quiet

    plain, silent = error_curve(code, trials=20), error_curve(Silent(8, 8, load=3), trials=20)
    assert silent.mean == pytest.approx(plain.mean, abs=1e-12)


def test_codes_of_blocks_count_the_missing_ones():
    curve = error_curve(get("uncoded", n_workers=10), most=0.5, trials=3)
    assert curve.mean == pytest.approx(np.arange(6) / 10)
    mds = error_curve(get("mds", n_workers=10, k=7), most=0.5, trials=20)
    assert mds.mean[:4].tolist() == [0, 0, 0, 0]
    assert mds.mean[4] > 0


def test_wrong_numbers_are_refused():
    with pytest.raises(InputError, match="trials must be an integer of at least 1"):
        error_curve(get("uncoded", n_workers=3), trials=0)
    with pytest.raises(InputError, match="most must be a share"):
        error_curve(get("uncoded", n_workers=3), most=1.2)
