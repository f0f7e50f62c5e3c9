"""Lagrange, PCR and Berrut codes under the products and gradients of a session."""

import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc

SLOW = sgc.inject.Stragglers(fraction=0.2, slowdown=4, seed=2, base=0.005)


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize(("code", "sizes"), [("lagrange", {"n_workers": 8, "k": 5}), ("pcr", {"n_workers": 9, "k": 4})])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_gradients_equal_numpy(backend, code, sizes, loss):
    X, y, w, expected = problem(loss, 37)
    with sgc.Session(backend, inject=SLOW) as s:
        g, report = s.encode(X, y, code=code, **sizes).gradient(w, loss=loss, with_report=True)
    close(g, expected)
    assert report.balanced
    assert report.code == code


def test_the_guard_waits_for_accuracy():
    A, x = np.random.default_rng(0).normal(size=(20, 3)), np.ones(3)
    waited = []
    with sgc.Session("simulated", delay=sgc.stragglers.Exponential(1.0)) as s:
        data = s.encode(A, code="lagrange", n_workers=60, k=10)
        for _ in range(20):
            z, report = data.matvec(x, with_report=True)
            close(z, A @ x)
            waited.append(report.used - 10)
            assert report.certificate.predicted_error <= 1e-11 or waited[-1] == 2
    assert 0 in waited
    assert max(waited) > 0


def test_berrut_answers_approximately_from_three_quarters():
    A, x = np.random.default_rng(1).normal(size=(40, 6)), np.ones(6)
    with sgc.Session("simulated", delay=sgc.stragglers.Exponential(1.0)) as s:
        z, report = s.encode(A, code="berrut", n_workers=60, k=4).matvec(x, with_report=True)
    error = np.linalg.norm(z - A @ x) / np.linalg.norm(A @ x)
    assert 1e-6 < error < 0.2
    assert report.used == 45
    assert any("an approximation" in note for note in report.notes)
