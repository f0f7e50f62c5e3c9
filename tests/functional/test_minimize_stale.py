"""Stale gradients on real threads, in bad weather: failures, large models, and what is left behind."""

import asyncio

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import DeadlineExceeded, NotDecodableError
from serverless_gc.store import MemoryStore

N, P = 64, 6000  # a model of 48 kB travels by reference


def problem():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, P))
    return X, X @ (rng.standard_normal(P) / 100)


def keys_of(store):
    async def listed():
        return [info.key async for info in store.list("")]

    return asyncio.run(listed())


def test_failed_and_slow_workers_do_not_stop_a_run_and_nothing_piles_up():
    store = MemoryStore()
    X, y = problem()
    faults = [
        sgc.inject.Faults(fail=0.1, lose_reply=0.1, non_finite=0.05, seed=2),
        sgc.inject.Stragglers(fraction=0.1, slowdown=20, base=0.002),
    ]
    with sgc.Session("local", inject=faults, store=store) as s:
        data = s.encode(X, y, code="frc", n_workers=8)
        fit = sgc.minimize(
            data, np.zeros(P), method="gradient-descent", lr=5e-5, policy=sgc.KBatchAsync(4), max_rounds=60, tolerance=0
        )
        left = [key for key in keys_of(store) if "/round/" in key]
        report = fit.report.check()
    assert fit.values[-1] < 0.2 * fit.values[0]
    assert fit.account.updates == 60
    assert report.failures["bad-reply"] > 0
    assert report.failures["function"] > 0
    assert fit.account.staleness[1] > 0
    # Only what the last rounds and the latest workers wrote may still be there, and it goes with the session.
    assert len(left) < 100
    assert keys_of(store) == []


def test_a_loss_that_always_fails_ends_the_run():
    def loss(_X, _y, w):
        raise ValueError(f"no gradient of {w.shape}")

    X, y = problem()
    with sgc.Session("local") as s:
        data = s.encode(X, y, code="frc", n_workers=4)
        with pytest.raises(NotDecodableError, match="no gradient of"):
            sgc.minimize(data, np.zeros(P), loss=loss, method="adam", policy=sgc.KAsync(2))


def test_a_run_that_gets_nothing_meets_the_deadline():
    X, y = problem()
    with sgc.Session("simulated", inject=sgc.inject.Stragglers(fraction=1.0, slowdown=1e6)) as s:
        data = s.encode(X, y, code="frc", n_workers=4)
        with pytest.raises(DeadlineExceeded, match="update 0 was given up"):
            sgc.minimize(data, np.zeros(P), method="adam", policy=sgc.KAsync(2), deadline=5.0)


def test_results_of_processes_are_consumed_as_well():
    X, y = problem()
    with sgc.Session("processes") as s:
        data = s.encode(X[:, :20], y, code="frc", n_workers=4)
        fit = sgc.minimize(data, np.zeros(20), method="adam", lr=0.01, policy=sgc.KAsync(2), max_rounds=8)
    assert fit.steps == 8
    assert np.isfinite(fit.value)
