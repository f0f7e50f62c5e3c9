"""Whole trainings: every method finds what SciPy finds, every policy and every code, for what the account says."""

import re

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import serverless_gc as sgc
from serverless_gc import policies
from serverless_gc.errors import DeadlineExceeded, InputError
from serverless_gc.optim import LBFGS, SGD, box, power
from serverless_gc.policies import KAsync, KSync
from serverless_gc.stragglers import Exponential

L2 = 0.5
ZERO = np.zeros(5)
LOGISTIC = {"loss": "logistic", "l2": L2}


class Logistic:
    def __init__(self, n=240, p=5, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, p)) * np.linspace(0.5, 1.5, p)
        self.y = (rng.random(n) < 1 / (1 + np.exp(-self.X @ rng.standard_normal(p)))).astype(float)
        found = scipy_minimize(self, np.zeros(p), jac=True, method="L-BFGS-B", options={"gtol": 1e-11, "ftol": 1e-16})
        self.best, self.least = found.x, found.fun

    def __call__(self, w):
        z = self.X @ w
        value = np.sum(np.logaddexp(0, z) - self.y * z) + 0.5 * L2 * w @ w
        return value, self.X.T @ (1 / (1 + np.exp(-z)) - self.y) + L2 * w


@pytest.fixture(scope="module")
def logistic():
    return Logistic()


@pytest.fixture(scope="module")
def session():
    with sgc.Session("simulated", seed=1) as s:
        yield s


@pytest.fixture(scope="module")
def data(session, logistic):
    return session.encode(logistic.X, logistic.y, code="mds", n_workers=6, k=4)


@pytest.fixture(scope="module")
def parts(session, logistic):
    return session.encode(logistic.X, logistic.y, code="frc", n_workers=6)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gradient-descent", {}),
        ("gradient-descent", {"lr": "backtracking"}),
        ("momentum", {"lr": 0.01}),
        ("nesterov", {}),
        ("nesterov", {"lr": "backtracking"}),
        ("adam", {"lr": power(0.5, 0.6)}),
        ("amsgrad", {"lr": 0.1}),
        ("dual-averaging", {}),
        ("lbfgs", {}),
        (SGD(0.02), {}),
    ],
    ids=lambda v: re.sub(r" at 0x[0-9a-f]+", "", str(v)),
)
def test_methods_find_the_minimum(data, logistic, method, options):
    fit = sgc.minimize(data, ZERO, method=method, max_rounds=150, tolerance=1e-5, **LOGISTIC, **options)
    np.testing.assert_allclose(fit.w, logistic.best, atol=2e-3)
    assert fit.reason in {"gradient", "rounds"}
    assert fit.success == (fit.reason == "gradient")
    assert fit.steps == fit.account.updates
    assert fit.account.evaluations >= len(fit.values) > 1
    assert fit.values[0] == pytest.approx(logistic(ZERO)[0])
    assert fit.report.check().issued == fit.account.issued == fit.account.used + fit.account.wasted
    assert (np.diff(fit.seconds) >= 0).all()
    assert fit.billed_seconds[-1] <= fit.account.billed_seconds
    assert fit.account.staleness == {0: fit.account.used}
    assert fit.account.peak >= 1
    assert fit.account.samples == len(logistic.X) * fit.account.evaluations


def test_quasi_newton_steps_without_a_search_begin_short(data, logistic):
    fit = sgc.minimize(data, ZERO, method=LBFGS(), max_rounds=40, tolerance=1e-5, **LOGISTIC)
    assert fit.reason == "gradient"
    assert max(fit.values) <= fit.values[0]
    np.testing.assert_allclose(fit.w, logistic.best, atol=2e-3)


