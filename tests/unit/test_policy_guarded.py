"""A guarded policy closes when the other one would and the code can decode, not before and not later."""

import itertools

import pytest

from serverless_gc.codes import get
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.engine import Arrived, CloseRound, Engine, Failed, TimerFired
from serverless_gc.policies import Deadline, FirstK, Guarded, KSync, UntilDecodable, WaitAll


def closes_at(policy, order, n):
    """Deliver results in an order; return after how many the round closed."""
    engine = Engine(policy, n_slots=n)
    tasks = {action.task.slot: action.task for action in engine.open(0.0) if hasattr(action, "task")}
    for i, slot in enumerate(order):
        actions = engine.handle(Arrived(tasks[slot], slot), float(i))
        if any(isinstance(action, CloseRound) for action in actions):
            return i + 1
    return None


def decodable_at(code, order):
    tracker = code.tracker()
    for i, slot in enumerate(order):
        for message in code.placement(slot):
            verdict = tracker.add(message)
        if verdict:
            return i + 1
    return None


@pytest.mark.parametrize("k", [1, 3, 5])
def test_every_order_of_arrival(k):
    code = get("replication", n_workers=6, k=3)
    policy = Guarded(KSync(k), code)  # one object for all rounds
    for order in itertools.permutations(range(6)):
        assert closes_at(policy, order, 6) == max(k, decodable_at(code, order))


def test_all_are_waited_for_if_asked():
    code = get("mds", n_workers=4, k=2)
    assert closes_at(Guarded(WaitAll(), code), range(4), 4) == 4


def test_accuracy_is_waited_for_but_not_for_ever():
    nearly = MDSCode(6, 2, parity=[[1, 1], [1, 1 + 1e-8], [1, 0.5], [0.5, 1]])
    engine = Engine(Guarded(FirstK(2), nearly), n_slots=6)
    tasks = [action.task for action in engine.open(0.0) if hasattr(action, "task")]
    assert not engine.handle(Arrived(tasks[2]), 2.0)
    [timer] = engine.handle(Arrived(tasks[3]), 3.0)  # two parity messages that say nearly the same
    assert timer.at == 6.0
    close = engine.handle(TimerFired(timer.version, 6.0), 6.0)[-1]
    assert [arrival.task.slot for arrival in close.arrivals] == [2, 3]


def outcome_of(policy, n, failing, now=0.0):
    engine = Engine(policy, n_slots=n, max_attempts=1)
    tasks = [action.task for action in engine.open(0.0) if hasattr(action, "task")]
    for task in tasks:
        event = Failed(task, "function", "died", retryable=False) if task.slot in failing else Arrived(task, 1)
        engine.handle(event, now)
        if not engine.is_open:
            break
    return engine.last


def test_what_the_inner_policy_cannot_have_is_not_waited_for():
    code = get("mds", n_workers=4, k=2)
    assert outcome_of(Guarded(WaitAll(), code), 4, {3}).error is None
    assert outcome_of(Guarded(WaitAll(), code), 4, {0}).error is None
    hopeless = outcome_of(Guarded(FirstK(1), code), 4, {1, 2, 3})
    assert hopeless.error == "starved"
    assert "blocks cannot be reconstructed" in hopeless.reason


def test_after_its_deadline_the_round_goes_on_until_it_can_be_decoded():
    code = get("mds", n_workers=4, k=3)
    policy = Guarded(Deadline(WaitAll(), 1.0, "close"), code)
    engine = Engine(policy, n_slots=4)
    tasks = [action.task for action in engine.open(0.0) if hasattr(action, "task")]
    for at, task in zip((0.1, 0.2, 5.0), tasks, strict=False):
        assert engine.is_open
        engine.handle(Arrived(task, 1), at)
    assert not engine.is_open
    assert engine.last.error is None


def test_it_says_what_is_missing():
    code = get("mds", n_workers=4, k=3)
    assert "3 of 3 blocks cannot be reconstructed" in Guarded(FirstK(1), code).explain()
    assert Guarded(UntilDecodable(code), code).leftover == "cancel"
