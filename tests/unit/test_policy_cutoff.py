"""Predictive cut-off: the static optimum, the predictors, and the policy around them."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from serverless_gc.engine import Arrived, Engine, Failed, Issue, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.policies import Cutoff, EmpiricalWindow, KalmanLog, StaticNormal, best_cutoff, normal_order_stat
from serverless_gc.stragglers import Constant, Exponential, ShiftedExponential


def static_rates(law, n=20):
    return np.array([c / law.mean_order_stat(c, n) for c in range(1, n + 1)])


def test_static_optimum():
    assert best_cutoff(static_rates(Exponential(1.0))) == 1
    assert best_cutoff(static_rates(Constant(1.0))) == 20
    for shift, c, rate in [(0.2, 9, 11.5702), (1.0, 14, 6.51848), (5.0, 18, 2.53602)]:
        rates = static_rates(ShiftedExponential(shift, 1.0))
        assert best_cutoff(rates) == c
        assert rates[c - 1] == pytest.approx(rate, rel=1e-5)
    # it is the best parameter of an MDS code, whose workers hold a k-th each
    times = 1 / static_rates(ShiftedExponential(1.0, 1.0))
    assert 1 + int(np.argmin(times)) == 14
    assert times.min() == pytest.approx(0.153410, abs=1e-6)


def test_normal_order_statistics():
    assert normal_order_stat(10, 10) == pytest.approx(1.559372, abs=1e-6)
    assert normal_order_stat(8, 10, 2.0, 3.0) == pytest.approx(2 + 3 * 0.658052, abs=1e-5)
    with pytest.raises(InputError, match="k must be at least 1"):
        normal_order_stat(11, 10)


def test_static_normal_learns_mean_and_variance_of_complete_rounds():
    predictor = StaticNormal()
    assert not predictor.ready
    rng = np.random.default_rng(0)
    draws = rng.normal(10.0, 1.0, (50, 8))
    for row in draws:
        predictor.observe(dict(enumerate(row)), {})
    predictor.observe({0: 1e-3}, {1: 1e-3})
    rates = predictor.rates()
    expected = [c / normal_order_stat(c, 8, draws.mean(), draws.std(ddof=1)) for c in range(1, 9)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


def test_empirical_window_averages_sorted_times_of_the_last_rounds():
    predictor = EmpiricalWindow(2)
    for row in ([9.0, 9.0, 9.0], [1.0, 3.0, 2.0], [5.0, 2.0, 3.0]):
        predictor.observe(dict(enumerate(row)), {})
    predictor.observe({0: 1e-3}, {1: 1e-3})
    np.testing.assert_allclose(predictor.rates(), [1 / 1.5, 2 / 2.5, 3 / 4.0])


def test_kalman_filter_by_hand():
    phi, drift, noise = 0.9, 0.03, 0.01
    predictor = KalmanLog(phi, drift, noise)
    predictor.observe({0: 1.0, 1: math.e}, {})
    level, variance = np.array([0.0, 1.0]), np.array([noise, noise])
    predictor.observe({0: 2.0}, {1: 4.0})
    level = level.mean() + phi * (level - level.mean())
    variance = phi**2 * variance + drift
    gain = variance / (variance + noise)
    spread = math.sqrt(variance[1] + noise)
    beyond = level[1] + spread * norm.pdf(a := (math.log(4.0) - level[1]) / spread) / norm.sf(a)
    level = level + gain * (np.array([math.log(2.0), beyond]) - level)
    variance[0] *= 1 - gain[0]  # what was cut off says nothing of its variance
    np.testing.assert_allclose(predictor.state_dict()["_level"], level, rtol=1e-12)
    np.testing.assert_allclose(predictor.state_dict()["_variance"], variance, rtol=1e-12)


def test_a_cut_far_beyond_belief_is_no_overflow():
    predictor = KalmanLog()
    predictor.observe({0: 1.0, 1: 1.0}, {})
    predictor.observe({0: 1.0}, {1: 1e9})
    assert 2.0 < predictor.state_dict()["_level"][1] < 30.0


def test_a_slot_that_never_finishes_keeps_nobody_from_learning():
    predictor = KalmanLog()
    predictor.observe({0: 1.0, 2: 4.0, 3: 0.0}, {})
    assert predictor.ready
    levels = predictor.state_dict()["_level"]
    assert levels[1] == pytest.approx(levels[[0, 2, 3]].mean())
    assert np.isfinite(predictor.rates()).all()
    engine = Engine(Cutoff(KalmanLog(), 3), 4, max_attempts=1)
    for _ in range(2):  # the last slot fails each time, and is not forecast
        tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
        for task in tasks[:3]:
            engine.handle(Arrived(task), 1.0)
        if engine.is_open:
            engine.handle(Failed(tasks[3], "lost"), 1.0)
        assert engine.last.error is None


def test_forecast_is_the_mean_of_number_over_time():
    predictor = KalmanLog(n_samples=20_000, drift=0.0, noise=0.04)
    predictor.observe({0: 1.0, 1: 1.0, 2: 1.0}, {})
    rng = np.random.default_rng(5)
    times = np.sort(np.exp(math.sqrt(0.08) * rng.standard_normal((20_000, 3))), axis=1)
    np.testing.assert_allclose(predictor.rates(), np.mean([1, 2, 3] / times, axis=0), rtol=0.01)


def test_the_policy_waits_for_all_until_something_is_known_and_in_full_rounds():
    engine = Engine(Cutoff(EmpiricalWindow(), full_every=10), 20, keep_records=False)
    used = [len(o.arrivals) for o in VirtualHost(ShiftedExponential(0.2, 1.0), seed=3).simulate(engine, 40)]
    assert [used[k] for k in (0, 10, 20, 30)] == [20] * 4
    assert all(10 <= k < 20 for k in used[21:30])


def test_least_keeps_exponential_times_from_closing_at_once():
    for least, expected in [(None, 10), (3, 3), (1, 1)]:
        engine = Engine(Cutoff(EmpiricalWindow(200), least, full_every=4), 20, keep_records=False)
        used = [len(o.arrivals) for o in VirtualHost(Exponential(1.0), seed=3).simulate(engine, 200)]
        assert expected <= np.median(used[100:]) <= expected + 2


def test_failures_make_it_content_with_less():
    engine = Engine(Cutoff(StaticNormal(), 2), 4, max_attempts=1)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    engine.handle(Arrived(tasks[0]), 1.0)
    assert engine.handle(Failed(tasks[1], "lost"), 1.0) == []
    engine.handle(Arrived(tasks[2]), 1.0)
    close = engine.handle(Failed(tasks[3], "lost"), 1.0)[-1]
    assert len(close.arrivals) == 2
    engine = Engine(Cutoff(StaticNormal(), 2), 3, max_attempts=1)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    engine.handle(Failed(tasks[0], "lost"), 1.0)
    assert engine.handle(Failed(tasks[1], "lost"), 1.0)[-1].outcome.error == "starved"


def test_parameters_are_checked():
    for bad in ({"phi": 2.0}, {"drift": -1.0}, {"noise": 0.0}, {"n_samples": 0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            KalmanLog(**bad)
    with pytest.raises(InputError, match="rounds"):
        EmpiricalWindow(0)
    with pytest.raises(InputError, match="least must be an integer"):
        Cutoff(StaticNormal(), 0)
    with pytest.raises(InputError, match="least must be at most the number of slots, 4, got 5"):
        Engine(Cutoff(StaticNormal(), 5), 4).open(0.0)
