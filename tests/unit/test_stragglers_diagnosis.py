"""What delays say about waiting, against what the laws say themselves; and silence where there is no evidence."""

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.stragglers import (
    Constant,
    Exponential,
    GilbertElliott,
    HyperExponential,
    Pareto,
    PerSlot,
    ShiftedExponential,
    Trace,
    Weibull,
    diagnose,
    hazard,
    persistence,
)

LAWS = {
    "shifted exponential": (ShiftedExponential(1.0, 1.0), "rising"),
    "weibull 2": (Weibull(1.0, 2.0), "rising"),
    "weibull 0.6": (Weibull(1.0, 0.6), "falling"),
    "hyper-exponential": (HyperExponential([0.2, 8.2], [0.9, 0.1]), "falling"),
    "pareto": (Pareto(1.0, 1.5), None),  # nothing finishes before 1, and the tail is heavy: it depends on the age
}


def rounds_of(law, n, k, rounds, seed):
    """Draw rounds that close after ``k`` of ``n``: what finished, and at which age the others were given up."""
    drawn = np.sort(law.draws(np.random.default_rng(seed), (rounds, n)), axis=1)
    return drawn[:, :k].ravel(), np.repeat(drawn[:, k - 1], n - k)


def longer_to_go(law, age, horizon):
    """By how much longer an old task runs on, within the horizon, than a fresh one: from the law itself."""
    old, fresh = np.linspace(age, horizon, 20001), np.linspace(0.0, horizon - age, 20001)
    left = np.trapezoid(law.survival(old), old) / float(law.survival(np.array([age]))[0])
    return left - np.trapezoid(law.survival(fresh), fresh)


@pytest.mark.parametrize(("n", "k", "rounds"), [(16, 16, 60), (16, 12, 60), (8, 6, 80)])
@pytest.mark.parametrize("name", LAWS)
def test_what_is_claimed_is_true_of_the_law(name, n, k, rounds):
    law, trend = LAWS[name]
    for seed in range(4):
        found = hazard(*rounds_of(law, n, k, rounds, seed))
        assert trend is None or found.trend in {trend, "flat"}
        if found.trend != "flat":
            assert (longer_to_go(law, found.ages[found.decisive], found.horizon) > 0) == (found.trend == "falling")


@pytest.mark.parametrize(("name", "k"), [("shifted exponential", 12), ("weibull 2", 12), ("weibull 0.6", 8)])
def test_with_many_tasks_it_is_certain_whatever_was_given_up(name, k):
    law, trend = LAWS[name]
    assert {hazard(*rounds_of(law, 16, k, 100, seed)).trend for seed in range(4)} == {trend}
    assert hazard(*rounds_of(law, 16, 16, 100, 0)).trend == trend


@pytest.mark.parametrize("k", [16, 12, 8])
def test_a_law_without_memory_is_hardly_ever_accused_of_one(k):
    found = [hazard(*rounds_of(Exponential(1.0), 16, k, 40, seed), resamples=60).trend for seed in range(40)]
    assert found.count("flat") >= 37


def test_the_far_tail_of_a_pareto_law_is_seen_once_it_is_there():
    assert hazard(*rounds_of(Pareto(1.0, 1.5), 16, 16, 150, 1)).trend == "falling"
    assert hazard(*rounds_of(Pareto(1.0, 1.5), 16, 12, 150, 1)).trend == "rising"  # below 2.5 s, all that was seen


def test_too_little_to_compare_is_said():
    with pytest.raises(InputError, match="too few tasks finished after half the median"):
        hazard(np.full(40, 0.1), np.full(400, 1.0))
    assert hazard(np.ones(200)).trend == "flat"