def test_the_account_counts_those_given_up_that_run_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 2))
    with sgc.Session("simulated", delay=Exponential(1.0)) as s:
        data = s.encode(X, X @ [1.0, 2.0], code="mds", n_workers=16, k=8)
        options = {"max_rounds": 100, "tolerance": 0.0, "lr": 1e-4, "strategy": "two-round"}
        fit = sgc.minimize(data, np.zeros(2), method="gradient-descent", policy=lambda _: KSync(8), **options)
    assert fit.account.zombies == pytest.approx(12.07, rel=0.1)  # 8 / (H_16 - H_8), of 200 rounds
    assert fit.account.peak > 16 + 12
    with sgc.Session("local") as s:
        data = s.encode(X, X @ [1.0, 2.0], code="mds", n_workers=4, k=3)
        account = sgc.minimize(data, np.zeros(2), method="gradient-descent", max_rounds=2).account
    assert account.zombies is None
    assert 1 <= account.peak <= 4


def test_samples_of_stale_gradients_are_counted_and_those_of_approximate_ones_unknown(parts, logistic):
    options = {"method": "gradient-descent", "lr": 1e-3, "max_rounds": 3, **LOGISTIC}
    stale = sgc.minimize(parts, ZERO, policy=KAsync(2), **options).account
    share = parts.code.generator.sum(axis=1)[0] / parts.code.k
    # two workers' shares a step, and at the end a whole gradient
    assert stale.samples == pytest.approx((3 * 2 * share + 1) * len(logistic.X))
    rough = {"on_undecodable": "approximate", "policy": lambda _: KSync(1)}
    assert sgc.minimize(parts, ZERO, **options, **rough).account.samples is None


def test_where_the_gradient_is_small_value_and_gradient_are_those_of_the_weights(data, logistic):
    fit = sgc.minimize(data, ZERO, method="lbfgs", tolerance=1e-8, **LOGISTIC)
    assert fit.reason == "gradient"
    value, gradient = logistic(fit.w)
    assert fit.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(fit.gradient, gradient, atol=1e-9)
    assert fit.value == pytest.approx(logistic.least, rel=1e-10)


@pytest.mark.parametrize("method", ["proximal", "fista"])
@pytest.mark.parametrize("lr", [None, "backtracking"])
def test_proximal_methods_meet_the_conditions_of_the_lasso(data, logistic, method, lr):
    l1 = 12.0
    fit = sgc.minimize(data, ZERO, method=method, l1=l1, lr=lr, tolerance=1e-7, max_rounds=400, **LOGISTIC)
    value, gradient = logistic(fit.w)
    off = fit.w == 0
    assert off.any()
    assert not off.all()
    np.testing.assert_allclose(gradient[~off], -l1 * np.sign(fit.w[~off]), atol=1e-3)
    assert (np.abs(gradient[off]) <= l1 + 1e-6).all()
    assert fit.value == pytest.approx(value + l1 * np.abs(fit.w).sum(), rel=1e-6)


@pytest.mark.parametrize(("method", "lr"), [("lbfgs", None), ("nesterov", "backtracking"), ("nesterov", None)])
def test_a_residual_of_nothing_against_large_targets_is_reached(session, method, lr):
    rng = np.random.default_rng(0)
    X, truth = rng.standard_normal((400, 8)), 100 * rng.standard_normal(8)
    data = session.encode(X, X @ truth, code="mds", n_workers=6, k=4)
    fit = sgc.minimize(data, np.zeros(8), method=method, lr=lr, tolerance=1e-10)
    assert fit.reason == "gradient"
    assert fit.account.evaluations < 60
    np.testing.assert_allclose(fit.w, truth, rtol=1e-8)


def test_a_constraint_is_kept(data, logistic):
    fit = sgc.minimize(data, ZERO + 0.1, method="fista", prox=box(0.1, 0.5), **LOGISTIC)
    bounded = scipy_minimize(logistic, ZERO + 0.1, jac=True, method="L-BFGS-B", bounds=[(0.1, 0.5)] * 5)
    np.testing.assert_allclose(fit.w, bounded.x, atol=1e-4)
    assert fit.w.min() >= 0.1


def test_scipy_minimizes_a_coded_objective(data, parts, logistic):
    for encoded in (data, parts):
        objective = encoded.objective(**LOGISTIC)
        found = scipy_minimize(objective, ZERO, jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-15})
        np.testing.assert_allclose(found.x, logistic.best, atol=1e-6)
        assert objective.evaluations == found.nfev
        assert objective.report.check().rounds >= found.nfev


