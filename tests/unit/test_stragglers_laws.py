"""Delay laws: the worked values, closed forms against the integral and against draws."""

import math

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.inject import Stragglers
from serverless_gc.stragglers import (
    Constant,
    Exponential,
    Injected,
    LambdaLike,
    Pareto,
    ShiftedExponential,
    harmonic,
    mean_order_stat,
)
from serverless_gc.types import TaskSpec

LAWS = [
    Constant(1.5),
    Exponential(2.0),
    ShiftedExponential(0.5, 3.0),
    Pareto(1.0, 2.5),
    Pareto(0.2, 6.0),
    LambdaLike(),
    LambdaLike(compute=Pareto(0.1, 3.0), p_cold=0.3, read_bytes=3e6, write_bytes=1.5e6),
]


def test_exponential_order_statistics():
    law = Exponential(2.0)
    assert law.mean_order_stat(7, 10) == pytest.approx(0.547817, abs=5e-7)
    assert law.var_order_stat(7, 10) == pytest.approx(0.047164, abs=5e-7)


@pytest.mark.parametrize(("shift", "rate", "best"), [(1.0, 1.0, 14), (1.0, 2.0, 16)])
def test_best_k_of_a_split_job(shift, rate, best):
    law = ShiftedExponential(shift, rate)
    times = {k: law.mean_order_stat(k, 20) / k for k in range(1, 21)}
    assert min(times, key=times.get) == best
    if rate == 1.0:
        assert times[best] == pytest.approx(0.153410, abs=5e-7)


def test_best_share_of_a_large_split_job():
    # 1 + 1 / W(-exp(-2)) of the workers, and -W(-exp(-2)) / n seconds: W is Lambert's, on its lower branch
    law, n = ShiftedExponential(1.0, 1.0), 20_000
    times = {k: law.mean_order_stat(k, n) / k for k in range(13_500, 13_800)}
    best = min(times, key=times.get)
    assert best / n == pytest.approx(0.682156, abs=1e-4)
    assert n * times[best] == pytest.approx(3.146193, abs=1e-4)


@pytest.mark.parametrize(
    ("alpha", "n", "k", "mean"), [(2.5, 10, 10, 3.785671), (2.5, 10, 8, 1.817122), (1.5, 20, 15, 2.477703)]
)
def test_pareto_order_statistics(alpha, n, k, mean):
    assert Pareto(1.0, alpha).mean_order_stat(k, n) == pytest.approx(mean, abs=5e-7)


def test_pareto_variance_and_infinite_moments():
    assert Pareto(1.0, 2.5).var_order_stat(8, 10) == pytest.approx(0.202211, abs=5e-7)
    assert Pareto(2.0, 3.0).mean() == pytest.approx(3.0)
    assert Pareto(1.0, 1.0).mean() == math.inf
    assert Pareto(1.0, 0.4).mean_order_stat(8, 10) < math.inf
    assert Pareto(1.0, 0.4).mean_order_stat(9, 10) == math.inf
    assert Pareto(1.0, 2.0).var_order_stat(10, 10) == math.inf


def test_shifts_and_scales():
    assert ShiftedExponential(2.0, 2.0).mean_order_stat(7, 10) == pytest.approx(2.547817, abs=5e-7)
    assert Pareto(3.0, 2.5).mean_order_stat(8, 10) == pytest.approx(3 * 1.817122, abs=2e-6)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 8), (5, 8), (8, 8), (95, 100), (900, 1000)])
def test_integral_agrees_with_closed_form(law, k, n):
    integral = mean_order_stat(law.survival, k, n, breaks=law.breaks)
    assert integral == pytest.approx(law.mean_order_stat(k, n), rel=1e-6)
    if n == 1:
        assert integral == pytest.approx(law.mean(), rel=1e-6)


def test_integral_of_a_heavy_tail():
    law = Pareto(1.0, 1.5)
    assert mean_order_stat(law.survival, 20, 20, breaks=law.breaks) == pytest.approx(
        law.mean_order_stat(20, 20), rel=1e-4
    )
    assert mean_order_stat(lambda t: 1.0 / (1.0 + np.log1p(t)), 1, 1) == math.inf