def recorded(model, n=12, k=None, rounds=80, seed=0, **about):
    """Record rounds of a model, given up when ``k`` have finished."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(rounds):
        times = [model.sample(slot, number, 1.0, rng).total for slot in range(n)]
        end = sorted(times)[(k or n) - 1]
        rows += [(number, slot, 0, t <= end, 0.0, 0.0, min(t, end), 0.0) for slot, t in enumerate(times)]
    return Trace(np.array(rows, dtype=float), about)


STAYING = {
    "gilbert-elliott": GilbertElliott(Exponential(10.0), Exponential(1.0), p=0.05, r=0.2),
    "fixed": PerSlot(ShiftedExponential(1.0, 1.0), (1.0,) * 9 + (4.0,) * 3),
}


@pytest.mark.parametrize("k", [12, 9])
@pytest.mark.parametrize("name", STAYING)
def test_slots_that_stay_slow_are_found(name, k):
    found = diagnose(recorded(STAYING[name], k=k))
    assert found.persistent
    assert found.advice == "do without"
    assert found.slots.again > found.slots.chance + 0.2
    assert "slow slots stay slow" in str(found)


@pytest.mark.parametrize("model", [Exponential(1.0), Weibull(1.0, 0.6), Pareto(1.0, 1.5), LAWS["weibull 2"][0]])
def test_independent_rounds_are_not_taken_for_slots_that_stay_slow(model):
    found = [persistence(recorded(model, k=9, seed=seed)) for seed in range(8)]
    assert not any(each.certain for each in found)
    assert abs(np.mean([each.again - each.chance for each in found])) < 0.05
    assert diagnose(recorded(model, k=9)).persistent is False


def test_states_that_change_at_once_are_no_slow_slots():
    assert not persistence(recorded(GilbertElliott(Exponential(10.0), Exponential(1.0), p=0.2, r=0.8))).certain


def test_overlapping_rounds_compare_a_task_with_the_next_of_its_slot():
    for name, certain in (("gilbert-elliott", True), (None, False)):
        model = STAYING[name] if name else Weibull(1.0, 0.6)
        found = persistence(recorded(model, overlapping=True))
        assert found.certain == certain
    assert persistence(recorded(Exponential(1.0), rounds=1, overlapping=True)) is None


@pytest.mark.parametrize(
    ("law", "advice", "words"),
    [
        (Weibull(1.0, 0.5), "copy", "copies of late tasks pay"),
        (ShiftedExponential(1.0, 1.0), "let finish", "best left to finish"),
        (Exponential(1.0), "nothing", "cannot be told"),
        (Constant(1.0), "nothing", "cannot be told"),
    ],
)
def test_advice(law, advice, words):
    found = diagnose(recorded(law))
    assert found.advice == advice
    assert words in str(found)
    assert (found.finished, found.given_up) == (960, 0)


def test_what_the_run_did_against_the_advice_is_said():
    kept = diagnose(recorded(Weibull(1.0, 0.5), leftover="keep", overlapping=True))
    assert str(kept).endswith("; this run kept them")
    gone = diagnose(recorded(ShiftedExponential(1.0, 1.0), k=9, leftover="cancel"))
    assert str(gone).endswith("; this run gave them up")
    assert "this run" not in str(diagnose(recorded(ShiftedExponential(1.0, 1.0), leftover="cancel")))


def test_kinds_of_rounds_are_not_mixed():
    # Two memoryless kinds together look like a law whose old tasks are the slow ones.
    short, long = recorded(Exponential(1.0), seed=3), recorded(Exponential(0.05), seed=4)
    rows = np.concatenate([short.rows, long.rows + np.array([80, 0, 0, 0, 0, 0, 0, 0])])
    assert diagnose(Trace(rows)).advice == "copy"
    apart = diagnose(Trace(rows, {"kinds": [0] * 80 + [1] * 80}))
    assert apart.advice == "nothing"
    assert len(apart.hazards) == 2
    later = np.array([80, 0, 0, 0, 0, 0, 0, 0])
    opposed = np.concatenate([recorded(Weibull(1.0, 0.5)).rows, recorded(Weibull(1.0, 2.0)).rows + later])
    assert diagnose(Trace(opposed, {"kinds": [0] * 80 + [1] * 80})).advice == "nothing"


def test_few_tasks_are_met_with_silence():
    assert diagnose(recorded(Weibull(1.0, 0.5), n=4, rounds=7)) is None
    assert persistence(recorded(STAYING["fixed"], n=12, rounds=5)) is None
