"""Further laws, mixtures, slots that differ and work: worked values, closed forms against the integral and draws."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from serverless_gc.errors import InputError
from serverless_gc.stragglers import (
    Additive,
    Bimodal,
    ColdStart,
    Constant,
    Empirical,
    Erlang,
    Exponential,
    Gamma,
    GilbertElliott,
    HeterogeneousExponentials,
    HyperExponential,
    LinearProgress,
    LogNormal,
    Lomax,
    Mixture,
    Pareto,
    PerSlot,
    Replicas,
    Shifted,
    ShiftedExponential,
    Uniform,
    Weibull,
    lambda_heavy,
    lambda_mild,
    lambda_short,
    mean_order_stat,
    normal_order_stat,
)

LAWS = [
    Weibull(1.0, 0.7),
    Weibull(2.0, 2.5),
    Gamma(2.5, 3.0),
    Erlang(4, 2.0),
    Uniform(0.0, 2.0),
    Uniform(1.0, 3.0),
    Bimodal(1.0, 10.0, 0.1),
    LogNormal(40.0, 0.1),
    LogNormal(180.0, 0.1, folded=True),
    Lomax(1.0, 4.0),
    HyperExponential([0.2, 8.2], [0.9, 0.1]),
    Shifted(Weibull(1.0, 1.7), 2.0),
    ColdStart(Exponential(5.0), 0.02, 2.0),
    Replicas(ShiftedExponential(0.3, 2.0), 3),
    Mixture((Constant(1.0), Uniform(2.0, 4.0)), (0.25, 0.75)),
    Empirical.of([1.0, 2.0, 2.0, 5.0, 3.0], [2.5]),
    lambda_heavy(),
    lambda_mild(),
    lambda_short(),
]


@pytest.mark.parametrize(
    ("law", "k", "n", "mean"),
    [
        (Weibull(1.0, 0.7), 1, 10, 0.047185),
        (Weibull(1.0, 0.7), 7, 10, 1.192631),
        (Bimodal(1.0, 10.0, 0.1), 9, 10, 3.375110),
        (Replicas(Exponential(1.0), 3), 10, 10, 0.976323),
        (ColdStart(Exponential(5.0), 0.02, 2.0), 50, 50, 1.759325),
        (Uniform(0.0, 2.0), 4, 8, 8 / 9),
    ],
)
def test_worked_values(law, k, n, mean):
    assert law.mean_order_stat(k, n) == pytest.approx(mean, abs=5e-7)


def test_presets_are_the_published_shapes():
    heavy, mild = lambda_heavy(), lambda_mild()
    for share, seconds in [(0.94, 50.8), (0.96, 106.8), (0.99, 163.0)]:
        assert heavy.mean_order_stat(round(share * 3000), 3000) == pytest.approx(seconds, abs=0.15)
    assert heavy.quantile_order_stat(0.5, 3000, 3000) == pytest.approx(519, abs=2)
    for share, seconds in [(0.97, 151.6), (0.98, 168.7), (0.99, 192.3), (1.0, 233.8)]:
        assert mild.mean_order_stat(round(share * 3600), 3600) == pytest.approx(seconds, abs=0.7)
    assert lambda_short().mean() == pytest.approx(0.18975)


def test_normal_approximation():
    assert normal_order_stat(0.0, 1.0, 10, 10) == pytest.approx(1.559372, abs=5e-7)
    assert normal_order_stat(0.0, 1.0, 8, 10) == pytest.approx(0.658052, abs=5e-7)
    assert normal_order_stat(5.0, 2.0, 8, 10) == pytest.approx(6.316104, abs=2e-6)
    for k, exact in [(10, 1.538753), (8, 0.656059)]:
        assert mean_order_stat(lambda t: norm.sf(t - 10.0), k, 10) - 10.0 == pytest.approx(exact, abs=5e-7)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 8), (5, 8), (8, 8), (28, 30), (95, 100)])
def test_closed_form_agrees_with_the_integral(law, k, n):
    integral = mean_order_stat(law.survival, k, n, breaks=law.breaks)
    assert law.mean_order_stat(k, n) == pytest.approx(integral, rel=1e-6)
    if n == 1:
        assert law.mean() == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_draws_survival_and_quantile_are_of_one_law(law):
    draws = np.sort(law.draws(np.random.default_rng(7), 4000))
    empirical = 1 - np.searchsorted(draws, draws + 1e-12, side="right") / 4000
    assert np.abs(law.survival(draws + 1e-12) - empirical).max() < 1.95 / math.sqrt(4000)  # Kolmogorov, 0.1 %
    for q in (0.0, 0.1, 0.5, 0.9, 0.99):
        t = law.quantile(q)
        assert float(law.survival(np.array([t * (1 + 1e-9) + 1e-300]))[0]) <= 1 - q + 1e-6
        assert float(law.survival(np.array([t * (1 - 1e-9)]))[0]) >= 1 - q - 1e-6


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_many_tasks_at_once_are_like_one_by_one(law):
    rng = np.random.default_rng(3)
    one_by_one = np.array([law.sample(0, 0, 3.0, rng).total for _ in range(2000)])
    at_once = law.totals(3.0, rng, (20, 100))
    assert at_once.shape == (20, 100)
    # two-sample Kolmogorov, 0.1 %
    every = np.sort(np.concatenate([one_by_one, at_once.ravel()]))
    share = [np.searchsorted(np.sort(x), every, side="right") / 2000 for x in (one_by_one, at_once.ravel())]
    assert np.abs(share[0] - share[1]).max() < 1.95 * math.sqrt(2 / 2000)


def test_quantiles_of_order_statistics():
    law = ShiftedExponential(0.5, 2.0)
    assert law.quantile_order_stat(0.9, 1, 1) == pytest.approx(law.quantile(0.9))
    draws = np.sort(law.draws(np.random.default_rng(0), (20_000, 10)), axis=1)[:, 6]
    assert law.quantile_order_stat(0.99, 7, 10) == pytest.approx(np.quantile(draws, 0.99), rel=0.03)
    with pytest.raises(InputError, match="q must be"):
        law.quantile_order_stat(1.0, 7, 10)


RATES = (1.0, 1.0, 2.0, 3.0, 5.0, 0.2)


def test_heterogeneous_exponentials():
    model = HeterogeneousExponentials(RATES)
    expected = [0.081967, 0.197692, 0.376550, 0.694400, 1.374820, 5.307903]
    assert [model.mean_order_stat(k) for k in range(1, 7)] == pytest.approx(expected, abs=5e-7)
    assert [model.p_first(i) for i in range(6)] == pytest.approx([r / 12.2 for r in RATES])


@pytest.mark.parametrize("k", [1, 4, 9, 18])
def test_many_rates_go_by_the_integral(k):
    rates = tuple(np.linspace(0.5, 3.0, 18).tolist())
    assert HeterogeneousExponentials((2.0,) * 18).mean_order_stat(k) == pytest.approx(
        Exponential(2.0).mean_order_stat(k, 18), rel=1e-6
    )
    draws = np.sort(np.random.default_rng(1).exponential(1 / np.array(rates), (20_000, 18)), axis=1)[:, k - 1]
    error = draws.std() / math.sqrt(20_000)
    assert HeterogeneousExponentials(rates).mean_order_stat(k) == pytest.approx(draws.mean(), abs=3 * error)


def test_few_rates_agree_with_the_integral(monkeypatch):
    from serverless_gc.stragglers import slots

    closed = [HeterogeneousExponentials(RATES).mean_order_stat(k) for k in range(1, 7)]
    monkeypatch.setattr(slots, "_SUBSETS", 0)
    assert [HeterogeneousExponentials(RATES).mean_order_stat(k) for k in range(1, 7)] == pytest.approx(closed, rel=1e-6)


def test_factors_of_slots_last():
    model = PerSlot.drawn(Constant(1.0), 5, Uniform(1.0, 4.0), seed=2)
    rng = np.random.default_rng(0)
    first = [model.sample(slot, 0, 1.0, rng).total for slot in range(5)]
    assert first == [model.sample(slot, 9, 1.0, rng).total for slot in range(5)]
    assert len(set(first)) == 5
    assert model == PerSlot.drawn(Constant(1.0), 5, Uniform(1.0, 4.0), seed=2)


def test_gilbert_elliott_figures():
    model = GilbertElliott(Exponential(10.0), Exponential(0.1), p=0.05, r=0.2)
    assert (model.p_slow, model.mean_burst) == (pytest.approx(0.2), 5.0)
    assert model.autocorrelation(1) == pytest.approx(0.75)
    assert model.autocorrelation(5) == pytest.approx(0.2373, abs=5e-5)
    assert model.p_at_most(4, 20) == pytest.approx(0.629648, abs=5e-7)
    for k, mean in [(12, 0.149317), (16, 1.409621), (20, 19.9065)]:
        assert model.stationary.mean_order_stat(k, 20) == pytest.approx(mean, abs=5e-7, rel=3e-6)


def test_gilbert_elliott_states():
    model = GilbertElliott(Constant(1.0), Constant(9.0), p=0.05, r=0.2, seed=4)
    states = np.array([[model.is_slow(slot, k) for k in range(2000)] for slot in range(20)])
    share = states.mean()
    assert share == pytest.approx(0.2, abs=0.02)
    centred = states - share
    assert (centred[:, 1:] * centred[:, :-1]).mean() / centred.var() == pytest.approx(0.75, abs=0.03)
    again = GilbertElliott(Constant(1.0), Constant(9.0), p=0.05, r=0.2, seed=4)
    assert [again.is_slow(slot, 1500) for slot in range(20)] == states[:, 1500].tolist()  # in whatever order asked
    rng = np.random.default_rng(0)
    assert {model.sample(3, k, 1.0, rng).total for k in range(50)} == {1.0, 9.0}


def test_cold_starts_do_not_grow_with_the_work():
    law = ColdStart(Constant(1.0), p_cold=1.0, seconds=2.0)
    timing = law.sample(0, 0, 5.0, np.random.default_rng(0))
    assert (timing.start, timing.compute) == (2.0, 5.0)
    for n, share in [(20, 0.182), (100, 0.634)]:
        assert ColdStart(Exponential(1.0), 0.01, 1.0).p_any(n) == pytest.approx(share, abs=5e-4)
    assert law.p_any(3) == 1.0


def test_additive_work_is_a_sum():
    model, rng = Additive(Exponential(2.0)), np.random.default_rng(0)
    totals = model.totals(4.0, rng, 4000)
    assert totals.mean() == pytest.approx(2.0, abs=3 / math.sqrt(4000))
    assert totals.var() == pytest.approx(1.0, abs=0.12)  # not 4, as for one draw times four
    assert (np.diff(model.unit_ends(6, rng)) > 0).all()
    with pytest.raises(InputError, match="whole number"):
        model.sample(0, 0, 1.5, rng)


def test_linear_progress_does_the_work_of_anytime_minibatch():
    # n = 10 nodes, b = 600 samples, rate 2/3, shift 1: in T = (1 + n/b) E T_i they do 784 samples on average
    model = LinearProgress(ShiftedExponential(1.0, 2 / 3), nominal=60)
    deadline = (1 + 10 / 600) * 2.5
    times = model.totals(60.0, np.random.default_rng(1), (20_000, 10))
    done = model.work_done_by(times, deadline).sum(axis=1)
    assert deadline == pytest.approx(2.541667, abs=5e-7)
    assert done.mean() == pytest.approx(784.0, abs=3 * done.std() / math.sqrt(20_000) + 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weibull(0.0, 1.0), "scale must be positive"),
        (lambda: Gamma(1.0, -1.0), "rate"),
        (lambda: Erlang(2.5, 1.0), "whole number"),
        (lambda: Uniform(2.0, 2.0), "high must be above"),
        (lambda: Bimodal(2.0, 1.0, 0.1), "slow must be at least"),
        (lambda: Bimodal(1.0, 2.0, 1.1), "p_slow"),
        (lambda: Mixture((Constant(1.0),), (0.5,)), "add up to 1"),
        (lambda: Mixture((Constant(1.0),), (0.5, 0.5)), "one for each"),
        (lambda: Shifted(Constant(1.0), -1.0), "shift"),
        (lambda: ColdStart(Constant(1.0), 2.0, 1.0), "p_cold"),
        (lambda: Replicas(Constant(1.0), 0), "copies"),
        (lambda: HeterogeneousExponentials(()), "rates"),
        (lambda: HeterogeneousExponentials((1.0, 0.0)), r"rates\[1\] must be positive"),
        (lambda: PerSlot(Constant(1.0), (0.0,)), r"factors\[0\]"),
        (lambda: GilbertElliott(Constant(1.0), Constant(2.0), 0.0, 0.5), "p must be above 0"),
        (lambda: LinearProgress(Constant(1.0), 0.0), "nominal"),
        (lambda: Empirical.of([]), "at least one duration"),
        (lambda: Empirical.of([-1.0]), "at least 0 seconds"),
    ],
)
def test_parameters_of_further_laws_are_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_lomax_is_a_pareto_less_its_minimum():
    assert Lomax(2.0, 2.5).mean_order_stat(8, 10) == pytest.approx(Pareto(2.0, 2.5).mean_order_stat(8, 10) - 2.0)
