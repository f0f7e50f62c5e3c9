"""Encoded optimization through the runtime: nobody in particular is waited for, and fits are as good as promised."""

import asyncio

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.store.memory import MemoryStore

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 10)) * np.geomspace(1, 4, 10)
TRUTH = RNG.normal(size=10)
Y = X @ TRUTH + RNG.normal(size=240)
BEST = np.linalg.lstsq(X, Y, rcond=None)[0]
LOST = sgc.inject.Faults(drop=[1, 5, 11])


async def keys(store):
    return [info.key async for info in store.list()]


def loss(w):
    return 0.5 * np.sum((X @ w - Y) ** 2)


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize("method", ["lbfgs", "gradient", "proximal"])
def test_fits_end_near_the_least_loss_although_workers_never_answer(backend, method):
    store = MemoryStore()
    delay = {"delay": sgc.stragglers.Exponential(1.0)} if backend == "simulated" else {"inject": LOST}
    with sgc.Session(backend, store=store, **delay) as s:
        fit = sgc.encoded_least_squares(X, Y, method=method, rounds=40, n_workers=16, wait=13, session=s)
    assert loss(BEST) <= loss(fit.w) < 1.05 * loss(BEST)
    assert len(fit.path) == 40
    assert fit.report.balanced
    assert fit.report.rounds == (80 if method == "lbfgs" else 40)
    assert not asyncio.run(keys(store))


def test_a_gradient_is_exact_if_all_answer_and_near_if_some_do():
    w = RNG.normal(size=10)
    exact = X.T @ (X @ w - Y)
    with sgc.Session() as s:
        data = s.encode(X, Y, code="encoded", n_workers=8)
        value, g, report = data.value_and_gradient(w, wait=8, l2=0.1, reduction="mean", with_report=True)
        near, report_near = data.gradient(w, wait=6, with_report=True)
    np.testing.assert_allclose(g, exact / 240 + 0.1 * w, rtol=1e-9)
    assert value == pytest.approx(loss(w) / 240 + 0.05 * w @ w)
    assert report.used == 8
    assert np.linalg.norm(near - exact) < 0.3 * np.linalg.norm(exact)
    assert report_near.used == 6
    g = sgc.coded_gradient(X, Y, w, code="encoded", n_workers=8, wait=8)
    np.testing.assert_allclose(g, exact, rtol=1e-9)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_coordinate_descent_is_exact_whoever_straggles(name):
    y = Y if name == "squared" else (Y > 0).astype(float)
    Z = X / np.linalg.norm(X, 2)
    with sgc.Session("simulated", delay=sgc.stragglers.Exponential(1.0), seed=4) as s:
        fit = sgc.encoded_least_squares(
            Z, y, method="coordinate", loss=name, rounds=150, n_workers=8, wait=6, session=s
        )
    slope = Z @ fit.w - y if name == "squared" else 1 / (1 + np.exp(-(Z @ fit.w))) - y
    first = Z.T @ (-y if name == "squared" else 0.5 - y)
    assert np.linalg.norm(Z.T @ slope) < 0.05 * np.linalg.norm(first)
    values = [np.linalg.norm(Z.T @ (Z @ w - y)) for w in fit.path] if name == "squared" else []
    assert values == sorted(values, reverse=True)


def test_the_lasso_is_sparse():
    y = X[:, 3] * 2 + 0.1 * RNG.normal(size=240)
    with sgc.Session() as s:
        fit = sgc.encoded_least_squares(X, y, method="proximal", l1=60.0, rounds=80, n_workers=8, wait=8, session=s)
    assert np.flatnonzero(np.abs(fit.w) > 1e-9).tolist() == [3]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "newton"}, "method must be"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"l1": 1.0}, "l1 goes with method='proximal'"),
        ({"l2": -1.0}, "l2 must be a finite number"),
        ({"loss": "logistic"}, "needs method='coordinate'"),
        ({"method": "coordinate", "l2": 1.0}, "l2 does not go with"),
        ({"frame": "fourier"}, "frame must be one of"),
        ({"wait": 17}, "wait must be an integer in 1..16"),
        ({"beta": 0.5}, "beta must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_stored(options, match):
    store = MemoryStore()
    with sgc.Session(store=store) as s, pytest.raises(sgc.InputError, match=match.replace(".", r"\.")):
        sgc.encoded_least_squares(X, Y, session=s, **options)
    assert not asyncio.run(keys(store))


def test_options_of_other_codes_are_refused():
    with sgc.Session() as s:
        for options, match in [
            ({"loss": "huber"}, "squared loss only"),
            ({"sample_weight": np.ones(240)}, "sample_weight= does not go"),
            ({"strategy": "gram"}, "strategy= does not go"),
            ({"max_error": 0.1}, "max_error= does not go"),
        ]:
            with pytest.raises(sgc.InputError, match=match):
                sgc.coded_gradient(X, Y, TRUTH, code="encoded", session=s, **options)
        with pytest.raises(sgc.InputError, match="encoded without y"):
            s.encode(X, code="encoded").gradient(TRUTH)
        with pytest.raises(sgc.InputError, match="gradient code, which gives gradients"):
            sgc.coded_matvec(X, TRUTH, code="encoded", session=s)
