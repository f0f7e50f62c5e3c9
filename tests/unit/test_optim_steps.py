"""Step rules: closed forms, known limits, and runs that are taken up again bit for bit."""

import itertools

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.optim import (
    FISTA,
    SGD,
    Adam,
    AMSGrad,
    DualAveraging,
    ModelAverage,
    Momentum,
    Nesterov,
    ProximalGradient,
    box,
    inverse_time,
    l2_ball,
    power,
    soft_threshold,
)
from serverless_gc.types import Update

RULES = {
    "sgd": SGD(0.05),
    "sgd-decaying": SGD(power(0.05, 0.5)),
    "momentum": Momentum(0.01),
    "nesterov": Nesterov(0.05),
    "nesterov-fixed": Nesterov(0.05, beta=0.5),
    "adam": Adam(0.05),
    "amsgrad": AMSGrad(0.05),
    "dual": DualAveraging(20.0),
    "dual-growing": DualAveraging(20.0, alpha=0.1),
    "proximal": ProximalGradient(0.05, soft_threshold(0.0)),
    "fista": FISTA(0.05, box(-1e9, 1e9)),
    "fista-plain": FISTA(0.05, l2_ball(1e9), restart=False),
}
H = np.array([1.0, 4.0, 18.0])
BEST = np.array([1.0, -2.0, 0.5])


def run(rule, steps, x=None, state=None, t=0):
    x = np.zeros(3) if x is None else x
    state = rule.init(x) if state is None else state
    for k in range(t, t + steps):
        x, state = rule.step(x, Update(H * (x - BEST)), state, k)
    return x, state


@pytest.mark.parametrize("name", RULES)
def test_every_rule_finds_the_minimum_of_a_quadratic(name):
    x, _ = run(RULES[name], 3000)
    np.testing.assert_allclose(x, BEST, atol=0.05 if name == "sgd-decaying" else 1e-2)


@pytest.mark.parametrize("name", RULES)
def test_a_run_taken_up_again_is_the_same_to_the_last_bit(name):
    whole, _ = run(RULES[name], 40)
    half, state = run(RULES[name], 17)
    stored = [np.frombuffer(a.tobytes()).reshape(a.shape) for a in state]
    again, _ = run(RULES[name], 23, half, tuple(stored), 17)
    assert np.array_equal(whole, again)


def test_accelerated_rules_are_faster():
    errors = {name: np.linalg.norm(run(RULES[name], 60)[0] - BEST) for name in ("sgd", "nesterov", "momentum", "fista")}
    assert errors["nesterov"] < errors["sgd"] / 3
    assert errors["fista"] < errors["sgd"] / 3


def test_momentum_of_a_constant_direction_tends_to_its_limit():
    rule, d = Momentum(0.1, beta=0.8), np.array([2.0])
    x, state = np.zeros(1), rule.init(np.zeros(1))
    for t in range(200):
        x, state = rule.step(x, Update(d), state, t)
    assert state[0] == pytest.approx(d / (1 - 0.8))


def test_amsgrad_never_forgets_a_large_gradient_and_its_steps_tend_to_alpha():
    rule = AMSGrad(0.3, epsilon=0.0)
    x, state = np.zeros(2), rule.init(np.zeros(2))
    seen = []
    for t in range(600):
        before = x
        x, state = rule.step(x, Update(np.array([5.0, 5.0 if t != 3 else 50.0])), state, t)
        seen.append(state[1])
    assert all((b >= a).all() for a, b in itertools.pairwise(seen))
    assert abs(x - before)[0] == pytest.approx(0.3, rel=0.01)
    assert abs(x - before)[1] < 0.3


def test_dual_averaging_without_growth_is_gradient_descent():
    np.testing.assert_allclose(run(DualAveraging(20.0), 25)[0], run(SGD(1 / 20), 25)[0], rtol=1e-12)


def test_model_average_takes_the_average_exactly():
    x, average = np.array([3.0, 1.0]), np.array([0.1, 0.2])
    assert np.allclose(ModelAverage().step(x, Update(x - average), (), 0)[0], average, atol=1e-16)


def test_adam_has_a_first_step_of_its_rate():
    x, _ = Adam(0.01).step(np.zeros(2), Update(np.array([1e-3, -7.0])), Adam().init(np.zeros(2)), 0)
    np.testing.assert_allclose(x, [-0.01, 0.01], rtol=1e-4)


def test_fista_solves_the_lasso_and_keeps_to_a_box():
    rng = np.random.default_rng(0)
    A, weight = rng.normal(size=(60, 10)), 8.0
    b = A[:, 0] * 3 + 0.1 * rng.normal(size=60)
    lr = 1 / np.linalg.eigvalsh(A.T @ A)[-1]
    rule = FISTA(lr, soft_threshold(weight))
    x, state = np.zeros(10), rule.init(np.zeros(10))
    for t in range(500):
        x, state = rule.step(x, Update(A.T @ (A @ x - b)), state, t)
    w = state[0]
    slope = A.T @ (A @ w - b)
    np.testing.assert_allclose(slope[w != 0], -weight * np.sign(w[w != 0]), rtol=1e-6)
    assert np.abs(slope[w == 0]).max() <= weight * (1 + 1e-9)
    x, state = run(FISTA(0.05, box(0.0, 0.6)), 300)
    np.testing.assert_allclose(state[0], [0.6, 0.0, 0.5], atol=1e-6)


def test_schedules():
    assert [inverse_time(0.2, 1.0)(t) for t in range(2)] == [0.2, 0.1]
    assert power(1.0, 1.0)(3) == 0.25
    steps, x = [], np.zeros(1)
    for t in range(3):
        x_new, _ = SGD(power(1.0, 1.0)).step(x, Update(np.ones(1)), (), t)
        steps.append(float(x[0] - x_new[0]))
    assert steps == [1.0, 0.5, 1 / 3]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SGD(0.0), "lr must be a positive number"),
        (lambda: SGD(np.inf), "lr must be a positive number"),
        (lambda: Momentum(0.1, beta=1.0), r"beta must be in \[0, 1\)"),
        (lambda: Nesterov(0.1, beta=-0.1), r"beta must be in \[0, 1\)"),
        (lambda: Adam(beta2=1.0), r"beta2 must be in \[0, 1\)"),
        (lambda: AMSGrad(beta1=2.0), r"beta1 must be in \[0, 1\)"),
        (lambda: DualAveraging(0.0), "smoothness must be positive"),
        (lambda: DualAveraging(1.0, alpha=-1.0), "alpha must be at least 0"),
        (lambda: soft_threshold(-1.0), "weight must be at least 0"),
        (lambda: box(1.0, 0.0), "low must be at most high"),
        (lambda: l2_ball(0.0), "radius must be positive"),
        (lambda: power(0.1, -1.0), "exponent must be at least 0"),
        (lambda: inverse_time(0.1, -1.0), "decay must be at least 0"),
        (lambda: ProximalGradient(-1.0, box(0, 1)), "lr must be a positive number"),
    ],
)
def test_bad_parameters_are_named(make, match):
    with pytest.raises(InputError, match=match):
        make()