def test_a_flat_optimizer_serves_several_classes(session):
    rng = np.random.default_rng(3)
    X, labels = rng.standard_normal((60, 3)), rng.integers(0, 3, 60)
    data = session.encode(X, labels, code="mds", n_workers=4, k=3)
    found = scipy_minimize(
        data.objective(loss="softmax", l2=1.0, shape=(3, 3)), np.zeros(9), jac=True, method="L-BFGS-B"
    )
    fit = sgc.minimize(data, np.zeros((3, 3)), method="nesterov", loss="softmax", l2=1.0)
    assert fit.w.shape == (3, 3)
    np.testing.assert_allclose(found.x.reshape(3, 3), fit.w, atol=1e-4)
    with pytest.raises(InputError, match="w must have 9 entries"):
        data.objective(loss="softmax", shape=(3, 3))(np.zeros(3))
    with pytest.raises(InputError, match="with_report does not go with objective"):
        data.objective(with_report=True)


@pytest.mark.parametrize(
    "policy",
    [
        sgc.KSync(5),
        sgc.WaitAll(),
        sgc.UntilDecodable,
        lambda code: sgc.Speculate(sgc.UntilDecodable(code)),
        sgc.KSync(1),
    ],
    ids=["k-sync", "wait-all", "until-decodable", "speculate", "too-few"],
)
def test_policies_change_the_cost_and_not_the_answer(data, parts, policy):
    for encoded in (data, parts):
        usual = sgc.minimize(encoded, ZERO, lr=0.02, max_rounds=5, **LOGISTIC)
        fit = sgc.minimize(encoded, ZERO, lr=0.02, max_rounds=5, policy=policy, **LOGISTIC)
        np.testing.assert_allclose(fit.w, usual.w, rtol=0, atol=1e-11)
        assert fit.report.error < 1e-20


def test_waiting_for_all_gives_the_same_bits_whoever_straggles(logistic):
    found = []
    for seed in (1, 2):
        with sgc.Session("simulated", seed=seed, delay=Exponential(3.0)) as s:
            data = s.encode(logistic.X, logistic.y, code="mds", n_workers=6, k=4)
            found.append(sgc.minimize(data, ZERO, lr=0.02, max_rounds=4, policy=sgc.WaitAll(), **LOGISTIC))
    np.testing.assert_array_equal(found[0].w, found[1].w)
    np.testing.assert_array_equal(found[0].values, found[1].values)
    assert found[0].account.seconds != found[1].account.seconds


def test_approximate_gradients_only_where_they_are_asked_for(parts):
    exact = sgc.minimize(parts, ZERO, lr=0.02, max_rounds=3, policy=sgc.KSync(1), **LOGISTIC)
    assert exact.report.error < 1e-20
    rough = sgc.minimize(
        parts, ZERO, lr=0.02, max_rounds=3, policy=sgc.KSync(1), on_undecodable="approximate", **LOGISTIC
    )
    assert rough.report.error > 1
    assert rough.account.used < exact.account.used


@pytest.mark.parametrize(("policy", "expected"), [(sgc.KAsync(3), 6 / 3 - 1), (sgc.KBatchAsync(3), 5 / 3)])
def test_stale_gradients_descend_and_their_ages_are_told(logistic, policy, expected):
    with sgc.Session("simulated", seed=2, delay=Exponential(2.0)) as s:
        parts = s.encode(logistic.X, logistic.y, code="frc", n_workers=6)
        fit = sgc.minimize(
            *(parts, ZERO), method="gradient-descent", lr=0.003, policy=policy, max_rounds=300, **LOGISTIC
        )
        fresh = sgc.minimize(parts, ZERO, method="gradient-descent", lr=0.003, max_rounds=300, **LOGISTIC)
    assert logistic(fit.w)[0] - logistic.least < 0.05 * (logistic(ZERO)[0] - logistic.least)
    assert fit.value == pytest.approx(logistic(fit.w)[0])  # measured by a coded gradient at the end
    ages = fit.account.staleness
    assert sum(age * n for age, n in ages.items()) / sum(ages.values()) == pytest.approx(expected, rel=0.12)
    assert min(ages) == 0 < max(ages)
    assert fit.report.check().issued == fit.account.issued
    assert fit.account.seconds < fresh.account.seconds
    assert fit.steps == 300 == len(fit.values) - 1


