# ruff: noqa: ARG002, ARG005 - stand-ins must have the arguments of what they stand for
"""Backup tasks: copies of what is late, none for healthy jobs, at most one a slot."""

import pytest

from serverless_gc.codes import get
from serverless_gc.engine import Arrived, Cancelled, Engine, Issue, SetTimer, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.inject import Stragglers
from serverless_gc.policies import Deadline, FirstK, KAsync, Speculate, WaitAll, late_after
from serverless_gc.stragglers import Constant, Injected, ShiftedExponential
from serverless_gc.types import Close, Timing, Wait

RULE = {"quantile": 0.75, "factor": 1.5, "min_seconds": 0.1}


class ByAttempt:
    """Durations by slot and attempt."""

    def __init__(self, seconds):
        self.seconds = seconds

    def sample_task(self, task, rng):
        return Timing(compute=self.seconds(task.slot, task.attempt))

    def sample(self, slot, k, work, rng):
        raise AssertionError("the attempt number matters")


def run(model, n_slots, policy=None, rounds=1):
    host = VirtualHost(model, seed=1)
    return list(host.simulate(Engine(policy or Speculate(WaitAll()), n_slots), rounds))


@pytest.mark.parametrize(
    ("finished", "n", "expected"),
    [
        ([1.0] * 11, 16, None),
        ([1.0] * 12, 16, 1.5),
        ([float(i) for i in range(1, 13)], 16, 18.0),
        ([0.001] * 12, 16, 0.1),
        ([1.0], 1, None),
        ([1.0, 1.0], 2, None),
        ([1.0, 1.0, 1.0], 4, 1.5),
    ],
)
def test_late_after(finished, n, expected):
    assert late_after(finished, n, **RULE) == expected


@pytest.mark.parametrize("n", [1, 2, 3])
def test_small_jobs_get_no_copies(n):
    assert run(Constant(1.0), n)[0].counts.copies == 0
    jitter = ByAttempt(lambda slot, attempt: 1.0 + 0.1 * slot)
    assert run(jitter, n)[0].counts.copies == 0


def test_healthy_jobs_get_no_copies():
    outcomes = run(ShiftedExponential(1.0, 20.0), 64, rounds=50)
    assert sum(o.counts.copies for o in outcomes) == 0


def test_one_straggler_gets_one_copy_which_wins():
    [outcome] = run(ByAttempt(lambda slot, attempt: 10.0 if (slot, attempt) == (5, 0) else 1.0), 16)
    assert outcome.counts.copies == 1
    assert outcome.duration == pytest.approx(2.5)  # late after 1.5, and one more second
    [winner] = [a for a in outcome.arrivals if a.task.slot == 5]
    assert winner.task.attempt == 1
    assert outcome.counts.voided == 1
    assert outcome.counts.balanced


def test_straggling_copy_is_not_copied():
    [outcome] = run(ByAttempt(lambda slot, attempt: 10.0 if slot == 5 else 1.0), 16)
    assert outcome.counts.copies == 1
    assert outcome.duration == pytest.approx(10.0)


def test_more_copies_if_asked():
    model = ByAttempt(lambda slot, attempt: 10.0 if slot == 5 and attempt < 2 else 1.0)
    [outcome] = run(model, 16, Speculate(WaitAll(), max_copies=2))
    assert outcome.counts.copies == 2
    assert outcome.duration == pytest.approx(1.5 + 1.5 + 1.0)


def test_no_copies_after_the_end():
    engine = Engine(Speculate(FirstK(12)), 16)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    for task in tasks[:11]:
        assert engine.handle(Arrived(task), 1.0) == []
    actions = engine.handle(Arrived(tasks[11]), 1.0)
    assert not [a for a in actions if isinstance(a, (Issue, SetTimer))]
    assert not [a for a in engine.handle(Cancelled("stop"), 50.0) if isinstance(a, Issue)]


def test_late_tasks_are_copied_at_once_when_the_last_of_enough_arrives():
    engine = Engine(Speculate(WaitAll(), quantile=0.5), 6)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    assert engine.handle(Arrived(tasks[0]), 1.0) == []
    assert engine.handle(Arrived(tasks[1]), 1.0) == []
    [timer] = engine.handle(Arrived(tasks[2]), 1.0)
    assert timer == SetTimer(1.5, 0)
    copies = [a.task for a in engine.handle(Arrived(tasks[3]), 4.0) if isinstance(a, Issue)]
    assert [(t.slot, t.attempt) for t in copies] == [(4, 1), (5, 1)]


def test_inner_timer_is_asked_at_its_own_time_only():
    class At(WaitAll):
        def timer(self, view):
            return 4.0

        def on_timer(self, view):
            return Close()

    model = ByAttempt(lambda slot, attempt: 10.0 if slot == 5 else 1.0)
    [outcome] = run(model, 16, Speculate(At()))
    assert outcome.duration == pytest.approx(4.0)
    assert outcome.counts.copies == 1


def test_tasks_of_an_older_round_are_not_copied():
    model = ByAttempt(lambda slot, attempt: 100.0 if slot == 0 else 1.0)
    host, engine = VirtualHost(model), Engine(Speculate(KAsync(6), quantile=0.5, max_copies=9), 8)
    list(host.simulate(engine, 10))
    assert {f.task.task_id for f in engine.view.in_flight() if f.task.slot == 0} == {"0-0"}


def test_copies_shorten_rounds_with_injected_stragglers():
    model = Injected(ShiftedExponential(1.0, 10.0), Stragglers(fraction=0.05, slowdown=10.0, seed=3))
    plain = run(model, 32, WaitAll(), rounds=40)
    backed = run(model, 32, Deadline(Speculate(WaitAll()), 60.0), rounds=40)
    assert sum(o.duration for o in backed) < 0.5 * sum(o.duration for o in plain)
    assert sum(o.counts.copies for o in backed) < 0.12 * sum(o.counts.issued for o in backed)


def test_what_the_inner_policy_copies_is_not_copied_again():
    class Own(WaitAll):
        def on_arrival(self, view, arrival):
            act = super().on_arrival(view, arrival)
            return Wait((view.new_task(5),)) if arrival.task.slot == 3 else act

    engine = Engine(Speculate(Own(), quantile=0.5), 6)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    for task in tasks[:3]:
        engine.handle(Arrived(task), 1.0)
    issued = [a.task for a in engine.handle(Arrived(tasks[3]), 4.0) if isinstance(a, Issue)]
    assert [(t.slot, t.attempt) for t in issued] == [(5, 1), (4, 1)]


def test_parameters_are_checked():
    for name, value in {"quantile": 0.0, "factor": 0.5, "min_seconds": -1.0, "max_copies": 0}.items():
        with pytest.raises(InputError, match=name):
            Speculate(WaitAll(), **{name: value})


@pytest.mark.parametrize("made", [Speculate, lambda code: Deadline(code, 3.0)])
def test_a_policy_that_follows_another_says_so_when_it_gets_a_code(made):
    with pytest.raises(InputError, match=r"is made from another waiting policy, got .*write policy=lambda code: "):
        made(get("uncoded", n_workers=4))
