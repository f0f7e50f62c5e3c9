"""The curvature of a loss from coded data: whichever code, the same sketch; with stragglers and without."""

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from gradient_cases import problem

import serverless_gc as sgc
from serverless_gc.codes import available, get
from serverless_gc.data.coded import CodedData
from serverless_gc.data.gradient import GradientData
from serverless_gc.errors import InputError
from serverless_gc.worker import losses
from serverless_gc.worker.curvature import buckets_and_signs

SLOW = sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=3)
N, P, ROWS, SEED = 101, 5, 23, (4, 1)


@pytest.fixture(scope="module")
def session():
    with sgc.Session("simulated", inject=SLOW, seed=2) as s:
        yield s


@pytest.fixture(scope="module")
def logistic():
    return problem("logistic", N, P)


def bends(X, w):
    s = 1 / (1 + np.exp(-X @ w))
    return s * (1 - s)


def root(X, D, rows=ROWS, seed=SEED):
    """The sketched root, row by row."""
    B = np.zeros((rows, X.shape[1]))
    for row, bucket, sign, d in zip(X, *buckets_and_signs(seed, 0, len(X), rows), D, strict=True):
        B[bucket] += sign * np.sqrt(d) * row
    return B


EXACT = [
    info.name
    for info in available()
    if info.exact and (info.kind == "gradient" or (info.kind == "data" and get(info.name).target == "blocks"))
]


def test_the_names():
    assert {"polar", "mds", "lt", "short-dot", "roots-of-unity", "product"} <= set(EXACT)
    assert {"frc", "cyclic-mds", "ye-abbe", "coded-reduce", "lwpd"} <= set(EXACT)


@pytest.mark.parametrize("name", EXACT)
def test_every_exact_code_gives_the_same_root(session, logistic, name):
    X, y, w, _ = logistic
    data = session.encode(X, y, code=name)
    B, report = data.curvature(w, loss="logistic", sketch_rows=ROWS, seed=SEED, with_report=True)
    expected = root(X, bends(X, w))
    np.testing.assert_allclose(B, expected, atol=1e-6 * np.abs(expected).max())
    assert report.check().rounds == (2 if isinstance(data, CodedData) else 1)
    mean = data.curvature(w, loss="logistic", sketch_rows=ROWS, seed=SEED, reduction="mean")
    np.testing.assert_allclose(mean, B / np.sqrt(N), atol=1e-6 * np.abs(B).max())


@pytest.mark.parametrize("backend", ["local", "processes", "aws"])
def test_every_backend_gives_the_same_root(request, logistic, backend):
    X, y, w, _ = logistic
    expected = root(X, bends(X, w))
    running = request.getfixturevalue("running_aws").activated() if backend == "aws" else nullcontext()
    with running, sgc.Session(backend) as s:
        for code in ("polar", "frc"):
            data = s.encode(X, y, code=code, n_workers=4)
            B = data.curvature(w, loss="logistic", sketch_rows=ROWS, seed=SEED)
            np.testing.assert_allclose(B, expected, atol=1e-12)
            fit = sgc.minimize(data, w, method="sketched-newton", loss="logistic", l2=0.1, tolerance=1e-6)
            assert fit.success


@pytest.mark.parametrize("code", ["polar", "frc"])
def test_sparse_data_and_row_weights(session, logistic, code):
    X, y, w, _ = logistic
    X = np.where(np.abs(X) < 0.8, 0, X)
    weight = np.random.default_rng(0).random(N)
    data = session.encode(sp.csr_matrix(X), y, code=code, n_workers=6)
    B = data.curvature(w, loss="logistic", sample_weight=weight, sketch_rows=ROWS, seed=SEED)
    np.testing.assert_allclose(B, root(X, weight * bends(X, w)), atol=1e-10)


@pytest.mark.parametrize("code", ["mds", "frc"])
@pytest.mark.parametrize("loss", ["squared", "poisson", "huber", "squared_hinge"])
def test_other_losses(session, code, loss):
    X, y, w, _ = problem(loss, N, P)
    data = session.encode(X, y, code=code, n_workers=6)
    B = data.curvature(w, loss=loss, sketch_rows=N + 7)  # as many rows as there are: nothing is lost
    D = losses.get(loss).curvature(X @ w, y)
    assert B.shape == (N, P)
    np.testing.assert_allclose(B.T @ B, X.T @ (D[:, None] * X), atol=1e-10 * len(X))