def test_stale_gradients_of_a_function_of_ones_own_on_threads(logistic):
    def loss(X, y, w):
        p = 1 / (1 + np.exp(-(X @ w)))
        return float(-np.sum(y * np.log(p) + (1 - y) * np.log(1 - p))), X.T @ (p - y)

    with sgc.Session("local") as s:
        parts = s.encode(logistic.X, logistic.y, code="frc", n_workers=4)
        fit = sgc.minimize(parts, ZERO, method="adam", lr=0.05, policy=sgc.KAsync(2), loss=loss, l2=L2, max_rounds=120)
    assert fit.value - logistic.least < 0.1 * (logistic(ZERO)[0] - logistic.least)


def test_a_loss_of_unknown_curvature_is_searched_along(parts, logistic):
    def loss(X, y, w):
        z = X @ w
        return float(np.sum(np.logaddexp(0, z) - y * z)), X.T @ (1 / (1 + np.exp(-z)) - y)

    fit = sgc.minimize(parts, ZERO, loss=loss, l2=L2, tolerance=1e-5)
    np.testing.assert_allclose(fit.w, logistic.best, atol=1e-3)
    with pytest.raises(InputError, match="needs lr="):
        sgc.minimize(parts, ZERO, method="momentum", loss=loss)


def test_encoded_optimization_is_minimized_too(session, problem):
    data = session.encode(problem.X, problem.y, code="encoded", n_workers=8)
    fit = sgc.minimize(data, np.zeros(20), method="gradient-descent", wait=8, tolerance=1e-9)
    np.testing.assert_allclose(fit.w, np.linalg.lstsq(problem.X, problem.y)[0], atol=1e-6)


def test_the_run_ends_with_its_seconds(data):
    whole = sgc.minimize(data, ZERO, lr=0.02, max_rounds=10, tolerance=0.0, **LOGISTIC)
    half = whole.account.seconds / 2
    fit = sgc.minimize(data, ZERO, lr=0.02, max_rounds=100, tolerance=0.0, seconds=half, **LOGISTIC)
    assert fit.reason == "seconds"
    assert 0 < fit.steps < 100
    assert fit.account.seconds <= half * 1.5
    nothing = sgc.minimize(data, ZERO + 1.0, lr=0.02, seconds=1e-3, **LOGISTIC)
    assert (nothing.reason, nothing.steps, len(nothing.values)) == ("seconds", 0, 0)
    np.testing.assert_array_equal(nothing.w, 1.0)
    with pytest.raises(DeadlineExceeded):  # that of one gradient is an error
        sgc.minimize(data, ZERO, lr=0.02, deadline=1e-3, **LOGISTIC)


def test_a_callback_sees_every_step_may_compute_and_may_stop(data, logistic):
    seen = []

    def callback(at):
        seen.append((at.step, at.value, data.value_and_gradient(at.w, **LOGISTIC)[0]))
        return at.step == 4

    fit = sgc.minimize(data, ZERO, lr=0.02, callback=callback, **LOGISTIC)
    assert (fit.reason, fit.steps) == ("callback", 4)
    assert [step for step, *_ in seen] == [1, 2, 3, 4]
    np.testing.assert_array_equal([value for _, value, _ in seen], fit.values)
    assert seen[-1][2] == pytest.approx(logistic(fit.w)[0])


