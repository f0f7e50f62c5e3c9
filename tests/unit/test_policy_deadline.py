# ruff: noqa: ARG002 - stand-ins must have the arguments of what they stand for
"""Deadlines around other policies."""

import pytest

from serverless_gc.engine import Arrived, Engine, Issue, SetTimer, TimerFired
from serverless_gc.errors import InputError
from serverless_gc.policies import Deadline, FirstK, KAsync, WaitAll
from serverless_gc.types import Close, Wait


class At:
    """Closes at a time of its own, and goes on naming that time afterwards."""

    leftover = "cancel"

    def __init__(self, seconds, *, act=None):
        self.seconds = seconds
        self.act = act or Close()
        self.asked = []

    def open(self, view):
        return [view.new_task(slot) for slot in view.idle_slots()]

    def on_arrival(self, view, arrival):
        return Wait()

    def on_failure(self, view, task):
        return Wait()

    def timer(self, view):
        return self.seconds

    def on_timer(self, view):
        self.asked.append(view.now - view.round_start)
        return self.act


def timers(actions):
    return [a.at for a in actions if isinstance(a, SetTimer)]


def test_inner_timer_comes_first_and_is_asked_at_its_time_only():
    inner = At(2.0)
    engine = Engine(Deadline(inner, 5.0), 2)
    assert timers(engine.open(10.0)) == [12.0]
    assert engine.handle(TimerFired(0, 12.0), 12.0)[-1].outcome.error is None
    assert inner.asked == [2.0]


def test_inner_timer_that_repeats_itself_does_not_hide_the_deadline():
    inner = At(2.0, act=Wait())
    engine = Engine(Deadline(inner, 5.0), 2)
    engine.open(0.0)
    assert timers(engine.handle(TimerFired(0, 2.0), 2.0)) == [5.0]
    outcome = engine.handle(TimerFired(0, 5.0), 5.0)[-1].outcome
    assert outcome.error == "deadline"
    assert inner.asked == [2.0]


def test_inner_policy_with_a_later_timer_is_not_asked_at_the_deadline():
    inner = At(9.0)
    engine = Engine(Deadline(inner, 5.0), 2)
    assert timers(engine.open(0.0)) == [5.0]
    assert engine.handle(TimerFired(0, 5.0), 5.0)[-1].outcome.error == "deadline"
    assert inner.asked == []


def test_the_tighter_of_two_deadlines_counts():
    for policy in (Deadline(Deadline(WaitAll(), 2.0), 5.0), Deadline(Deadline(WaitAll(), 5.0), 2.0)):
        engine = Engine(policy, 2)
        assert timers(engine.open(0.0)) == [2.0]
        assert "2 s have passed" in engine.handle(TimerFired(0, 2.0), 2.0)[-1].outcome.reason


def test_inner_deadline_is_not_made_an_answer_by_an_outer_one():
    engine = Engine(Deadline(Deadline(WaitAll(), 2.0), 5.0, "close"), 2)
    engine.open(0.0)
    assert engine.handle(TimerFired(0, 2.0), 2.0)[-1].outcome.error == "deadline"


def test_deadline_is_noticed_on_an_arrival_too():
    engine = Engine(Deadline(WaitAll(), 2.0), 3)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    engine.handle(Arrived(tasks[0]), 2.0)  # in time
    assert engine.is_open
    outcome = engine.handle(Arrived(tasks[1]), 2.5)[-1].outcome
    assert outcome.error == "deadline"
    assert "2 results arrived; 1 attempts have not answered (slots 2)" in outcome.reason


def test_closing_at_the_deadline_consumes_what_is_here():
    engine = Engine(Deadline(WaitAll(), 2.0, "close"), 3)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    engine.handle(Arrived(tasks[1]), 1.0)
    outcome = engine.handle(TimerFired(0, 2.0), 2.0)[-1].outcome
    assert outcome.error is None
    assert [a.task.slot for a in outcome.arrivals] == [1]


def test_leftover_is_forwarded():
    assert Deadline(KAsync(1), 1.0).leftover == "keep"
    assert Deadline(FirstK(1), 1.0).leftover == "cancel"


def test_parameters_are_checked():
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="seconds must be positive"):
            Deadline(WaitAll(), seconds)
    with pytest.raises(InputError, match="on_expire"):
        Deadline(WaitAll(), 1.0, "raise")