def test_squares_of_single_rows(session, logistic):
    X, y, w, _ = logistic
    expected = ((X * (1 / (1 + np.exp(-X @ w)) - y)[:, None]) ** 2).sum(axis=0)
    parts, rows = (session.encode(X, y, code=code, n_workers=6) for code in ("frc", "mds"))
    options = {"kind": "sum_of_squares", "loss": "logistic"}
    np.testing.assert_allclose(parts.curvature(w, **options), expected)
    np.testing.assert_allclose(rows.curvature(w, sketch_rows=N, **options), expected)
    rough = np.mean([rows.curvature(w, sketch_rows=50, seed=(i,), **options) for i in range(20)], axis=0)
    np.testing.assert_allclose(rough, expected, rtol=6 * np.sqrt(2 / 50 / 20))


@pytest.mark.parametrize("code", ["frc", "cyclic", "ye-abbe", "coded-reduce", "lwpd"])
def test_squares_come_along_with_value_and_gradient(session, logistic, code):
    X, y, w, expected = logistic
    data = session.encode(X, y, code=code)
    options = {"loss": "logistic", "l2": 0.3, "reduction": "mean"}
    value, gradient, squares, report = data.value_and_gradient(w, with_squares=True, with_report=True, **options)
    plain = data.value_and_gradient(w, **options)
    np.testing.assert_allclose(value, plain[0])
    np.testing.assert_allclose(gradient, plain[1], rtol=1e-7)
    np.testing.assert_allclose(gradient, expected / N + 0.3 * w, rtol=1e-7)
    theirs = data.curvature(w, kind="sum_of_squares", loss="logistic", reduction="mean")
    np.testing.assert_allclose(squares, theirs, rtol=1e-7)
    assert report.rounds == 1


def test_the_predictions_of_the_last_gradient_are_used_again(session, logistic):
    X, y, w, _ = logistic
    data = session.encode(X, y, code="mds", n_workers=6)
    data.gradient(w, loss="logistic")
    _, report = data.curvature(w, loss="logistic", with_report=True)
    _, elsewhere = data.curvature(w + 1, loss="logistic", with_report=True)
    assert (report.rounds, elsewhere.rounds) == (1, 2)


def test_missing_partitions_are_taken_to_be_like_the_others(logistic):
    X, y, w, _ = logistic
    data_of = {"code": "ignore-stragglers", "n_workers": 10}
    with sgc.Session("simulated", seed=0) as s:
        data = s.encode(X, y, **data_of)
        options = {"loss": "logistic", "wait": 6, "on_undecodable": "approximate"}
        fisher, report = data.curvature(w, kind="fisher", with_report=True, **options)
        slots = sorted(span.slot for span in report.spans if span.fate == "used")
        B, second = data.curvature(w, sketch_rows=N, with_report=True, **options)
        theirs = sorted(span.slot for span in second.spans if span.fate == "used")
    bounds = [j * N // 10 for j in range(11)]

    def of(slots):
        H = np.zeros((P, P))
        for j in slots:
            part = X[bounds[j] : bounds[j + 1]]
            H += part.T @ (bends(part, w)[:, None] * part)
        return H * 10 / len(slots)

    assert report.error_per_partition == pytest.approx(1 - len(slots) / 10)
    assert 6 <= len(slots) < 10
    np.testing.assert_allclose(fisher, of(slots))
    np.testing.assert_allclose(B.T @ B, of(theirs))


def test_what_is_wrong_is_refused_before_anything_runs(session, logistic):
    X, y, w, _ = logistic
    parts, rows = (session.encode(X, y, code=code, n_workers=6) for code in ("frc", "mds"))
    assert isinstance(parts, GradientData)
    for data in (parts, rows):
        for options, message in (
            ({"kind": "odd"}, "kind must be one of hessian_root, fisher, sum_of_squares, got 'odd'"),
            ({"loss": "softmax"}, "'softmax' is no sum over the entries of X @ w: take method='lbfgs'"),
            ({"loss": np.dot}, "a function of one's own is not known"),
            ({"sketch_rows": 0}, "sketch_rows must be an integer of at least 1"),
            ({"reduction": "max"}, "reduction must be 'sum' or 'mean'"),
        ):
            with pytest.raises(InputError, match=message):
                data.curvature(w, **options)
        with pytest.raises(InputError, match=r"real weights of shape \(5,\), got float64 \(5, 2\)"):
            data.curvature(np.zeros((5, 2)))
    with pytest.raises(InputError, match="the full Fisher matrix needs a gradient code"):
        rows.curvature(w, kind="fisher")
    with pytest.raises(InputError, match="without y"):
        session.encode(X, code="frc", n_workers=6).curvature(w)
    with pytest.raises(InputError, match="real data"):
        session.encode(X + 1j, y, code="frc", n_workers=6).curvature(w)
    with pytest.raises(InputError, match="real data"):
        session.encode(X + 1j, y, code="mds", n_workers=6).curvature(w)
