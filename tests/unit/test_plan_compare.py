"""Codes compared in the same simulated rounds: against order statistics, closed forms and each other."""

import math

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.linear import LinearGradientCode
from serverless_gc.errors import InputError
from serverless_gc.plan import compare, shares
from serverless_gc.stragglers import Constant, Exponential, Pareto, ShiftedExponential


def test_times_are_the_order_statistics_of_the_law():
    law = ShiftedExponential(shift=1.0, rate=2.0)
    n, k, rounds = 20, 15, 800
    uncoded, mds = compare(
        [get("uncoded", n_workers=n), get("mds", n_workers=n, k=k)], delay=law, stragglers=0.0, rounds=rounds, seed=3
    )
    # A worker of the MDS code holds 1/15 of the data, an uncoded one 1/20: tasks are 20/15 times longer.
    for found, awaited, stretch in ((uncoded, n, 1.0), (mds, k, n / k)):
        error = stretch * math.sqrt(law.var_order_stat(awaited, n) / rounds)
        assert abs(found.seconds_mean - stretch * law.mean_order_stat(awaited, n)) < 3 * error
        assert found.arrivals_mean == found.arrivals_p95 == awaited
    assert uncoded.work == pytest.approx(1)
    assert mds.work == pytest.approx(n / k)


def test_slow_workers_are_slow_by_the_factor():
    # Three of ten always take 5 times longer; a code for 7 of 10 does not wait for them.
    codes = [get("uncoded", n_workers=10), get("mds", n_workers=10, k=7), get("mds", n_workers=10, k=8)]
    found = compare(codes, delay=Constant(1.0), stragglers={1, 4, 9}, slowdown=5, rounds=3)
    assert [one.seconds_mean for one in found] == pytest.approx([5.0, 10 / 7, 5 * 10 / 8])


def test_the_unit_of_work_is_common_to_all_codes():
    codes = [get("uncoded", n_workers=10), get("uncoded", n_workers=20)]
    ten, twenty = compare(codes, delay=Constant(1.0), stragglers=0, rounds=1)
    assert (ten.seconds_mean, twenty.seconds_mean) == (1.0, 0.5)
    halved = compare(codes, delay=Constant(1.0), stragglers=0, rounds=1, unit=0.05)
    assert [one.seconds_mean for one in halved] == pytest.approx([2.0, 1.0])


def test_an_approximate_code_stops_at_its_count_and_keeps_its_bound():
    codes = [get("bibd", n_workers=21), get("expander", n_workers=20, load=4), get("bgc", n_workers=20, load=4)]
    bibd, expander, bgc = compare(codes, rounds=100)
    assert bibd.arrivals_mean == 19
    assert bibd.error_mean == pytest.approx(0.347826 / 21, rel=1e-5)
    assert bibd.error_worst == pytest.approx(bibd.error_bound)
    assert 0 < expander.error_mean < expander.error_worst <= expander.error_bound
    assert bgc.error_bound is None
    assert not bgc.exact


def test_an_approximate_code_stops_as_soon_as_it_is_exact():
    code = get("erasurehead", n_workers=30, load=3)
    [found] = compare([code], delay=Exponential(1.0), stragglers=0, rounds=1000, seed=5)
    assert found.arrivals_mean < code.awaited
    # Mean time until all ten classes are covered, when it is below the time of the 27th arrival nearly always.
    assert found.seconds_mean == pytest.approx(3 * code.mean_cover_time(), rel=0.05)


def test_loads_of_workers_may_differ():
    code = LinearGradientCode([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], placement=[[0], [1, 2]])
    assert shares(code).tolist() == [1.0, 1.0]
    uneven = LinearGradientCode(np.triu(np.ones((4, 4))))
    assert shares(uneven).tolist() == [1.0, 0.75, 0.5, 0.25]
    [found] = compare([uneven], delay=Constant(1.0), stragglers=0, rounds=2)
    assert found.seconds_mean == 4.0  # the first row is the answer, and the longest task
    assert found.work == pytest.approx(2.5)
    assert found.load == pytest.approx(2.5)


def test_equal_seeds_give_equal_figures_and_slow_workers_are_common():
    codes = [get("mds", n_workers=12, k=9), get("polar", n_workers=12, k=9)]
    first, again = compare(codes, rounds=30, seed=4), compare(codes, rounds=30, seed=4)
    assert first == again
    assert first != compare(codes, rounds=30, seed=5)
    # No code of nine blocks has an answer before the ninth result of the same times.
    assert first[0].seconds_mean <= first[1].seconds_mean


def test_a_tree_waits_for_its_levels():
    tree = get("coded-reduce", n_workers=12)
    [found] = compare([tree], delay=Constant(1.0), stragglers=0.0, rounds=3)
    assert found.seconds_mean == pytest.approx(2 * found.load / tree.k * 12)
    assert (found.arrivals_mean, found.given_up) == (2 + 2 * 2, 0)
    assert found.error_worst < 1e-30


def test_exact_gradient_codes_have_no_error():
    [found] = compare([LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])], rounds=20)
    assert found.error_worst < 1e-24
    assert found.error_bound == 0.0
    assert found.arrivals_mean == 2


class Lossy(Pareto):
    """A law whose tasks never answer now and then."""

    def sample(self, slot, k, work, rng):
        timing = super().sample(slot, k, work, rng)
        return timing if rng.random() > 0.05 else type(timing)(compute=math.inf)


def test_rounds_without_an_answer_are_counted_apart():
    [found] = compare([get("uncoded", n_workers=10)], delay=Lossy(1.0, 3.0), stragglers=0, rounds=200)
    assert pytest.approx(200 - found.given_up, abs=25) == 200 * 0.95**10
    assert math.isfinite(found.seconds_p99)


class Never(GradientCode):
    """A code that never has an answer."""

    name = "never"

    def _build_generator(self):
        return np.eye(self.n_workers, self.k)


def test_a_code_without_any_answer_is_an_error():
    with pytest.raises(InputError, match=r"'never' with n_workers=3 and k=4 had no answer in any of 5 rounds"):
        compare([Never(3, 4)], rounds=5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "rounds must be an integer of at least 1"),
        ({"unit": 0.0}, "unit must be a share"),
        ({"stragglers": 1.5}, "must be a fraction"),
        ({"slowdown": 0.5}, "slowdown must be at least 1"),
    ],
)
def test_wrong_numbers_are_refused(options, says):
    with pytest.raises(InputError, match=says):
        compare([get("uncoded", n_workers=3)], **options)


def test_nothing_to_compare_is_nothing_found():
    assert compare([]) == ()
