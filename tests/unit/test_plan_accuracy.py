"""The planner knows how accurate every code is, or says that it does not."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import available, get, registry
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.threshold import first_messages, predicted_errors
from serverless_gc.errors import InputError
from serverless_gc.plan import method, sample_rounds, simulate
from serverless_gc.plan.rounds import shares
from serverless_gc.stragglers import ShiftedExponential

LAW = ShiftedExponential(1.0, 1.0)
APPROXIMATE = [info.name for info in available() if not info.exact]


def recommended(**options):
    return sgc.recommend(**{"rows": 20_000, "cols": 300, "n_workers": 16, "delay": LAW, **options})


@pytest.mark.parametrize("name", [info.name for info in available()])
def test_every_code_predicts(name):
    errors = predicted_errors(get(name), trials=3)
    assert errors is not None
    assert np.isfinite(errors).all()
    assert (errors < 1).all()
    if name not in APPROXIMATE:
        single = predicted_errors(get(name), trials=3, dtype=np.float32)
        assert (errors < 1e-10).all()
        assert (single >= errors).all()


@pytest.mark.parametrize("name", [name for name in APPROXIMATE if name != "encoded"])
def test_predicted_errors_of_approximate_codes_are_those_of_their_answers(name):
    rng = np.random.default_rng(0)
    code = get(name, n_workers=40, k=8) if name == "berrut" else get(name)
    measured = []
    for _ in range(30):
        messages = first_messages(code, rng.permutation(code.n_workers).tolist())
        blocks = rng.normal(size=(code.k, 200))
        coded = code.encode(blocks, messages=messages)
        answer, _ = code.decode(dict(zip(messages, coded, strict=True)))
        exact = blocks.sum(axis=0) if code.target == "sum" else blocks
        measured.append(np.linalg.norm(answer - exact) / np.linalg.norm(exact))
    predicted = predicted_errors(code, trials=60)
    assert predicted.mean() == pytest.approx(np.mean(measured), rel=0.35, abs=1e-12)


def test_rounds_of_approximate_codes_close_where_they_say():
    for name in ("encoded", "bgc", "expander", "graph"):
        one = method(name, 15 if name == "graph" else 24)
        engine, sampled = simulate(one, LAW, rounds=150, seed=5), sample_rounds(one, LAW, rounds=3000, seed=6)
        error = np.hypot(engine.standard_error, sampled.standard_error)
        assert engine.mean == pytest.approx(sampled.mean, abs=4 * error)
        assert engine.awaited.mean() == pytest.approx(sampled.awaited.mean(), rel=0.03)


def test_the_work_of_encoded_rows_counts_how_many_more_they_are():
    assert shares(get("encoded", n_workers=8, beta=2.0)).tolist() == [0.25] * 8


def test_a_tolerance_leaves_approximate_codes_out_and_says_why():
    codes = ["uncoded", "mds", "encoded", "bgc"]
    free = recommended(codes=codes)
    errors = {choice.name: choice.error for choice in free.choices}
    assert errors["uncoded"] == 0.0
    assert errors["mds"] < 1e-10
    assert min(errors["bgc"], errors["encoded"]) > 0.01
    assert "pproximate" in free.explain()
    strict = recommended(codes=codes, tolerance=1e-6)
    assert {choice.name for choice in strict.choices} == {"uncoded", "mds"}
    reasons = {one.name: one.why for one in strict.refused if one.limit == "tolerance"}
    assert set(reasons) == {"encoded", "bgc"}
    assert all(why.endswith("it is a code for approximate answers") for why in reasons.values())


def test_in_single_precision_a_tolerance_asks_for_double():
    with pytest.raises(InputError, match="take float64"):
        recommended(codes=["polar"], dtype="float32", tolerance=1e-9)
    assert recommended(codes=["polar"], dtype="float64", tolerance=1e-9).best.error < 1e-12


class Silent(LinearCode):
    """Any two of three, which does not say how accurate it is."""

    name = "silent"
    certify = None

    def __init__(self, n_workers, k):
        super().__init__(np.random.default_rng(0).normal(size=(n_workers, k)))


def test_a_code_that_cannot_tell_is_called_so(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.register("silent", Silent, summary="Says nothing.")
    advice = recommended(codes=["silent", "uncoded"], task="matvec")
    assert {choice.name: choice.error for choice in advice.choices} == {"silent": None, "uncoded": 0.0}
    assert "How accurate answers are is not known of: silent(16," in advice.explain()
    strict = recommended(codes=["silent", "uncoded"], task="matvec", tolerance=1e-3)
    assert {choice.name for choice in strict.choices} == {"uncoded"}
    assert "Refused for tolerance: 5, such as silent" in strict.explain()
