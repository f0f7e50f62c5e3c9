"""Clusters formed anew from round to round: workers that were late are spread, and nothing that is stored moves."""

import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes.gradient import ClusteredCode
from serverless_gc.codes.gradient.dynamic_clusters import StragglerPredictor
from serverless_gc.observe import Span
from serverless_gc.rounds.lateness import late_workers, regrouped

SLOW = {0, 1, 2}  # all of one cluster of five


def rounds(flexibility, slow=SLOW, n=6, backend="simulated", **options):
    """Reports of several gradients at 15 workers in 3 clusters, one straggler tolerated in each."""
    code = ClusteredCode(15, 15, clusters=3, stragglers=1, flexibility=flexibility)
    stragglers = sgc.inject.Stragglers(fraction=slow, slowdown=100.0, persistent=True)
    X, y, w, expected = problem("logistic", 45)
    reports = []
    with sgc.Session(backend, inject=stragglers, **options) as s:
        data = s.encode(X, y, code=code)
        for _ in range(n):
            gradient, report = data.gradient(w, loss="logistic", with_report=True)
            close(gradient, expected)
            assert report.check().error <= 1e-20
            reports.append(report)
    return reports


def test_fewer_seconds_than_static_clusters_under_stragglers_that_stay():
    options = {"delay": sgc.stragglers.ShiftedExponential(shift=1.0, rate=10.0), "seed": 3}
    static = [report.elapsed for report in rounds(1, **options)]
    dynamic = [report.elapsed for report in rounds(3, **options)]
    assert all(seconds > 50 for seconds in static)
    assert dynamic[0] > 50
    assert all(seconds < 5 for seconds in dynamic[1:])


def test_what_is_told_and_what_is_stored():
    first, second, *_ = rounds(3, delay=sgc.stragglers.Constant(1.0))
    assert not [note for note in first.notes if "late" in note]
    [note] = [note for note in second.notes if "late" in note]
    assert "clusters were formed so that each has its share" in note
    assert first.encode_seconds > 0
    assert second.encode_seconds == 0  # nothing moved


def test_the_session_remembers_for_calls_by_name():
    X, y, w, expected = problem("squared", 45)
    slow = sgc.inject.Stragglers(fraction=SLOW, slowdown=100.0, persistent=True)
    arguments = {"code": "clustered", "n_workers": 15, "clusters": 3, "stragglers": 1, "flexibility": 3}
    with sgc.Session("simulated", inject=slow, delay=sgc.stragglers.Constant(1.0)) as s:
        seconds = []
        for _ in range(3):
            gradient, report = sgc.coded_gradient(X, y, w, **arguments, session=s, with_report=True)
            close(gradient, expected)
            seconds.append(report.elapsed)
        assert seconds[0] > 50
        assert max(seconds[1:]) < 5


def test_workers_that_failed_are_late_ones():
    code = ClusteredCode(6, 6, clusters=2, stragglers=1, flexibility=2)
    X, y, w, expected = problem("squared", 30)
    with sgc.Session(inject=sgc.inject.Faults(fail=[4], fail_times=9), max_attempts=1) as s:
        data = s.encode(X, y, code=code)
        close(data.gradient(w), expected)
        assert 4 in s.late[6]
        close(data.gradient(w), expected)
        assert data.code is code


def test_only_flexible_clusters_change():
    static = ClusteredCode(6, 6, clusters=2, stragglers=1)
    code = ClusteredCode(6, 6, clusters=2, stragglers=1, flexibility=2)
    late = {6: frozenset({0, 1})}
    assert regrouped(static, static, late) == (static, "")
    assert regrouped(code, code, {}) == (code, "")
    assert regrouped(code, code, {6: frozenset()}) == (code, "")
    today, note = regrouped(code, code, late)
    flags = StragglerPredictor(6).update({0, 1})
    assert today.assignment == code.assign(flags)
    assert "workers 0, 1 were late" in note
    assert regrouped(code, today, late)[0] is today  # already as it should be
    assert regrouped(code, today, {6: frozenset()})[0] is today


@pytest.mark.parametrize("flexibility", [1, 2, 3])
def test_random_stragglers_are_survived_whatever_the_assignment(flexibility):
    code = ClusteredCode(12, 12, clusters=3, stragglers=1, flexibility=flexibility)
    X, y, w, expected = problem("squared", 25)
    chance = sgc.inject.Stragglers(fraction=0.25, slowdown=20.0, seed=flexibility)
    with sgc.Session("simulated", inject=chance) as s:
        data = s.encode(X, y, code=code)
        assignments = set()
        for _ in range(8):
            close(data.gradient(w), expected)
            assignments.add(data.latest.assignment)
        assert flexibility > 1 or assignments == {code.assignment}
        assert np.array_equal(data.code.assignment, code.assignment)


def test_who_was_late():
    """Twice the median, no answer in time, or late before and not heard of since."""

    def span(slot, seconds, fate="used", issued=0.0):
        return Span(slot, 0, 1, issued, issued + seconds, fate=fate)

    prompt = [span(slot, 1.0) for slot in range(5)]
    assert late_workers(prompt, {0, 1}) == frozenset()
    assert late_workers([*prompt, span(5, 1.9)]) == frozenset()
    assert late_workers([*prompt, span(5, 2.1)]) == {5}
    assert late_workers([*prompt, span(5, 2.1, "surplus")]) == {5}
    assert late_workers([*prompt, span(5, 1.1, "voided")]) == frozenset()
    assert late_workers([*prompt, span(5, 1.1, "voided")], {5, 2}) == {5}
    assert late_workers([*prompt, span(5, 3.0, "voided")]) == {5}
    assert late_workers([*prompt, span(5, 0.1, "failed")]) == {5}
    retried = [span(5, 0.1, "failed"), span(5, 0.9, issued=0.2)]
    assert late_workers([*prompt, *retried]) == frozenset()
    assert late_workers([*prompt, span(5, 0.1, "failed"), span(5, 0.9, issued=5.0)]) == {5}
    assert late_workers([span(0, 0.1, "failed")]) == {0}
