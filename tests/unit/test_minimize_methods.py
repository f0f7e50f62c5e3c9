"""What a method's name and a step length stand for, and the bounds that step lengths are made of."""

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.fitting.methods import METHODS, gradient_mapping, iterate_of, plan, words
from serverless_gc.fitting.smoothness import CURVATURE, largest_eigenvalue
from serverless_gc.optim import FISTA, SGD, Adam, Backtracking, Momentum, Nesterov, QuasiNewton, box, power
from serverless_gc.types import Update
from serverless_gc.worker import losses

PROXIMAL = {"proximal", "fista"}


@pytest.mark.parametrize("method", METHODS)
def test_every_name_is_a_rule_that_lowers_a_parabola(method):
    made = plan(method, None, 0.001 if method in PROXIMAL else 0.0, None).make(1.0)
    x = np.array([3.0])
    if hasattr(made, "step"):
        state = made.init(x)
        for t in range(3):
            x, state = made.step(x, Update(x), state, t)
        assert abs(x[0]) < 3
    else:
        meta = {"sum_of_squares": x**2, "hessian_root": np.eye(1)}
        told = {"meta": {made.needs: meta[made.needs]}} if hasattr(made, "needs") else {}
        trials = made.search(x, x[0] ** 2 / 2, x, made.init(x), **told)
        point = next(trials)
        try:
            while True:
                point = trials.send((point[0] ** 2 / 2, point))
        except StopIteration as end:
            stepped = end.value
        assert abs(stepped.x[0]) < 3


@pytest.mark.parametrize("method", ["gradient-descent", "nesterov", "proximal", "fista"])
def test_without_a_bound_the_length_is_searched_for(method):
    made = plan(method, None, 1.0 if method in PROXIMAL else 0.0, None).make(None)
    assert isinstance(made, Backtracking)
    assert made.accelerate is (method in {"nesterov", "fista"})
    assert (made.prox is not None) is (method in PROXIMAL)
    assert isinstance(plan(method, "backtracking", 1.0 if method in PROXIMAL else 0.0, None).make(2.0), Backtracking)


def test_nesterov_takes_the_steps_of_nesterov_until_it_begins_anew():
    ours, theirs = plan("nesterov", 0.02, 0.0, None).make(None), Nesterov(0.02)
    x = z = np.ones(3)
    state, other = ours.init(x), theirs.init(z)
    for t in range(6):
        x, state = ours.step(x, Update(np.array([1.0, 4.0, 9.0]) * x), state, t)
        z, other = theirs.step(z, Update(np.array([1.0, 4.0, 9.0]) * z), other, t)
        np.testing.assert_array_equal(x, z)
    assert np.array_equal(iterate_of(ours, x, state), state[0])


def test_a_given_length_needs_no_bound_and_a_flat_objective_any():
    assert not plan("momentum", 0.1, 0.0, None).needs_smoothness
    assert plan("momentum", None, 0.0, None).needs_smoothness
    assert plan("momentum", 0.1, 0.0, None).make(None) == Momentum(0.1)
    assert plan("momentum", None, 0.0, None).make(4.0) == Momentum(0.25)
    assert plan("momentum", None, 0.0, None).make(0.0) == Momentum(1.0)
    assert plan("adam", None, 0.0, None).make(None) == Adam()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("newton", None, 0.0, None), "no method is called 'newton'; there are adam, .*"),
        ((object(), None, 0.0, None), "an optimizer with init and step"),
        ((SGD(0.1), 0.1, 0.0, None), "brings its own lr"),
        (("fista", None, 0.0, None), "needs l1= or prox="),
        (("nesterov", None, 1.0, None), "l1 and prox go with"),
        (("fista", None, 1.0, box(0, 1)), "give one of them"),
        (("fista", None, -1.0, None), "l1 must be a finite number"),
        (("nesterov", "best", 0.0, None), "'lipschitz' or 'backtracking', got 'best'"),
        (("nesterov", -1.0, 0.0, None), "lr must be a positive number"),
        (("lbfgs", 0.1, 0.0, None), "lr does not go with it"),
        (("adam", "lipschitz", 0.0, None), "do not scale with the gradient"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        plan(*arguments)


@pytest.mark.parametrize(
    ("method", "lr", "message"),
    [
        ("momentum", None, "needs lr=: it has no line search"),
        ("dual-averaging", "backtracking", "needs lr=: it has no line search"),
        ("nesterov", "lipschitz", "needs a loss whose curvature is bounded"),
        ("dual-averaging", power(0.1, 0.5), "needs lr as a number"),
    ],
)
def test_a_length_that_cannot_be_had_is_refused(method, lr, message):
    with pytest.raises(InputError, match=message):
        plan(method, lr, 0.0, None).make(None)


def test_equal_options_have_equal_words():
    assert words(np.arange(3.0)) == words(np.arange(6.0)[:3])
    assert words(np.arange(3.0)) != words(np.arange(3))
    assert words(losses.Huber(delta=2.0)) == "Huber(delta=2.0)"
    assert words(QuasiNewton()) != words(QuasiNewton(memory=3))
    assert "test_minimize_methods" in words(test_equal_options_have_equal_words)
    assert words((1, "a")) == "[1, 'a']"
    assert " at 0x" not in words(FISTA(0.1, box(0, 1)))


def test_the_gradient_mapping_vanishes_at_a_constrained_minimum():
    x, gradient = np.array([0.0, 1.0]), np.array([3.0, 0.0])
    mapping, settled = gradient_mapping(FISTA(0.5, box(0, 2)), box(0, 2), x, gradient, 0)
    np.testing.assert_array_equal(mapping, 0)
    np.testing.assert_array_equal(settled, x)
    assert gradient_mapping(SGD(0.5), None, x, gradient, 0)[0] is gradient


@pytest.mark.parametrize("name", CURVATURE)
def test_no_loss_is_more_curved_than_said(name):
    z = np.linspace(-4, 4, 801)
    if name == "softmax":
        grid = np.stack([z, np.zeros_like(z)], axis=1)
        slopes = losses.get(name).residual(grid, np.zeros(len(z), int))
        # Along (1, -1), whose squared length is 2 and along which scores differ twice as fast.
        curvature = np.diff(slopes[:, 0] - slopes[:, 1]) / np.diff(z) * 2 / 2
    else:
        curvature = np.diff(losses.get(name).residual(z, np.ones(len(z)))) / np.diff(z)
    assert CURVATURE[name] * 0.98 <= curvature.max() <= CURVATURE[name] * (1 + 1e-9)


@pytest.mark.parametrize("p", [1, 3, 8, 40])
async def test_the_largest_eigenvalue_is_met_from_above(p):
    rng = np.random.default_rng(p)
    for _ in range(10):
        A = rng.standard_normal((2 * p, p)) * rng.uniform(0.1, 2, p)
        M = A.T @ A

        async def apply(v, M=M):
            return M @ v

        largest = np.linalg.eigvalsh(M)[-1]
        estimate = await largest_eigenvalue(apply, p)
        assert largest * (1 - 1e-9) <= estimate <= 1.2 * largest
