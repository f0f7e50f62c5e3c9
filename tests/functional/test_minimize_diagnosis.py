"""Trainings on laws that are known: the fit says what their delays advise, and lends its record to planning."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.fitting.delays import Delays
from serverless_gc.observe import Report, Span
from serverless_gc.policies import KAsync, WaitAll
from serverless_gc.stragglers import (
    Exponential,
    GilbertElliott,
    Pareto,
    PerSlot,
    ShiftedExponential,
    Trace,
    Weibull,
)

LAWS = {
    "shifted exponential": (ShiftedExponential(1.0, 1.0), {"let finish"}),
    "weibull 2": (Weibull(1.0, 2.0), {"let finish"}),
    "weibull 0.6": (Weibull(1.0, 0.6), {"copy"}),
    "pareto": (Pareto(1.0, 1.5), {"copy", "let finish"}),  # by how far into the tail was seen
    "exponential": (Exponential(1.0), {"nothing"}),
    "slow slots": (PerSlot(Exponential(1.0), (1.0,) * 9 + (8.0,) * 3), {"do without"}),
}
WAITS = {"wait for all": lambda _: WaitAll(), "decodable": None, "stale": KAsync(8)}


def fitted(delay, policy, rounds=60, code=None, seed=0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    if code is None:
        code = {"code": "frc"} if isinstance(policy, KAsync) else {"code": "mds", "k": 9}
    with sgc.Session("simulated", delay=delay, seed=seed) as session:
        data = session.encode(X, X @ np.ones(4), n_workers=12, **code)
        return sgc.minimize(
            data,
            np.zeros(4),
            method="gradient-descent",
            lr=1e-3,
            policy=policy,
            max_rounds=rounds,
            tolerance=0.0,
            deadline=1e5,
        )


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("name", LAWS)
def test_the_fit_advises_what_the_law_asks_for(name, wait):
    law, advice = LAWS[name]
    fit = fitted(law, WAITS[wait])
    found = fit.diagnosis
    assert found.advice in advice
    assert f"  delays   {found}" in fit.summary().splitlines()
    assert found.leftover == ("keep" if wait == "stale" else "cancel")
    assert (found.given_up > 0) == (wait != "wait for all")


@pytest.mark.parametrize("wait", ["wait for all", "decodable"])
def test_slots_that_are_slow_for_some_rounds(wait):
    # Under stale gradients a slow task outlasts many rounds: by its end the state of its slot is another one.
    model = GilbertElliott(Exponential(10.0), Exponential(1.0), p=0.05, r=0.2)
    fit = fitted(model, WAITS[wait])
    assert fit.diagnosis.advice == "do without"
    assert fit.diagnosis.slots.again > 0.4


def test_rounds_of_a_gradient_are_of_several_kinds():
    fit = fitted(Exponential(1.0), None, rounds=5)
    # Two gradients in two rounds; then one has the Gram matrix and a product besides, the others the former only.
    assert fit.trace.about["kinds"] == [0, 1, 0, 1, 2, 3, 4, 4]
    assert len(fit.trace.rows) == 12 * 8
    one = fitted(Exponential(1.0), None, rounds=5, code={"code": "frc"})
    assert set(one.trace.about["kinds"]) == {0}


def test_few_tasks_are_met_with_silence():
    fit = fitted(Weibull(1.0, 0.6), None, rounds=1)
    assert fit.diagnosis is None
    assert "  delays" not in fit.summary()


def test_the_record_serves_a_plan(tmp_path):
    fit = fitted(ShiftedExponential(1.0, 1.0), None)
    fit.trace.save(tmp_path / "delays.csv")
    again = Trace.load(tmp_path / "delays.csv")
    assert again.about == fit.trace.about
    advice = sgc.recommend(2400, 40, n_workers=12, measured_workers=12, delay=fit.trace, codes=["mds", "uncoded"])
    assert advice.best.mean > 1.0  # a task takes a second at least


def test_only_the_newest_rounds_are_remembered():
    delays = Delays("cancel")
    assert delays.trace() is None
    for number in range(100):
        spans = tuple(Span(slot, 0, number, float(number), number + 1.0, compute=1.0) for slot in range(100))
        delays.add(Report(spans=spans))
    rows = delays.trace().rows
    assert 4096 <= len(rows) < 4096 + 100
    assert rows[:, 0].max() == len(rows) / 100 - 1
