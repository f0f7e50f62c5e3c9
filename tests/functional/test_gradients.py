"""Coded gradients equal NumPy's: every code, loss, shape, layout and dtype, with and without stragglers."""

import numpy as np
import pytest
import scipy.sparse as sp
from gradient_cases import CODES, LOSSES, close, layouts, problem, size

import serverless_gc as sgc


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as session:
        yield session


@pytest.fixture(scope="module")
def simulated():
    with sgc.Session("simulated", inject=sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=3)) as session:
        yield session


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize("n", [4, 6, 7, 40])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("code", "params"), CODES, ids=str)
def test_equals_numpy(code, params, loss, n, backend, request):
    session = request.getfixturevalue(backend)
    X, y, w, expected = problem(loss, n)
    g = sgc.coded_gradient(X, y, w, code=code, loss=loss, session=session, **size(code), **params)
    close(g, expected)


@pytest.mark.parametrize(("code", "params"), CODES, ids=str)
def test_with_stragglers_and_counts(code, params):
    X, y, w, expected = problem("logistic", 50)
    with sgc.Session(inject=sgc.inject.Stragglers(fraction=0.25, slowdown=10, seed=1, base=0.002)) as s:
        data = s.encode(X, y, code=code, **size(code), **params)
        for _ in range(3):
            g, report = data.gradient(w, loss="logistic", with_report=True)
            close(g, expected)
            assert report.issued == report.used + report.surplus + report.failed + report.voided
            assert report.issued >= 2 * data.code.n_workers


@pytest.mark.parametrize("code", ["uncoded", "replication", "mds", "polar"])
@pytest.mark.parametrize("X", [pytest.param(X, id=name) for name, X in layouts()])
@pytest.mark.filterwarnings("ignore::serverless_gc.encode.SparseFillWarning")
def test_layouts_and_dtypes(local, X, code):
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    dense = dense.astype(complex if dense.dtype.kind == "c" else float)
    y = np.linspace(-1, 1, 30)
    w = np.linspace(1, 2, 6)
    g = sgc.coded_gradient(X, y, w, code=code, session=local, allow_fill=True, **size(code))
    close(g, dense.conj().T @ (dense @ w - y))
    close(sgc.coded_matvec(X, w, code=code, session=local, allow_fill=True, **size(code)), dense @ w)


def test_memmap_and_frame(local, tmp_path):
    import pandas as pd

    X, y, w, expected = problem("squared", 33)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    close(sgc.coded_gradient(mapped, y, w, session=local), expected)
    frame = pd.DataFrame(X, columns=list("abcde"))
    close(sgc.coded_gradient(frame, pd.Series(y), w, session=local), expected)


def test_multi_output_weights_l2_and_mean(local):
    rng = np.random.default_rng(1)
    X, y, w = rng.standard_normal((21, 4)), rng.standard_normal((21, 3)), rng.standard_normal((4, 3))
    s = rng.random(21)
    value, g = local.encode(X, y, code="mds", n_workers=8, k=5).value_and_gradient(
        w, sample_weight=s, l2=0.3, reduction="mean"
    )
    r = X @ w - y
    close(g, X.T @ (s[:, None] * r) / 21 + 0.3 * w)
    assert value == pytest.approx(0.5 * (s[:, None] * r**2).sum() / 21 + 0.15 * (w**2).sum(), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_derivative_of_the_value(local, loss):
    X, y, w, _ = problem(loss, 30)
    data = local.encode(X, y, code="polar", n_workers=8, k=6)
    value, g = data.value_and_gradient(w, loss=loss, l2=0.1)
    direction = np.random.default_rng(2).standard_normal(w.shape)
    h = 1e-5
    up, _ = data.value_and_gradient(w + h * direction, loss=loss, l2=0.1)
    down, _ = data.value_and_gradient(w - h * direction, loss=loss, l2=0.1)
    assert (up - down) / (2 * h) == pytest.approx(float((g * direction).sum()), rel=1e-6, abs=1e-6)
    assert value == pytest.approx((up + down) / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": np.ones(4)}, "w must have shape"),
        ({"w": np.array([1, np.nan, 1, 1, 1.0])}, "NaN or Inf, first at index 1"),
        ({"y": np.ones(9)}, "y must have shape"),
        ({"y": np.full(10, np.inf)}, "first in row 0"),
        ({"y": np.full(10, 2.0), "loss": "logistic"}, "label"),
        ({"y": np.full(10, -1.0), "loss": "poisson"}, "poisson"),
        ({"loss": "cubic"}, "cubic"),
        ({"reduction": "median"}, "reduction"),
        ({"l2": -1.0}, "l2"),
        ({"sample_weight": np.full(10, -1.0)}, "sample_weight"),
        ({"code": "pollar"}, "polar"),
        ({"code": "mds", "k": 99, "n_workers": 8}, "k"),
        ({"deadline": -1.0}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"loss": print}, "loss must be one of huber"),
        ({"n_workers": 2.5}, "n_workers"),
        ({"backend": "cloud"}, "local"),
        ({"X": np.ones(10)}, "X"),
        ({"X": np.full((10, 5), np.nan)}, "row 0"),
        ({"X": np.full((10, 5), "a")}, "X"),
    ],
)
def test_bad_input_is_named_before_anything_runs(change, words):
    X, y, w, _ = problem("squared", 10)
    arguments = {"X": X, "y": y, "w": w, "code": "polar", **change}
    with pytest.raises(sgc.InputError, match=words):
        sgc.coded_gradient(**arguments)


