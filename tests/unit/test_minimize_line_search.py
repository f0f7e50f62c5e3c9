"""Searches: Wolfe conditions hold where they are promised, parabolas majorize, and nothing is taken for a step."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize, rosen, rosen_der

from serverless_gc.errors import InputError
from serverless_gc.optim import Backtracking, QuasiNewton, box, soft_threshold
from serverless_gc.optim.line_search import Searching, wolfe

C1, C2 = 1e-4, 0.9


def search(function, slope, first, **options):
    """Run a line search from 0; return the length and the lengths tried."""
    tried = []
    lengths = wolfe(function(0.0), slope(0.0), first, **options)
    length = next(lengths)
    while True:
        tried.append(length)
        try:
            length = lengths.send((function(length), slope(length)))
        except StopIteration as stop:
            return stop.value, tried


LINES = {
    "parabola": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
    "flat-tail": (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),
    "quartic": (lambda t: (t - 0.01) ** 4, lambda t: 4 * (t - 0.01) ** 3),
    "logistic": (lambda t: math.log1p(math.exp(-t)) + 0.01 * t * t, lambda t: 0.02 * t - 1 / (1 + math.exp(t))),
}


@pytest.mark.parametrize("name", LINES)
@given(st.floats(-3, 2), st.sampled_from([0.1, 0.9]))
@settings(max_examples=25, deadline=None)
def test_the_length_satisfies_the_strong_wolfe_conditions(name, exponent, c2):
    function, slope = LINES[name]
    length, tried = search(function, slope, 10.0**exponent, c1=C1, c2=c2)
    assert length in tried
    # Where values agree to rounding the condition on slopes stands in for the decrease.
    assert function(length) <= function(0) + C1 * length * slope(0) + 1e-10 * abs(function(0))
    assert abs(slope(length)) <= c2 * abs(slope(0)) + 1e-15


def test_a_line_that_leads_nowhere_gives_no_length():
    length, tried = search(lambda t: t, lambda t: -1.0 if t == 0 else 1.0, 1.0)  # a slope that lies
    assert length == 0
    assert len(tried) == 30


def test_points_that_are_not_numbers_are_left_behind():
    length, _ = search(
        lambda t: (t - 1) ** 2 if t < 4 else math.nan, lambda t: 2 * (t - 1) if t < 4 else math.inf, 64.0
    )
    assert 0 < length < 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1.0, 0.0, 1.0), "slope must be negative"), ((1.0, -1.0, 1.0, 0.95), "0 < c1 < c2 < 1, got 0.95 and 0.9")],
)
def test_a_wrong_search_is_refused(arguments, message):
    value, slope, first, *c1 = arguments
    with pytest.raises(InputError, match=message):
        next(wolfe(value, slope, first, **({"c1": c1[0]} if c1 else {})))


def drive(method, f, x, steps):
    """Run a searching method; return the points stepped to, the evaluations, and the last state."""
    state, known, path, evaluations = method.init(x), None, [x], 0
    for _ in range(steps):
        if known is None:
            known, evaluations = f(x), evaluations + 1
        trials = method.search(x, *known, state)
        try:
            point = next(trials)
            while True:
                evaluations += 1
                point = trials.send(f(point))
        except StopIteration as stop:
            end = stop.value
        x, state, known = end.x, end.state, end.known
        path.append(x)
        if end.stuck:
            return path, evaluations, state, end.stuck
    return path, evaluations, state, ""


def quadratic(scales):
    return lambda x: (0.5 * float(x @ (scales * x)), scales * x)


SCALES = np.geomspace(1, 50, 8)


def test_the_methods_are_searching_ones():
    assert isinstance(QuasiNewton(), Searching)
    assert isinstance(Backtracking(), Searching)


def test_quasi_newton_reaches_the_valley_of_rosenbrock_like_scipy():
    start = np.array([-1.2, 1.0])
    path, evaluations, _, stuck = drive(QuasiNewton(), lambda x: (float(rosen(x)), rosen_der(x)), start, 45)
    theirs = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"gtol": 1e-10})
    np.testing.assert_allclose(path[-1], 1.0, atol=1e-8)
    assert stuck == "no step along the gradient lowers the objective"
    assert evaluations < 2.5 * theirs.nfev


def test_quasi_newton_serves_weights_of_any_shape_and_keeps_as_much_as_it_may():
    f = quadratic(SCALES)
    flat, _, state, _ = drive(QuasiNewton(memory=3), f, np.ones(8), 12)
    square, _, _, _ = drive(
        QuasiNewton(memory=3),
        lambda x: (f(x.ravel())[0], f(x.ravel())[1].reshape(x.shape)),
        np.ones((4, 2)),
        12,
    )
    np.testing.assert_array_equal(square[-1].ravel(), flat[-1])
    assert [len(part) for part in state] == [3, 3]


def test_quasi_newton_stops_where_nothing_lowers_the_objective():
    *_, stuck = drive(QuasiNewton(most_trials=4), lambda x: (1.0 + float(np.abs(x).sum()), -np.ones(2)), np.ones(2), 1)
    assert "no step along the gradient" in stuck


@pytest.mark.parametrize("accelerate", [False, True])
def test_backtracking_finds_a_length_up_to_one_over_the_smoothness(accelerate):
    path, evaluations, state, stuck = drive(Backtracking(accelerate), quadratic(SCALES), np.ones(8), 400)
    assert not stuck
    assert np.linalg.norm(path[-1]) < 1e-4
    if accelerate:
        assert 0.5 / SCALES[-1] <= state[2][0] <= 4 / SCALES[-1]
    assert evaluations < 1000


def test_without_acceleration_no_step_raises_the_objective():
    f = quadratic(SCALES)
    path, *_ = drive(Backtracking(), f, np.ones(8), 60)
    values = [f(x)[0] for x in path]
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))


def test_backtracking_with_a_proximal_map_meets_the_conditions_of_the_lasso():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((40, 8)), rng.standard_normal(40)

    def f(x):
        r = A @ x - b
        return 0.5 * float(r @ r), A.T @ r

    for accelerate in (False, True):
        _, _, state, _ = drive(Backtracking(accelerate, soft_threshold(4.0)), f, np.zeros(8), 300)
        w = state[0]
        gradient = f(w)[1]
        assert (w == 0).any()
        np.testing.assert_allclose(gradient[w != 0], -4.0 * np.sign(w[w != 0]), atol=1e-6)
        assert (np.abs(gradient[w == 0]) <= 4.0 + 1e-9).all()


def test_a_projection_is_respected_at_every_iterate():
    path, *_ = drive(Backtracking(prox=box(0.5, 2.0)), quadratic(SCALES), np.ones(8), 30)
    assert (np.array(path) >= 0.5).all()
    np.testing.assert_allclose(path[-1], 0.5, atol=1e-12)


def test_a_search_that_never_succeeds_says_so():
    *_, stuck = drive(Backtracking(most_trials=3), lambda x: (float(x[0]), np.array([-1.0])), np.zeros(1), 1)
    assert "no step length down to" in stuck


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Backtracking(first=0.0), "first must be a positive"),
        (lambda: Backtracking(most_trials=0), "most_trials must be at least 1"),
        (lambda: QuasiNewton(memory=0), "memory and most_trials must be at least 1, got 0 and 30"),
        (lambda: QuasiNewton(c1=0.9), "0 < c1 < c2 < 1"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