def test_too_long_steps_and_steps_that_do_not_move_end_the_run(data):
    fit = sgc.minimize(data, ZERO, method="gradient-descent", lr=1.0, max_rounds=50)
    assert fit.reason == "diverged"
    assert "smaller lr=" in fit.message
    assert np.isfinite(fit.w).all()
    fit = sgc.minimize(data, ZERO, method="gradient-descent", lr=0.02, change=0.1, tolerance=0.0, **LOGISTIC)
    assert fit.reason == "change"
    assert fit.steps < 20


async def test_the_asynchronous_twin(data, logistic):
    fit = await sgc.minimize_async(data, ZERO, method="lbfgs", **LOGISTIC)
    np.testing.assert_allclose(fit.w, logistic.best, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rounds": 0}, "max_rounds must be an integer of at least 1, got 0"),
        ({"every": 1.5}, "every must be an integer"),
        ({"tolerance": -1}, "tolerance must be a finite number"),
        ({"change": np.inf}, "change must be a finite number"),
        ({"seconds": 0}, "seconds must be a positive"),
        ({"w0": ZERO * 1j}, "w0 must be real"),
        ({"w0": np.zeros(3)}, r"must have shape \(5,\)"),
        ({"policy": 3}, "policy must be a waiting policy"),
        ({"policy": sgc.KBatchSync(3)}, "use KSync instead"),
        (
            {"policy": policies.Anytime(1.0)},
            r"Anytime .* stop at a time.*_stochastic\(scheme='anytime'\).*Deadline",
        ),
        ({"policy": policies.AdaSync(2, interval=1.0)}, r"AdaSync is about the loss of each round.*scheme='adasync'"),
        (
            {"policy": sgc.Deadline(policies.Groups([[0, 1]]), 5.0)},
            r"Groups .* share their data.*scheme='cada'",
        ),
        (
            {"policy": policies.FirstDone(2)},
            r"FirstDone .* publish mini-batches.*scheme='non-blocking'",
        ),
        ({"policy": policies.GlobalBatch(3)}, r"GlobalBatch is about gradients that are weighted.*scheme='gba'"),
        ({"policy": sgc.KAsync(3)}, "need a gradient code"),
        ({"with_report": True}, "the report is part of the fit"),
        ({"checkpoint": "/absent/run"}, "there is no folder"),
    ],
)
def test_wrong_arguments_are_refused(data, options, message):
    with pytest.raises(InputError, match=message):
        sgc.minimize(data, **{"w0": ZERO, "lr": 0.1, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": sgc.KAsync(3), "wait": 3}, "wait does not go with"),
        ({"policy": sgc.KAsync(3), "method": "lbfgs", "lr": None}, "line searches and .* take exact values"),
        (
            {"policy": sgc.KAsync(3), "method": "sketched-newton", "lr": 1.0},
            "stale gradients have none: sketched-newton",
        ),
        ({"policy": sgc.KSync(3), "wait": 3}, "policy and wait both say"),
    ],
)
def test_wrong_arguments_for_gradient_codes_are_refused(parts, options, message):
    with pytest.raises(InputError, match=message):
        sgc.minimize(parts, ZERO, **{"lr": 0.1, **options})


@pytest.mark.parametrize("code", ["cyclic", "coded-reduce", "lwpd"])
def test_stale_results_must_mean_something_alone(session, logistic, code):
    encoded = session.encode(logistic.X, logistic.y, code=code)
    with pytest.raises(InputError, match="only make sense together"):
        sgc.minimize(encoded, ZERO, lr=0.1, policy=sgc.KAsync(3))


@pytest.mark.parametrize("code", ["coded-reduce", "lwpd", "clustered", "cpgc", "gc-mmc"])
def test_codes_of_several_stages_and_messages_train(session, logistic, code):
    encoded = session.encode(logistic.X, logistic.y, code=code)
    fit = sgc.minimize(encoded, ZERO, method="lbfgs", **LOGISTIC)
    np.testing.assert_allclose(fit.w, logistic.best, atol=1e-4)


def test_other_things_are_no_data():
    with pytest.raises(InputError, match=r"what Session\.encode gave, with y; got ndarray"):
        sgc.minimize(np.eye(5), ZERO)
