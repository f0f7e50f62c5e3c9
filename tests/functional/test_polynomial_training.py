"""Training on multi-message Lagrange coded rows: the face that other encoded data have, one round for each gradient."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import serverless_gc as sgc
from serverless_gc.errors import InputError, LimitError, ServerlessGCError
from serverless_gc.limits import Limits

L2 = 0.5
SIZE = {"code": "lcc-mmc", "n_workers": 8, "k": 4, "r": 3}  # any 7 of 24 messages
SLOW = sgc.inject.Stragglers(fraction=[1, 6], slowdown=20, base=0.002, persistent=True)


class Ridge:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((301, 6))
        self.y = self.X @ np.arange(6.0) + rng.standard_normal(301)
        self.best = np.linalg.solve(self.X.T @ self.X + L2 * np.eye(6), self.X.T @ self.y)

    def __call__(self, w):
        r = self.X @ w - self.y
        return 0.5 * r @ r + 0.5 * L2 * w @ w, self.X.T @ r + L2 * w


@pytest.fixture(scope="module")
def ridge():
    return Ridge()


@pytest.fixture(scope="module")
def session():
    with sgc.Session("simulated", seed=1) as s:
        yield s


@pytest.fixture(scope="module")
def data(session, ridge):
    return session.encode(ridge.X, ridge.y, **SIZE)


@pytest.mark.parametrize("backend", ["local", "simulated", "aws"])
def test_a_run_with_stragglers_is_the_run_of_numpy(ridge, backend, request):
    expected, values, lr = np.zeros(6), [], 1e-3
    for _ in range(12):
        value, gradient = ridge(expected)
        values.append(value)
        expected = expected - lr * gradient
    machine = request.getfixturevalue("running_aws").activated() if backend == "aws" else nullcontext()
    with machine, sgc.Session(backend, inject=SLOW) as s:
        encoded = s.encode(ridge.X, ridge.y, **SIZE)
        fit = sgc.minimize(encoded, np.zeros(6), method="gradient-descent", l2=L2, lr=lr, max_rounds=12, tolerance=0)
        s.encode(np.eye(8), code="uncoded", n_workers=8).matvec(np.ones(8))  # nobody is at work any more
    np.testing.assert_allclose(fit.w, expected, rtol=1e-10)
    np.testing.assert_allclose(fit.values, values, rtol=1e-10)
    report, account = fit.report.check(), fit.account
    assert (fit.steps, account.updates, account.evaluations, report.rounds) == (12, 12, 12, 12)
    assert report.issued == account.issued == account.used + account.wasted == 12 * 8
    assert report.failed == 0
    assert report.encode_seconds > 0
    blocks = 24 * 76 * 6 * 8
    assert blocks < report.bytes_up < blocks + 24 * 400 + 12 * 8 * 3000  # the rows once, and the tasks


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("nesterov", {}),
        ("nesterov", {"lr": "backtracking"}),
        ("gradient-descent", {}),
        ("lbfgs", {}),
    ],
    ids=["nesterov", "nesterov-search", "gradient-descent", "lbfgs"],
)
def test_methods_find_the_minimum(data, ridge, method, options):
    fit = sgc.minimize(data, np.zeros(6), method=method, l2=L2, tolerance=1e-8, **options)
    assert fit.reason == "gradient"
    np.testing.assert_allclose(fit.w, ridge.best, atol=1e-6)
    assert fit.report.check().issued == fit.account.issued == fit.account.used + fit.account.wasted
    assert fit.value == pytest.approx(ridge(fit.w)[0], rel=1e-10)


def test_several_outputs_means_and_parts_that_are_not_smooth(session, ridge):
    Y = np.stack([ridge.y, -2 * ridge.y], axis=1)
    encoded = session.encode(ridge.X, Y, **SIZE)
    fit = sgc.minimize(encoded, np.zeros((6, 2)), reduction="mean", l2=L2 / 301, tolerance=1e-9)
    np.testing.assert_allclose(fit.w, np.outer(ridge.best, [1, -2]), atol=1e-6)
    sparse = sgc.minimize(encoded, np.zeros((6, 2)), method="fista", l1=80.0, tolerance=1e-8, max_rounds=400)
    r = ridge.X.T @ (ridge.X @ sparse.w - Y)
    off = sparse.w == 0
    assert off.any()
    assert not off.all()
    np.testing.assert_allclose(r[~off], -80 * np.sign(sparse.w[~off]), atol=1e-4)
    assert (np.abs(r[off]) <= 80 + 1e-6).all()


@pytest.mark.parametrize(
    "policy",
    [sgc.KSync(5), sgc.KSync(1), sgc.WaitAll(), sgc.UntilDecodable, lambda c: sgc.Speculate(sgc.UntilDecodable(c))],
    ids=["k-sync", "too-few", "wait-all", "until-decodable", "speculate"],
)
def test_policies_change_the_cost_and_not_the_answer(data, policy):
    usual, fit = (
        sgc.minimize(data, np.zeros(6), lr=1e-3, l2=L2, max_rounds=4, **options) for options in ({}, {"policy": policy})
    )
    np.testing.assert_allclose(fit.w, usual.w, rtol=1e-9)
    assert fit.report.check().rounds == 4


@pytest.mark.parametrize("method", ["nesterov", "lbfgs"])
def test_a_run_that_is_taken_up_again_ends_with_the_same_bits(tmp_path, ridge, method):
    def train(checkpoint=None, stop=None, **options):
        def callback(at):
            if at.step == stop:
                raise RuntimeError("stopped")

        with sgc.Session("simulated", seed=3, inject=sgc.inject.Stragglers(fraction=0.2, slowdown=9)) as s:
            encoded = s.encode(ridge.X, ridge.y, **SIZE)
            told = {"method": method, "l2": L2, "max_rounds": 5, "tolerance": 0.0, **options}
            return sgc.minimize(encoded, np.zeros(6), checkpoint=checkpoint, callback=callback, **told)

    whole = train()
    with pytest.raises(RuntimeError, match="stopped"):
        train(tmp_path / "run", 2)
    again = train(tmp_path / "run")
    assert again.resumed_at == 2
    np.testing.assert_array_equal(again.w, whole.w)
    np.testing.assert_array_equal(again.values, whole.values)
    assert (again.account.issued, again.account.updates) == (whole.account.issued, whole.account.updates)
    with pytest.raises(InputError, match=r"l2 was 0\.5, is 0\.6"):
        train(tmp_path / "run", l2=0.6)


def test_scipy_minimizes_its_objective(data, ridge):
    objective = data.objective(l2=L2)
    found = scipy_minimize(objective, np.zeros(6), jac=True, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 1e-15})
    np.testing.assert_allclose(found.x, ridge.best, atol=1e-6)
    assert objective.evaluations == found.nfev == objective.report.check().rounds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "logistic"}, "serves the squared loss only, got 'logistic'"),
        ({"sample_weight": np.ones(301)}, "sample_weight= does not go with 'lcc-mmc'"),
        ({"strategy": "gram"}, "strategy= does not go with 'lcc-mmc'"),
        ({"on_undecodable": "approximate"}, "on_undecodable= does not go with 'lcc-mmc'"),
        ({"policy": sgc.KAsync(3)}, "need a gradient code.*'lcc-mmc' only mean something together"),
        ({"policy": sgc.KBatchSync(3)}, "use KSync instead"),
        ({"w0": np.zeros((6, 1))}, r"w must have shape \(6,\), as y has columns; got \(6, 1\)"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(data, options, message):
    with pytest.raises(InputError, match=message):
        sgc.minimize(data, **{"w0": np.zeros(6), "lr": 0.1, **options})


def test_the_same_rows_are_stored_once_whatever_the_targets(ridge):
    w = np.ones(6)
    with sgc.Session() as s:
        first, other = s.encode(ridge.X, ridge.y, **SIZE), s.encode(ridge.X.copy(), -ridge.y, **SIZE)
        _, cost = first.gradient(w, with_report=True)
        g, later = other.gradient(w, with_report=True)
        assert cost.bytes_up - later.bytes_up > 24 * 76 * 6 * 8
        assert first.fingerprint == other.fingerprint
        assert first.stored_nnz == 24 * 76 * 6
        np.testing.assert_allclose(g, ridge.X.T @ (ridge.X @ w + ridge.y), rtol=1e-9)
        with pytest.raises(InputError, match="encoded without y"):
            sgc.minimize(s.encode(ridge.X, **SIZE), w)
        first.close()
        with pytest.raises(ServerlessGCError, match="let go or deleted; encode it again"):
            other.gradient(w)
        again = s.encode(ridge.X, ridge.y, **SIZE)
        np.testing.assert_allclose(again.gradient(w, l2=L2), ridge(w)[1], rtol=1e-9)


def test_messages_are_published_as_often_as_it_is_said(ridge):
    with sgc.Session() as s:
        whole = s.encode(ridge.X, ridge.y, publish=0, **SIZE).gradient(np.ones(6), l2=L2, with_report=True)
    np.testing.assert_allclose(whole[0], ridge(np.ones(6))[1], rtol=1e-9)
    assert whole[1].partial_messages == whole[1].polls == 0


def test_columns_that_are_never_stored_need_not_fit():
    X = np.random.default_rng(1).standard_normal((20_000, 3))
    with sgc.Session(limits=Limits(object_bytes=130_000)) as s:  # 120 kB for a block of rows, 160 kB for one of columns
        with pytest.raises(LimitError, match="blocks of columns"):
            s.encode(X, X[:, 0], code="mds", n_workers=8, k=4)
        g = s.encode(X, X[:, 0], **SIZE).gradient(np.ones(3))
    np.testing.assert_allclose(g, X.T @ (X[:, 1] + X[:, 2]), rtol=1e-8)


@pytest.mark.parametrize("code", ["pcr", "lagrange"])
def test_codes_of_polynomials_with_single_messages_train_too(session, ridge, code):
    encoded = session.encode(ridge.X, ridge.y, code=code, n_workers=16, k=4)
    fit = sgc.minimize(encoded, np.zeros(6), l2=L2, tolerance=1e-8)
    assert fit.reason == "gradient"
    np.testing.assert_allclose(fit.w, ridge.best, atol=1e-6)
    assert fit.report.check().issued == fit.account.issued
