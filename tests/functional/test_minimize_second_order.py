"""Sketched Newton and natural gradients through `minimize`: their steps, their convergence, and what they cost."""

import numpy as np
import pytest
from gradient_cases import problem
from scipy.optimize import minimize as scipy_minimize

import serverless_gc as sgc
from serverless_gc.errors import InputError
from serverless_gc.optim import NaturalGradient, SketchedNewton
from serverless_gc.worker import losses

N, P = 240, 5


@pytest.fixture(scope="module")
def session():
    with sgc.Session("simulated", seed=1, inject=sgc.inject.Stragglers(fraction=0.1, slowdown=10)) as s:
        yield s


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, P))
    return X, X @ rng.standard_normal(P) + rng.standard_normal(N)


def labelled(n, p, scales=1.0):
    """Labels that follow the features."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, p)) * scales
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ (rng.standard_normal(p) / scales)))).astype(float)


EXACT_NEWTON = [
    ("mds", {"method": "sketched-newton", "sketch_rows": N}),
    ("frc", {"method": "sketched-newton", "sketch_rows": N}),
    ("frc", {"method": "natural-gradient", "fisher": "full"}),
]
named = pytest.mark.parametrize(
    ("code", "options"), EXACT_NEWTON, ids=[f"{options['method']}, {code}" for code, options in EXACT_NEWTON]
)


@named
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_one_step_solves_least_squares(session, regression, code, options, reduction):
    X, y = regression
    data = session.encode(X, y, code=code, n_workers=6)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    for lr in (1.0, None):
        fit = sgc.minimize(data, np.full(P, 3.0), lr=lr, max_rounds=1, reduction=reduction, **options)
        np.testing.assert_allclose(fit.w, best, atol=1e-12)


@named
def test_a_step_on_logistic_regression_is_one_of_reweighted_least_squares(session, code, options):
    X, y, w, _ = problem("logistic", N, P)
    data = session.encode(X, y, code=code, n_workers=6)
    fit = sgc.minimize(data, w, loss="logistic", l2=0.2, lr=1.0, max_rounds=1, **options)
    p = 1 / (1 + np.exp(-X @ w))
    D = p * (1 - p)
    targets = X @ w - (p - y) / D
    expected = np.linalg.solve(X.T @ (D[:, None] * X) + 0.2 * np.eye(P), X.T @ (D * targets))
    np.testing.assert_allclose(fit.w, expected, atol=1e-10)


@pytest.mark.parametrize(("fisher", "general"), [("full", True), ("diagonal", False)])
def test_invariance_under_a_change_of_parameters(session, fisher, general):
    X, y, theta, _ = problem("logistic", N, P)
    rng = np.random.default_rng(0)

    def moved(A):
        data = session.encode(X @ A, y, code="frc", n_workers=6)
        options = {"method": "natural-gradient", "fisher": fisher, "loss": "logistic", "lr": 0.5, "max_rounds": 3}
        return A @ sgc.minimize(data, np.linalg.solve(A, theta), **options).w

    plain = moved(np.eye(P))
    np.testing.assert_allclose(moved(np.diag([1.0, 5.0, 0.1, 30.0, 2.0])), plain, rtol=1e-8)
    assert np.allclose(moved(rng.standard_normal((P, P))), plain, rtol=1e-6) == general


@pytest.mark.parametrize("code", ["mds", "frc"])
def test_badly_scaled_features(session, code):
    """Features scaled over three decades, least squares (the rows' noise is what a diagonal Fisher matrix is of)."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((600, 10)) * np.geomspace(1, 1000, 10)
    y = X @ (rng.standard_normal(10) / np.geomspace(1, 1000, 10)) + rng.standard_normal(600)
    data = session.encode(X, y, code=code, n_workers=6)
    best = np.linalg.lstsq(X, y, rcond=None)[0]

    def excess(**options):
        fit = sgc.minimize(data, np.zeros(10), max_rounds=60, tolerance=0.0, reduction="mean", **options)
        return np.mean((X @ (fit.w - best)) ** 2) / np.mean((X @ best) ** 2)

    assert excess(method="gradient-descent", lr=1 / np.linalg.eigvalsh(X.T @ X / 600)[-1]) > 0.1
    assert excess(method="natural-gradient", lr=0.5) < 1e-6
    assert excess(method="natural-gradient") < 1e-6


@pytest.mark.parametrize("code", ["mds", "frc"])
@pytest.mark.parametrize("method", ["sketched-newton", "natural-gradient"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber", "squared_hinge"])
def test_convex_losses_are_minimized_from_afar(session, loss, method, code):
    X, y, _, _ = problem(loss, N, P)
    function = losses.get(loss)

    def objective(w):
        z = X @ w
        return function.value(z, y) + 0.25 * w @ w, X.T @ function.residual(z, y) + 0.5 * w

    best = scipy_minimize(objective, np.zeros(P), jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 0}).x
    data = session.encode(X, y, code=code, n_workers=6)
    start = np.full(P, 20.0 if loss != "poisson" else 1.0)  # where most logistic and Huber rows have no curvature
    fit = sgc.minimize(data, start, method=method, loss=loss, l2=0.5, tolerance=1e-7, max_rounds=200)
    assert fit.success, fit.message
    assert (np.diff(fit.values) <= 1e-9 * np.abs(fit.values[:-1])).all()
    np.testing.assert_allclose(fit.w, best, atol=1e-4)


def test_more_rows_of_the_sketch_make_fewer_steps(session):
    X, y = labelled(1000, P, scales=np.geomspace(1, 20, P))
    data = session.encode(X, y, code="mds", n_workers=6)
    options = {"loss": "logistic", "l2": 0.1, "tolerance": 1e-7, "max_rounds": 60}
    few, many = (
        sgc.minimize(data, np.zeros(P), method="sketched-newton", sketch_rows=rows, **options) for rows in (12, 400)
    )
    first_order = sgc.minimize(data, np.zeros(P), method="nesterov", **options)
    assert many.success
    assert many.steps < few.steps / 2
    assert many.account.billed_seconds < first_order.account.billed_seconds


def test_a_sketch_of_fewer_rows_than_columns_still_descends(session):
    X, y, _, _ = problem("logistic", N, P)
    data = session.encode(X, y, code="frc", n_workers=6)
    options = {"loss": "logistic", "tolerance": 1e-6, "max_rounds": 400}
    assert sgc.minimize(data, np.zeros(P), method="sketched-newton", sketch_rows=2, l2=1.0, **options).success
    assert sgc.minimize(data, np.zeros(P), method="sketched-newton", sketch_rows=3, damping=2.0, **options).success


@pytest.mark.parametrize(
    ("code", "method", "options", "rounds"),
    [
        ("mds", "sketched-newton", {}, 3),
        ("mds", "natural-gradient", {}, 3),
        ("frc", "sketched-newton", {}, 2),
        ("frc", "natural-gradient", {"fisher": "full"}, 2),
        ("frc", "natural-gradient", {}, 1),  # the squares come along with the gradient
    ],
)
def test_the_account_counts_the_rounds_of_the_curvature(session, code, method, options, rounds):
    X, y, _, _ = problem("logistic", N, P)
    data = session.encode(X, y, code=code, n_workers=6)
    steps = {"lr": 1.0, "max_rounds": 4, "tolerance": 0.0}
    fit = sgc.minimize(data, np.zeros(P), method=method, loss="logistic", l2=0.1, **steps, **options)
    assert (fit.steps, fit.account.evaluations) == (4, 4)
    assert fit.report.check().rounds == 4 * rounds
    assert fit.account.samples == 4 * N


def test_a_column_of_zeros_stays_where_it_is(session):
    X, y, _, _ = problem("logistic", N, P)
    X = np.hstack([X, np.zeros((N, 1))])
    for code in ("mds", "frc"):
        data = session.encode(X, y, code=code, n_workers=6)
        for method in ("sketched-newton", "natural-gradient"):
            fit = sgc.minimize(data, np.zeros(P + 1), method=method, loss="logistic", tolerance=1e-6)
            assert fit.success
            assert abs(fit.w[-1]) < 1e-12
    with pytest.raises(np.linalg.LinAlgError):
        sgc.minimize(data, np.zeros(P + 1), method="natural-gradient", fisher="full", loss="logistic")
    damped = {"fisher": "full", "damping": 1e-6, "tolerance": 1e-6}
    assert sgc.minimize(data, np.zeros(P + 1), method="natural-gradient", loss="logistic", **damped).success


def test_rules_of_ones_own_are_told_as_well(session):
    X, y, _, _ = problem("logistic", N, P)
    data = session.encode(X, y, code="frc", n_workers=6)
    options = {"loss": "logistic", "l2": 0.3, "tolerance": 1e-6}
    newton = sgc.minimize(data, np.zeros(P), method=SketchedNewton(l2=0.3), sketch_rows=200, **options)
    natural = sgc.minimize(data, np.zeros(P), method=NaturalGradient(1.0, "full", damping=0.3), **options)
    assert newton.success
    assert natural.success
    np.testing.assert_allclose(newton.w, natural.w, atol=1e-4)


def test_partitions_that_never_come_are_left_out():
    """Any enough of the workers give a gradient and a sketch."""
    X, y = labelled(2000, P)
    objective = {"loss": "logistic", "l2": 0.1, "reduction": "mean"}
    with sgc.Session("simulated", seed=4) as s:
        data = s.encode(X, y, code="ignore-stragglers", n_workers=20)
        options = {"wait": 16, "on_undecodable": "approximate", "lr": 1.0, "max_rounds": 12, "tolerance": 0.0}
        fit = sgc.minimize(data, np.zeros(P), method="sketched-newton", **objective, **options)
        exact = sgc.minimize(data, np.zeros(P), method="lbfgs", wait=20, **objective)
    assert np.linalg.norm(fit.w - exact.w) < 0.3 * np.linalg.norm(exact.w)


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        ("mds", {"method": "natural-gradient", "fisher": "full"}, "full Fisher matrix needs a gradient code"),
        ("mds", {"method": "sketched-newton", "fisher": "full"}, "fisher goes with method='natural-gradient'"),
        ("mds", {"method": "natural-gradient", "fisher": "half"}, "fisher must be one of diagonal, full, got 'half'"),
        ("mds", {"method": "lbfgs", "damping": 1.0}, "damping goes with"),
        ("mds", {"method": "sketched-newton", "damping": -1.0}, "damping must be a finite number of at least 0"),
        ("mds", {"method": "lbfgs", "sketch_rows": 10}, "sketch_rows goes with"),
        ("mds", {"method": "sketched-newton", "sketch_rows": 1.5}, "sketch_rows must be an integer"),
        ("mds", {"method": "sketched-newton", "lr": "lipschitz"}, "the curvature scales its steps"),
        ("encoded", {"method": "sketched-newton"}, "needs the curvature of the loss, which 'encoded' does not give"),
        ("lcc-mmc", {"method": "natural-gradient"}, "needs the curvature of the loss"),
        ("frc", {"method": "sketched-newton", "loss": "softmax"}, "'softmax' is no sum"),
        ("frc", {"method": "sketched-newton", "loss": np.dot}, "a function of one's own is not known"),
        ("frc", {"method": "sketched-newton", "seed": -1}, "seed must be an integer of at least 0"),
        ("frc", {"method": "sketched-newton", "l2": -1.0}, "l2 must be a finite number of at least 0"),
        ("frc", {"method": NaturalGradient(1.0), "loss": "softmax"}, "'softmax' is no sum"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(regression, code, options, message):
    X, y = regression
    w0 = np.zeros((P, 3)) if options.get("loss") == "softmax" else np.zeros(P)
    labels = np.arange(N) % 3 if options.get("loss") == "softmax" else y
    with sgc.Session("simulated", inject=sgc.inject.Faults(fail=1.0), max_attempts=1) as s:  # whatever runs, fails
        data = s.encode(X, labels, code=code, n_workers=8)
        with pytest.raises(InputError, match=message):
            sgc.minimize(data, w0, **options)
