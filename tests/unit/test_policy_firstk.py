"""First k, the variants of Dutta et al., and waiting for all."""

import pytest

from serverless_gc.engine import AbortRound, Arrived, CloseRound, Engine, Failed, Issue
from serverless_gc.errors import InputError
from serverless_gc.policies import FirstK, KAsync, KBatchAsync, KBatchSync, KSync, WaitAll
from serverless_gc.types import WaitPolicy


def issued(actions):
    return [a.task for a in actions if isinstance(a, Issue)]


@pytest.mark.parametrize(
    ("policy", "leftover", "eager"),
    [(KSync, "cancel", False), (KBatchSync, "cancel", True), (KAsync, "keep", False), (KBatchAsync, "keep", True)],
)
def test_variants_are_first_k_with_three_bits(policy, leftover, eager):
    rule = policy(3)
    assert isinstance(rule, FirstK)
    assert isinstance(rule, WaitPolicy)
    assert (rule.k, rule.leftover, rule.eager) == (3, leftover, eager)


def test_fails_as_soon_as_too_few_can_still_come():
    engine = Engine(FirstK(3), 4, max_attempts=1)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    assert engine.handle(Failed(tasks[1], "function", "MemoryError"), 2.0) == []
    outcome = engine.handle(Failed(tasks[2], "lost", "reset"), 3.0)[-1].outcome
    assert outcome.error == "starved"
    assert outcome.reason.startswith("3 results are needed, but 1 are here and 1 can still come: 2 slots were given up")
    assert "slot 1 function: MemoryError" in outcome.reason
    assert outcome.counts.voided == 1


def test_eager_goes_on_with_one_healthy_slot():
    engine = Engine(KBatchSync(3), 2, max_attempts=1)
    a, b = issued(engine.open(0.0))
    assert engine.handle(Failed(a, "lost"), 1.0) == []
    for now in (2.0, 3.0):
        [b] = issued(engine.handle(Arrived(b), now))
    [close] = engine.handle(Arrived(b), 4.0)
    assert isinstance(close, CloseRound)


def test_wait_all_ends_with_the_first_slot_given_up():
    engine = Engine(WaitAll(), 3, max_attempts=1)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    assert isinstance(engine.handle(Failed(tasks[2], "lost"), 2.0)[-1], AbortRound)


def test_many_failures_are_summed_up():
    engine = Engine(FirstK(1), 9, max_attempts=1)
    tasks = issued(engine.open(0.0))
    for task in tasks[:8]:
        engine.handle(Failed(task, "lost", "reset"), 1.0)
    reason = engine.handle(Failed(tasks[8], "lost", "reset"), 1.0)[-1].outcome.reason
    assert reason.count("slot ") == 5
    assert "4 more" in reason


@pytest.mark.parametrize("k", [0, -1, True, 2.0])
def test_k_is_checked(k):
    with pytest.raises(InputError, match="k must be an integer of at least 1"):
        FirstK(k)


def test_leftover_and_size_are_checked():
    with pytest.raises(InputError, match="leftover"):
        FirstK(1, leftover="drop")
    with pytest.raises(InputError, match="at most the number of slots, 4, got 5"):
        Engine(FirstK(5), 4).open(0.0)
