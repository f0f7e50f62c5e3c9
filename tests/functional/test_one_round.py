"""Least-squares gradients in one round: equal to two rounds, chosen as the table says, and said in the report."""

import numpy as np
import pytest

import serverless_gc as sgc

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 12)), RNG.normal(size=300)
W = RNG.normal(size=12)
SLOW = sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=2, base=0.002)


def gradient(w, X=X, y=Y):
    return X.conj().T @ (X @ w - y)


@pytest.mark.parametrize("code", ["polar", "mds", "ldpc", "product", "replication"])
@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_the_gram_matrix_gives_the_same_gradient_and_value(code, backend):
    with sgc.Session(backend, inject=SLOW) as s:
        data = s.encode(X, Y, code=code)
        value, g, report = data.value_and_gradient(W, strategy="gram", l2=0.5, reduction="mean", with_report=True)
        again, second = data.gradient(2 * W, strategy="gram", with_report=True)
    np.testing.assert_allclose(g, gradient(W) / 300 + 0.5 * W, rtol=1e-9, atol=1e-11)
    assert value == pytest.approx(0.5 * np.sum((X @ W - Y) ** 2) / 300 + 0.25 * W @ W, rel=1e-10)
    np.testing.assert_allclose(again, gradient(2 * W), rtol=1e-9, atol=1e-9)
    assert (report.rounds, second.rounds) == (2, 1)  # the first one computes X.T y, once
    assert report.strategy == "one round with the Gram matrix: asked for"
    assert report.balanced


def test_auto_takes_the_gram_matrix_for_the_third_gradient_of_the_same_data():
    said = []
    with sgc.Session() as s:
        data = s.encode(X, Y, code="mds")
        for i in range(5):
            g, report = data.gradient(W * i, with_report=True)
            np.testing.assert_allclose(g, gradient(W * i), rtol=1e-9, atol=1e-9)
            said.append((report.rounds, report.strategy.partition(":")[0]))
        _, report = data.gradient(W, loss="huber", with_report=True)
    two, gram = "two rounds", "one round with the Gram matrix"
    assert said == [(2, two), (2, two), (2, gram), (1, gram), (1, gram)]
    assert "serves the squared loss only" in report.strategy
    assert report.rounds == 2
    assert "  strategy two rounds: one round serves" in str(report)


def test_calls_without_a_session_count_together():
    rng = np.random.default_rng(9)
    A, b, w = rng.normal(size=(200, 5)), rng.normal(size=200), rng.normal(size=5)
    rounds = [sgc.coded_gradient(A, b, w, code="mds", with_report=True)[1].rounds for _ in range(4)]
    assert rounds == [2, 2, 2, 1]


def test_auto_keeps_two_rounds_where_the_gram_matrix_would_cost_accuracy_or_more_work():
    bad = X * np.geomspace(1, 1e6, 12)
    with sgc.Session() as s:
        for A, words in [(bad, "condition number of X is"), (X[:60], "costs more than it saves")]:
            data = s.encode(A, Y[: len(A)], code="mds")
            for _ in range(3):
                _, report = data.gradient(W, with_report=True)
            assert words in report.strategy
            assert report.rounds == 2


def test_auto_is_accurate_in_single_precision_near_the_optimum():
    rng = np.random.default_rng(5)
    u, v = np.linalg.qr(rng.normal(size=(600, 12)))[0], np.linalg.qr(rng.normal(size=(12, 12)))[0]
    A = ((u * np.geomspace(1.0, 1e-3, 12)) @ v).astype(np.float32)  # fine for the Gram matrix in double precision
    wide = A.astype(float)
    best = rng.normal(size=12)
    b, near = wide @ best, best + 1e-3 * rng.normal(size=12)
    left = {}
    with sgc.Session("simulated", seed=1) as s:  # who arrives, and so the error, is always the same
        data = s.encode(A, b, code="mds", dtype=np.float32)
        for strategy, rounds in [("auto", "two rounds"), ("gram", "one round")]:
            for _ in range(3):
                g, report = data.gradient(near, strategy=strategy, with_report=True)
            assert report.strategy.startswith(rounds)
            newton = near - np.linalg.solve(wide.T @ wide, g)  # the errors of the gradient in terms of the solution
            left[strategy] = np.linalg.norm(newton - best) / np.linalg.norm(best)
    assert left["auto"] < 1e-4
    assert left["gram"] > 10 * left["auto"]


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_polynomial_regression_takes_one_round_from_the_first_gradient_on(backend):
    with sgc.Session(backend, inject=SLOW) as s:
        data = s.encode(X, Y, code="pcr", n_workers=14, k=4)
        value, g, report = data.value_and_gradient(W, with_report=True)
        _, g_two, two = (*data.value_and_gradient(W, strategy="two-round"), None)
        _, second = data.gradient(W, with_report=True)
    np.testing.assert_allclose(g, gradient(W), rtol=1e-8)
    np.testing.assert_allclose(g_two, gradient(W), rtol=1e-9)
    assert value == pytest.approx(0.5 * np.sum((X @ W - Y) ** 2), rel=1e-9)
    assert second.rounds == 1
    assert 7 <= second.awaited <= 14
    assert report.strategy.startswith("one round of polynomials")
    assert two is None