def test_cold_starts_dominate_the_slowest():
    law = LambdaLike(compute=Exponential(5.0), warm=0.0, cold=2.0, p_cold=0.02, latency=0.0)
    assert law.mean_order_stat(50, 50) == pytest.approx(1.759325, abs=5e-6)


def test_other_laws_by_the_integral():
    # replicas: the slowest of 10 groups of 3 exponential copies; bimodal; Weibull
    assert mean_order_stat(lambda t: np.exp(-3 * t), 10, 10) == pytest.approx(0.976323, abs=5e-7)
    bimodal = mean_order_stat(lambda t: np.where(t < 1, 1.0, np.where(t < 10, 0.1, 0.0)), 9, 10, breaks=(1.0, 10.0))
    assert bimodal == pytest.approx(3.375110, abs=5e-7)
    assert mean_order_stat(lambda t: np.exp(-(t**0.7)), 1, 10) == pytest.approx(0.047185, abs=5e-7)
    assert mean_order_stat(lambda t: np.exp(-(t**0.7)), 7, 10) == pytest.approx(1.192631, abs=5e-7)


def test_gilbert_elliott_at_stationarity():
    def survival(t):
        return 0.8 * np.exp(-10 * t) + 0.2 * np.exp(-0.1 * t)

    for k, expected in [(12, 0.149317), (16, 1.409621), (20, 19.9065)]:
        assert mean_order_stat(survival, k, 20) == pytest.approx(expected, abs=5e-7, rel=3e-6)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_draws_follow_the_law(law):
    rng = np.random.default_rng(5)
    draws = np.sort([law.sample(0, 0, 1.0, rng).total for _ in range(4000)])
    middle = draws + 1e-12
    empirical = 1 - np.searchsorted(draws, middle, side="right") / 4000
    distance = np.abs(law.survival(middle) - empirical).max()
    assert distance < 1.95 / math.sqrt(4000)  # Kolmogorov, 0.1 %
    for q in (0.0, 0.1, 0.5, 0.9, 0.99):
        t = law.quantile(q)
        assert float(law.survival(np.array([t * (1 + 1e-9)]))[0]) <= 1 - q + 1e-6
        assert float(law.survival(np.array([t * (1 - 1e-9)]))[0]) >= 1 - q - 1e-6


def test_time_scales_with_the_work_where_it_should():
    rng = np.random.default_rng(0)
    assert Constant(2.0).sample(0, 0, 3.0, rng).total == 6.0
    law = LambdaLike(compute=Constant(1.0), p_cold=0.0, read_bytes=30e6)
    timing = law.sample(0, 0, 3.0, rng)
    assert (timing.start, timing.read, timing.compute, timing.write) == (0.025, 1.03, 3.0, 0.03)


def test_injected_stragglers_follow_the_description():
    stragglers = Stragglers(fraction=0.25, slowdown=8.0, seed=4, base=0.5)
    model = Injected(Constant(0.2), stragglers)
    rng = np.random.default_rng(0)
    for attempt in range(2):
        for slot in range(50):
            total = model.sample_task(TaskSpec("t", slot, version=3, attempt=attempt), rng).total
            assert total == pytest.approx(0.5 * stragglers.factor(slot, 3, attempt))
    slow = {model.sample(slot, 3, 1.0, rng).total for slot in range(50)}
    assert sorted(slow) == pytest.approx([0.5, 4.0])


def test_harmonic_numbers():
    assert harmonic(0) == 0.0
    assert harmonic(4) == pytest.approx(25 / 12)
    assert harmonic(3, 2) == pytest.approx(1 + 1 / 4 + 1 / 9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1.0), "seconds must be at least 0"),
        (lambda: ShiftedExponential(0.0, 0.0), "rate must be positive"),
        (lambda: ShiftedExponential(math.inf, 1.0), "shift"),
        (lambda: Pareto(0.0, 1.0), "minimum must be positive"),
        (lambda: LambdaLike(p_cold=1.5), "p_cold"),
        (lambda: LambdaLike(bandwidth=0.0), "bandwidth"),
        (lambda: Exponential(1.0).mean_order_stat(0, 3), "k must be at least 1"),
        (lambda: Exponential(1.0).mean_order_stat(4, 3), "at most n=3, got 4"),
        (lambda: Exponential(1.0).quantile(1.0), "q must be"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()
