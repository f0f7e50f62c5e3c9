"""Erasure probabilities, information sets, thresholds and planners of polar codes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.polar.design import (
    auto_epsilon,
    channel_erasures,
    erasure_profile,
    guaranteed_threshold,
    information_set,
    is_closed,
    max_k,
    reed_muller_dimensions,
    reed_muller_set,
    support_sizes,
    transform_length,
)
from serverless_gc.errors import InputError


@pytest.mark.parametrize(
    ("erasures", "length", "expected"),
    [
        (0.2, 4, [0.5904, 0.1296, 0.0784, 0.0016]),
        (0.5, 4, [0.9375, 0.5625, 0.4375, 0.0625]),
        (
            0.2,
            8,
            [0.83222784, 0.34857216, 0.24240384, 0.01679616, 0.15065344, 0.0061465600, 0.0031974400, 0.00000256],
        ),
        (
            0.5,
            8,
            [0.99609375, 0.87890625, 0.80859375, 0.31640625, 0.68359375, 0.19140625, 0.12109375, 0.00390625],
        ),
        ([0.1, 0.2, 0.3, 0.4], 4, [0.6976, 0.1924, 0.1076, 0.0024]),
    ],
)
def test_channel_erasures_match_the_worked_values(erasures, length, expected):
    np.testing.assert_allclose(channel_erasures(erasures, length), expected, rtol=1e-12)


@given(st.integers(0, 5).flatmap(lambda q: st.lists(st.floats(0, 1), min_size=2**q, max_size=2**q)))
@settings(max_examples=80, deadline=None)
def test_polarization_preserves_the_sum(erasures):
    z = channel_erasures(erasures)
    assert math.isclose(z.sum(), sum(erasures), rel_tol=1e-12, abs_tol=1e-12)
    assert np.all((z >= 0) & (z <= 1))


def test_channel_erasures_stay_accurate_near_zero():
    # The best of 2**10 channels fails with probability eps**1024: far below what 1 - (1 - z) could hold.
    assert channel_erasures(0.9, 1024)[-1] == pytest.approx(0.9**1024, rel=1e-12)


@pytest.mark.parametrize("bad", [0.3, [0.1, 0.2, 0.3], [[0.1, 0.2]], [], [0.1, 1.2], [-0.1, 0.5]])
def test_channel_erasures_refuses_bad_input(bad):
    if bad == 0.3:
        with pytest.raises(InputError, match="2\\*\\*q"):
            channel_erasures(bad, 12)
    else:
        with pytest.raises(InputError, match="erasures must"):
            channel_erasures(bad)


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (8, 4, 0.464473),
        (16, 8, 0.388246),
        (64, 32, 0.370714),
        (64, 48, 0.161476),
        (256, 128, 0.375529),
        (1024, 512, 0.393228),
    ],
)
def test_auto_design_finds_the_operating_point(n, k, expected):
    assert auto_epsilon(n, k) == pytest.approx(expected, abs=5e-7)
    assert PolarCode(n, k).design_epsilon == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("eps", [0.2, 0.5])
def test_small_information_sets(eps):
    assert [information_set(4, k, "shorten", eps) for k in (1, 2, 3, 4)] == [(3,), (2, 3), (1, 2, 3), (0, 1, 2, 3)]
    ranking = [7, 6, 5, 3, 4, 2, 1, 0]
    for k in range(1, 9):
        assert information_set(8, k, "shorten", eps) == tuple(sorted(ranking[:k]))


def test_first_sizes_at_which_the_design_matters():
    differing = [k for k in range(1, 33) if len({information_set(32, k, "shorten", e) for e in (0.2, 0.5)}) == 2]
    assert differing == [12, 15, 17, 26]
    for n in (4, 8, 16):
        for k in range(1, n + 1):
            assert information_set(n, k, "shorten", 0.2) == information_set(n, k, "shorten", 0.5)


def test_large_information_sets_match_their_checksums():
    assert PolarCode(64, 32).information_set == (15, 23, *range(26, 32), 38, 39, *range(41, 48), *range(49, 64))
    assert PolarCode(64, 48).information_set == (7, 11, 13, 14, 15, *range(19, 32), *range(34, 64))
    sums = {
        (256, 128): (23054, 4495164),
        (256, 192): (29669, 5314075),
        (1024, 512): (368848, 287952846),
        (1024, 768): (474768, 340716126),
    }
    for (n, k), expected in sums.items():
        info = PolarCode(n, k).information_set
        assert (sum(info), sum(i * i for i in info)) == expected
    assert PolarCode(256, 128).information_set[:5] == (59, 61, 62, 63, 87)
    assert PolarCode(1024, 512).information_set[:5] == (191, 223, 237, 238, 239)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 10, 13, 16, 23, 33, 64, 100])
@pytest.mark.parametrize("cut", ["shorten", "puncture"])
def test_designed_sets_are_closed_under_domination(n, cut):
    for k in range(1, n + 1):
        for info in (information_set(n, k, cut, auto_epsilon(n, k, cut)), reed_muller_set(n, k, cut)):
            assert len(info) == k
            assert is_closed(info, n, cut)
            low = 0 if cut == "shorten" else transform_length(n) - n
            assert low <= info[0] <= info[-1] < low + n


def test_worker_dependent_designs_are_closed_and_follow_the_workers():
    rng = np.random.default_rng(3)
    for _ in range(20):
        e = rng.uniform(0.01, 0.6, size=32)
        info = information_set(32, 20, "shorten", e)
        assert is_closed(info, 32, "shorten")
        z = channel_erasures(e)
        assert z[list(info)].max() <= np.delete(z, list(info)).min() * (1 + 1e-9)
    assert PolarCode(4, 2, design=[0.1, 0.2, 0.3, 0.4]).information_set == (2, 3)


def test_is_closed_sees_a_gap():
    assert is_closed((2, 3), 4, "shorten")
    assert not is_closed((1, 2), 4, "shorten")
    assert is_closed((1, 2), 3, "shorten")


def test_reed_muller_sets_and_dimensions():
    assert reed_muller_dimensions(256) == (1, 9, 37, 93, 163, 219, 247, 255, 256)
    assert reed_muller_dimensions(1024)[-5:] == (848, 968, 1013, 1023, 1024)
    assert 638 in reed_muller_dimensions(1024)
    assert reed_muller_dimensions(1) == (1,)
    with pytest.raises(InputError, match="power of two, got 12"):
        reed_muller_dimensions(12)
    for k in reed_muller_dimensions(64):
        weights = sorted((i.bit_count() for i in range(64)), reverse=True)[:k]
        assert sorted((i.bit_count() for i in reed_muller_set(64, k)), reverse=True) == weights
        assert min(weights) > max((i.bit_count() for i in set(range(64)) - set(reed_muller_set(64, k))), default=-1)
    partial = reed_muller_set(256, 192)
    assert {i for i in range(256) if i.bit_count() >= 4} <= set(partial)
    assert {i.bit_count() for i in partial if i.bit_count() < 4} == {3}


def test_ties_inside_a_weight_class_are_spread_over_the_bits():
    taken = [i for i in reed_muller_set(256, 192) if i.bit_count() == 3]
    per_bit = [sum(i >> b & 1 for i in taken) for b in range(8)]
    assert len(taken) == 29
    assert max(per_bit) - min(per_bit) <= 2


@pytest.mark.parametrize(
    ("n", "k", "threshold"),
    [
        *[(8, 4, 5), (16, 8, 13), (32, 16, 29), (64, 32, 57), (64, 48, 61), (256, 128, 249), (256, 192, 253)],
        *[(1024, 512, 1009), (1024, 768, 1017), (6, 4, 5), (7, 4, 6)],
    ],
)
def test_guaranteed_thresholds(n, k, threshold):
    assert PolarCode(n, k).guaranteed_threshold == threshold


def test_guaranteed_threshold_of_a_punctured_code_counts_only_computed_positions():
    code = PolarCode(5, 2, shortening="puncture")
    assert guaranteed_threshold(code.information_set, 5, "puncture") == code.guaranteed_threshold <= 5


MAX_K = {
    (64, 0.05): (55, 50, 45),
    (64, 0.1): (49, 43, 39),
    (64, 0.2): (39, 33, 28),
    (256, 0.05): (224, 213, 204),
    (256, 0.1): (203, 189, 176),
    (256, 0.2): (167, 150, 137),
    (1024, 0.05): (917, 890, 866),
    (1024, 0.1): (836, 803, 772),
    (1024, 0.2): (699, 662, 628),
}


@pytest.mark.parametrize(("case", "expected"), MAX_K.items())
def test_planner_table(case, expected):
    assert tuple(max_k(*case, delta) for delta in (0.1, 0.01, 0.001)) == expected


def test_planner_promise_holds_in_simulation():
    n, p, delta = 64, 0.1, 0.1
    code = PolarCode(n, max_k(n, p, delta), design=p, mode="sc")
    rng = np.random.default_rng(11)
    failures = 0
    for _ in range(2000):
        tracker = code.tracker()
        for worker in np.flatnonzero(rng.random(n) >= p).tolist():
            tracker.add(worker)
        failures += not tracker.decodable
    assert 0.04 < failures / 2000 < delta + 3 * math.sqrt(delta * (1 - delta) / 2000)


def test_planner_can_say_none_and_checks_its_input():
    assert max_k(2, 0.9, 0.001) == 0
    for args, name in (((0, 0.1, 0.1), "n must"), ((4, 1.5, 0.1), "design"), ((4, 0.1, 1.0), "delta")):
        with pytest.raises(InputError, match=name):
            max_k(*args)


def test_supports_of_the_plain_code():
    means = {(8, 4): 2.5, (64, 32): 9.0, (64, 48): 10.6, (256, 128): 20.8, (1024, 512): 47.8}
    for (n, k), mean in means.items():
        sizes = support_sizes(PolarCode(n, k).information_set, n)
        assert sizes.mean() == pytest.approx(mean, abs=0.06)
        assert sizes.max() == sizes[0] == k
    shortened = PolarCode(6, 4)
    assert support_sizes(shortened.information_set, 8)[:6].tolist() == [4, 2, 2, 1, 2, 1]


def test_cutting_the_transform():
    assert erasure_profile(5, "shorten", 0.2).tolist() == [0.2] * 5 + [0.0] * 3
    assert erasure_profile(5, "puncture", 0.2).tolist() == [1.0] * 3 + [0.2] * 5
    assert PolarCode(5, 3).information_set == (2, 3, 4)
    assert PolarCode(7, 4).information_set == (3, 4, 5, 6)
    assert PolarCode(10, 8).information_set == tuple(range(2, 10))
    assert PolarCode(6, 4).shortening == "shorten"


def test_an_idle_worker_makes_the_code_fall_back_to_puncturing():
    code = PolarCode(129, 77)
    assert code.shortening == "puncture"
    assert np.all(code.generator.any(axis=1))
    with pytest.raises(InputError, match="shortening"):
        PolarCode(129, 77, shortening="shorten")


@pytest.mark.parametrize("n", [3, 5, 6, 7, 9, 11, 12, 17])
def test_no_worker_is_ever_idle(n):
    for k in range(1, n + 1):
        for design in ("auto", "reed-muller"):
            assert np.all(PolarCode(n, k, design=design).generator.any(axis=1))