@pytest.mark.parametrize(
    ("option", "value"),
    [("inject", 3), ("store", 3), ("invoker", 3), ("delay", 3), ("policy", 3), ("deadline", -1), ("max_attempts", 0)],
)
def test_bad_session_options_are_named(option, value):
    backend = "simulated" if option == "delay" else "local"
    with pytest.raises(sgc.InputError, match=option):
        sgc.Session(backend, **{option: value})


@pytest.mark.parametrize("code", ["mds", "polar", "replication"])
def test_blocks_in_single_precision(code):
    """Half the bytes; surplus results disagree by the blocks' rounding and are believed, the certificate says so."""
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((2000, 12)), rng.standard_normal(12)
    with sgc.Session(policy=lambda c: sgc.UntilDecodable(c, margin=2)) as s:
        for seed in range(5):
            params = {"seed": seed} if code == "mds" else {}
            data = s.encode(
                X + seed, code=code, n_workers=24, k=12 if code == "replication" else 16, dtype=np.float32, **params
            )
            z, report = data.matvec(w, with_report=True)
            expected = (X + seed) @ w
            error = np.linalg.norm(z - expected) / np.linalg.norm(expected)
            assert error < 1e-5
            certificate = report.certificate
            assert certificate.method in {"systematic", "copy"} or certificate.predicted_error > 1e-8


def test_tolerance_is_held():
    X, w = np.random.default_rng(4).standard_normal((500, 12)), np.ones(12)
    lost = sgc.inject.Faults(fail=[0, 1, 2], fail_times=99)  # what may still come would be waited for
    for dtype, tolerance, words in [(np.float64, 1e-17, "relative error"), (np.float32, 1e-9, "single precision")]:
        with sgc.Session(tolerance=tolerance, inject=lost) as s:
            data = s.encode(X, code="mds", n_workers=16, k=12, dtype=dtype)
            with pytest.raises(sgc.DecodeError, match=words):
                data.matvec(w)


def test_a_non_finite_result_counts_as_not_arrived():
    X, y, w, expected = problem("squared", 60)
    with sgc.Session(inject=sgc.inject.Faults(non_finite=[3])) as s:
        data = s.encode(X, y, code="mds", n_workers=8, k=6)
        g, report = data.gradient(w, with_report=True)
        close(g, expected)
        assert report.failures["bad-reply"] > 0
        assert report.balanced
        with pytest.raises(sgc.NotDecodableError, match="NaN or Inf"):
            s.encode(X, y, code="uncoded", n_workers=8).gradient(w)


def test_a_tolerance_waits_for_more_results_before_it_refuses():
    X, w = np.random.default_rng(4).standard_normal((500, 12)), np.ones(12)
    law = sgc.stragglers.Exponential(1.0)
    awaited = {}
    for tolerance in (None, 1e-13):
        with sgc.Session("simulated", delay=law, seed=5, tolerance=tolerance) as s:
            data = s.encode(X, code="lagrange", n_workers=24, k=10)
            reports = [data.matvec(w, with_report=True)[1] for _ in range(12)]
        awaited[tolerance] = [r.awaited for r in reports]
        assert all(r.certificate.predicted_error <= (tolerance or 1) for r in reports)
    assert min(awaited[None]) == 10
    assert sum(awaited[1e-13]) > sum(awaited[None])
    assert max(awaited[1e-13]) <= 12
