"""Recorded delays: from reports to a file and back through the engine; what they say of late tasks."""

import gzip

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.observe import Report, Span
from serverless_gc.policies import KSync, Speculate, WaitAll
from serverless_gc.stragglers import Empirical, HyperExponential, ShiftedExponential, Trace, Uniform, Weibull, hazard


def span(slot, number, seconds, fate="used", attempt=0, **phases):
    return Span(slot, attempt, number, 10.0, 10.0 + seconds, 0.0, fate=fate, **phases)


def small():
    first = Report(spans=(span(0, 7, 1.0, compute=0.25), span(1, 7, 2.0), span(2, 7, 2.0, "voided")))
    second = Report(spans=(span(0, 7, 3.0), span(1, 7, 9.0, "failed"), span(1, 7, 1.5, "surplus", 1), span(2, 7, 4.0)))
    return Trace.from_reports([first, second], where="here")


def test_reports_become_rows():
    trace = small()
    assert (trace.n_rounds, trace.n_slots) == (2, 3)
    assert trace.rows[:, :4].tolist() == [
        [0, 0, 0, 1],
        [0, 1, 0, 1],
        [0, 2, 0, 0],
        [1, 0, 0, 1],
        [1, 1, 1, 1],
        [1, 2, 0, 1],
    ]
    assert trace.totals.tolist() == [1.0, 2.0, 2.0, 3.0, 1.5, 4.0]
    assert trace.rows[0, 4:].tolist() == [0.75, 0.0, 0.25, 0.0]


@pytest.mark.parametrize("name", ["delays.csv", "delays.csv.gz"])
def test_file_round_trip(tmp_path, name):
    trace = small()
    path = tmp_path / name
    trace.save(path)
    again = Trace.load(path)
    assert again.about == {"where": "here"}
    np.testing.assert_allclose(again.rows, trace.rows, rtol=1e-5)
    text = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    assert text.startswith(b"# serverless-gc trace 1 ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no trace"),
        ("a,b\n1,2\n", "no trace of version 1"),
        ("# serverless-gc trace 2 {}\n", "no trace of version 1"),
        ("# serverless-gc trace 1 {}\nround,slot,attempt,finished,queued,read,compute,write\n0,1,x\n", "damaged"),
        (
            "# serverless-gc trace 1 {}\nround,slot,attempt,finished,queued,read,compute,write\n0,0,0,1,-1,0,0,0\n",
            "at least 0",
        ),
    ],
)
def test_foreign_and_damaged_files_are_refused(tmp_path, text, message):
    path = tmp_path / "t.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        Trace.load(path)


def test_traces_without_a_result_are_refused():
    with pytest.raises(InputError, match="at least one attempt"):
        Trace.from_reports([Report(spans=(span(0, 0, 1.0, "voided"),))])


def test_replay_gives_the_recorded_times_by_slot_and_round():
    model, rng = small().replay(), np.random.default_rng(0)
    assert [model.sample(0, k, 1.0, rng).total for k in range(4)] == [1.0, 3.0, 1.0, 3.0]
    assert model.sample(0, 0, 4.0, rng).total == 1.75  # the computation alone grows
    given_up = {model.sample(2, 0, 1.0, rng).total for _ in range(50)}
    assert given_up == {3.0, 4.0}  # longer than it was watched
    with pytest.raises(InputError, match="how must be"):
        small().replay("loop")


def test_replayed_engine_repeats_the_rounds():
    law = ShiftedExponential(1.0, 2.0)
    recorded = []
    for seed in range(3):
        host = VirtualHost(law, seed=seed)
        [outcome] = host.simulate(Engine(WaitAll(), 8), 1)
        spans = tuple(Span(r.slot, r.attempt, 0, r.t_issued, r.t_end, fate=r.fate) for r in outcome.records)
        recorded.append(Report(spans=spans, elapsed=outcome.duration))
    model = Trace.from_reports(recorded).replay()
    outcomes = list(VirtualHost(model).simulate(Engine(WaitAll(), 8), 3))
    assert [o.duration for o in outcomes] == pytest.approx([r.elapsed for r in recorded])
    assert [o.duration for o in VirtualHost(model).simulate(Engine(KSync(6), 8), 3)] < [r.elapsed for r in recorded]
    copies = sum(o.counts.copies for o in VirtualHost(model).simulate(Engine(Speculate(WaitAll()), 8), 30))
    assert copies > 0


def test_censored_durations_count():
    law = Empirical.of([1.0, 2.0, 4.0], [3.0])
    assert law.weights.tolist() == pytest.approx([0.25, 0.25, 0.5])
    assert law.mean() == pytest.approx(2.75)
    # rounds closed at the 12th of 16: the finished ones alone look too fast
    rng = np.random.default_rng(2)
    times = np.sort(rng.exponential(size=(400, 16)), axis=1)
    finished, running = times[:, :12].ravel(), np.repeat(times[:, 11], 4)
    assert finished.mean() < 0.65
    whole = Empirical.of(finished, running)
    for q in (0.25, 0.5, 0.7):
        assert whole.quantile(q) == pytest.approx(-np.log(1 - q), rel=0.05)


def test_record_of_a_real_session():
    with sgc.Session("local", inject=sgc.inject.Stragglers(fraction={1}, slowdown=5.0, base=0.01)) as s:
        data = s.encode(np.eye(12), code="uncoded", k=4)
        reports = [data.matvec(np.ones(12), with_report=True)[1] for _ in range(3)]
    trace = Trace.from_reports(reports)
    by_slot = [trace.totals[trace.rows[:, 1] == slot].min() for slot in range(4)]
    assert len(trace.rows) == 12
    assert by_slot[1] >= 0.05
    assert by_slot[1] > min(by_slot)
    assert min(by_slot) >= 0.01


@pytest.mark.parametrize(
    ("law", "leftover"),
    [
        (Uniform(0.0, 2.0), "keep"),
        (ShiftedExponential(1.0, 1.0), "keep"),
        (HyperExponential([0.2, 8.2], [0.9, 0.1]), "cancel"),
        (Weibull(1.0, 0.6), "cancel"),
        (ShiftedExponential(0.0, 1.0), "either"),
    ],
)
def test_hazard_tells_whether_to_keep_late_tasks(law, leftover):
    found = hazard(law.draws(np.random.default_rng(5), 1500))
    assert found.leftover == leftover
    other = {"keep": "cancel", "cancel": "keep", "either": "keep"}[leftover]
    warning = found.warning(other)
    assert bool(warning) == (leftover != "either")
    if warning:
        assert f"use leftover={leftover!r}" in warning
    assert found.warning(leftover if leftover != "either" else "cancel") == ""


def test_hazard_sees_through_cancelled_rounds():
    # with cancel the slow tasks are never seen to end; the censored record still tells
    draws = np.sort(Weibull(1.0, 0.5).draws(np.random.default_rng(1), (300, 8)), axis=1)
    assert hazard(draws[:, :7].ravel(), draws[:, 6]).leftover == "cancel"
    with pytest.raises(InputError, match="at least 30 durations"):
        hazard([1.0] * 5)