def test_several_outputs_and_complex_data():
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(80, 6)) + 1j * rng.normal(size=(80, 6))
    T = rng.normal(size=(80, 2))
    V = rng.normal(size=(6, 2))
    with sgc.Session() as s:
        np.testing.assert_allclose(
            s.encode(X[:80, :6], T, code="mds").gradient(V, strategy="gram"),
            X[:80, :6].T @ (X[:80, :6] @ V - T),
            rtol=1e-9,
        )
        for code, strategy in [("mds", "gram"), ("pcr", "polynomial"), ("mds", "two-round")]:
            data = s.encode(Z, T, code=code, k=4, n_workers=12)
            np.testing.assert_allclose(data.gradient(V, strategy=strategy), gradient(V, Z, T), rtol=1e-7)


def test_an_ldpc_code_may_leave_out_what_it_cannot_know_in_time():
    lost = sgc.inject.Faults(drop=[0, 1, 2, 3, 4])
    with sgc.Session(inject=lost) as s:
        data = s.encode(X, Y, code="ldpc", n_workers=12, k=8)
        with pytest.raises(sgc.DeadlineExceeded):
            data.gradient(W, strategy="gram", deadline=1.0)
    with sgc.Session(
        "simulated",
        delay=sgc.stragglers.Constant(1.0),
        inject=sgc.inject.Stragglers(fraction=[0, 1, 2, 3, 4], slowdown=100),
    ) as s:
        data = s.encode(X, Y, code="ldpc", n_workers=12, k=8)
        data.gradient(W, strategy="gram")  # X.T y waits for everybody
        g, report = data.gradient(W, strategy="gram", on_undecodable="approximate", deadline=5.0, with_report=True)
    exact = gradient(W)
    known = g != 0
    assert 0 < known.sum() < 12
    np.testing.assert_allclose(g[known], exact[known], rtol=1e-8)
    assert any("blocks stayed unknown" in note for note in report.notes)
    assert 0 < report.certificate.error < 8


def test_what_does_not_apply_is_refused():
    with sgc.Session() as s:
        data = s.encode(X, Y, code="mds")
        for options, words in [
            ({"strategy": "fast"}, "strategy must be one of"),
            ({"strategy": "gram", "loss": "huber"}, "squared loss only"),
            ({"strategy": "gram", "sample_weight": np.ones(300)}, "weights"),
            ({"strategy": "polynomial"}, "code='pcr'"),
            ({"on_undecodable": "approximate"}, "code='ldpc'"),
            ({"strategy": "gram", "on_undecodable": "approximate"}, "code='ldpc'"),
        ]:
            with pytest.raises(sgc.InputError, match=words):
                data.gradient(W, **options)
        mutable = X + 1
        data = s.encode(mutable, Y, code="mds")
        mutable[0, 0] += 1
        with pytest.raises(sgc.InputError, match="changed in place"):
            data.gradient(W, strategy="gram")
        for _ in range(3):
            g, report = data.gradient(W, with_report=True)
        np.testing.assert_allclose(g, gradient(W, X + 1), rtol=1e-9)
        assert "changed in place" in report.strategy
    with pytest.raises(sgc.InputError, match="strategy= does not go with"):
        sgc.coded_gradient(X, Y, W, code="frc", strategy="gram")


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_multi_message_lagrange_coding_uses_what_slow_workers_have_done(backend):
    if backend == "simulated":
        session = sgc.Session(backend, delay=sgc.stragglers.ShiftedExponential(shift=0.1, rate=1.0), seed=3)
    else:
        session = sgc.Session(inject=sgc.inject.Stragglers(fraction=0.5, slowdown=30, seed=2, base=0.01))
    with session as s:
        data = s.encode(X, Y, code="lcc-mmc", n_workers=8, k=5, r=3)
        value, g, report = data.value_and_gradient(W, l2=0.5, reduction="mean", with_report=True)
    np.testing.assert_allclose(g, gradient(W) / 300 + 0.5 * W, rtol=1e-7)
    assert value == pytest.approx(0.5 * np.sum((X @ W - Y) ** 2) / 300 + 0.25 * W @ W, rel=1e-8)
    assert report.rounds == 1
    assert report.balanced
    g = sgc.coded_gradient(X, Y, W, code="lcc-mmc", n_workers=8, k=5)
    np.testing.assert_allclose(g, gradient(W), rtol=1e-7)
    for options, words in [({"loss": "huber"}, "squared loss only"), ({"wait": 3}, "wait= does not go with")]:
        with pytest.raises(sgc.InputError, match=words):
            sgc.coded_gradient(X, Y, W, code="lcc-mmc", **options)
    with pytest.raises(sgc.InputError, match="gradient code, which gives gradients"):
        sgc.coded_matvec(X, W, code="lcc-mmc")
