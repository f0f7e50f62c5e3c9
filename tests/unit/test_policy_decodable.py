"""Until decodable: closes at the threshold, waits for more when asked, names what is missing."""

import itertools

import numpy as np
import pytest

from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict, check_message
from serverless_gc.engine import (
    AbortRound,
    Arrived,
    CloseRound,
    Engine,
    Failed,
    Issue,
    SetTimer,
    TimerFired,
    VirtualHost,
)
from serverless_gc.errors import InputError
from serverless_gc.policies import Deadline, Speculate, UntilDecodable
from serverless_gc.stragglers import Exponential


class Pairs(Code):
    """Two messages a worker: worker i sends blocks i and i+1 (mod k) unchanged."""

    name = "pairs"

    @property
    def n_messages(self):
        return 2 * self.n_workers

    def placement(self, worker):
        return (2 * worker, 2 * worker + 1)

    def _build_generator(self):
        g = np.zeros((self.n_messages, self.k))
        for worker in range(self.n_workers):
            g[2 * worker, worker % self.k] = g[2 * worker + 1, (worker + 1) % self.k] = 1.0
        return g

    def tracker(self):
        return PairsTracker(self)

    def decode(self, values, *, out=None, tolerance=None):
        raise NotImplementedError


class PairsTracker(Tracker):
    def __init__(self, code):
        self.code = code
        self.known = set()

    def add(self, message):
        check_message(message, self.code.n_messages)
        self.known.add(self.code.source_of(message))
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self):
        return len(self.known) == self.code.k

    def missing(self):
        return tuple(sorted(set(range(self.code.k)) - self.known))


class Careful(Pairs):
    """Pretends that its accuracy grows with the number of messages."""

    name = "careful"

    def certify(self, messages, dtype=np.float64):  # noqa: ARG002 - the signature of all codes
        return Certificate("test", predicted_error=10.0 ** -len(messages))


def issued(actions):
    return [a.task for a in actions if isinstance(a, Issue)]


def feed(engine, tasks, slots):
    """Deliver slots in order until the round ends; return the final action."""
    for now, slot in enumerate(slots, start=1):
        actions = [a for a in engine.handle(Arrived(tasks[slot]), float(now)) if not isinstance(a, SetTimer)]
        if actions:
            return actions[-1]
    return None


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_closes_exactly_when_the_blocks_are_covered(order):
    engine = Engine(UntilDecodable(Pairs(4, 4)), 4)
    for _ in range(2):  # the second round must start from nothing
        close = feed(engine, issued(engine.open(0.0)), order)
        consumed = [a.task.slot for a in close.arrivals]
        assert consumed == list(order[: len(consumed)])
        covered = [{b % 4 for s in order[:n] for b in (s, s + 1)} for n in range(1, 5)]
        assert len(covered[len(consumed) - 1]) == 4
        assert len(consumed) == 1 or len(covered[len(consumed) - 2]) < 4


def test_margin_waits_for_surplus_while_it_can_come():
    engine = Engine(UntilDecodable(Pairs(6, 4), margin=2), 6)
    assert [a.task.slot for a in feed(engine, issued(engine.open(0.0)), [0, 2, 5, 1]).arrivals] == [0, 2, 5, 1]

    engine = Engine(UntilDecodable(Pairs(4, 4), margin=2), 4, max_attempts=1)
    tasks = issued(engine.open(0.0))
    assert feed(engine, tasks, [0, 2, 1]) is None
    close = engine.handle(Failed(tasks[3], "lost"), 5.0)[-1]
    assert isinstance(close, CloseRound)
    assert len(close.arrivals) == 3


def test_waits_for_accuracy_but_not_for_ever():
    def n_used(tolerance, max_extra=2, bound=1.0):
        policy = UntilDecodable(Careful(8, 4), tolerance=tolerance, max_extra=max_extra, bound=bound)
        engine = Engine(policy, 8)
        return len(feed(engine, issued(engine.open(0.0)), [0, 2, 4, 6, 1, 3, 5, 7]).arrivals)

    assert n_used(None) == n_used(1e-4) == 2
    assert n_used(1e-6) == 3
    assert n_used(1e-30) == 4
    assert n_used(1e-30, max_extra=0) == 2
    # Above the bound neither number nor time limits the waiting.
    assert n_used(1e-4, max_extra=0, bound=None) == 2
    assert n_used(1e-6, max_extra=0, bound=None) == 3
    assert n_used(1e-30, max_extra=0, bound=1e-7) == 4
    assert n_used(1e-30, max_extra=0, bound=1e-30) == 8


def test_waiting_for_accuracy_takes_no_longer_than_waiting_for_the_answer():
    engine = Engine(UntilDecodable(Careful(8, 4), tolerance=1e-30, bound=1.0), 8)
    tasks = issued(engine.open(10.0))
    assert not issued(engine.handle(Arrived(tasks[0]), 11.0))
    [timer] = engine.handle(Arrived(tasks[2]), 13.0)  # determined after three seconds
    assert timer.at == 16.0
    close = engine.handle(TimerFired(timer.version, timer.at), 16.0)[-1]
    assert isinstance(close, CloseRound)
    assert len(close.arrivals) == 2


def test_aborts_when_nothing_more_can_come_and_names_the_blocks():
    engine = Engine(UntilDecodable(Pairs(6, 6)), 6, max_attempts=1)
    tasks = issued(engine.open(0.0))
    assert feed(engine, tasks, [0, 1, 5]) is None
    assert engine.handle(Failed(tasks[2], "function", "MemoryError"), 6.0) == []
    assert engine.handle(Failed(tasks[3], "lost", "reset"), 7.0) == []
    abort = engine.handle(Failed(tasks[4], "timeout", "no reply in 60 s"), 8.0)[-1]
    assert isinstance(abort, AbortRound)
    assert abort.outcome.error == "starved"
    assert abort.outcome.reason.startswith(
        "2 of 6 blocks cannot be reconstructed (blocks 3, 4): 3 of 6 results arrived, 3 slots were given up"
    )
    assert abort.outcome.failures == {
        2: "function: MemoryError",
        3: "lost: reset",
        4: "timeout: no reply in 60 s",
    }


def test_approximate_answer_at_the_deadline_or_when_nothing_more_can_come():
    policy = Deadline(UntilDecodable(Pairs(4, 4)), 5.0, "close")
    engine = Engine(policy, 4, max_attempts=1)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    for slot in (1, 2):
        engine.handle(Failed(tasks[slot], "lost"), 2.0)
    close = engine.handle(Failed(tasks[3], "lost"), 2.0)[-1]
    assert isinstance(close, CloseRound)
    assert [a.task.slot for a in close.arrivals] == [0]


def test_deadline_names_the_blocks_too():
    engine = Engine(Deadline(Speculate(UntilDecodable(Pairs(16, 16))), 5.0), 16)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[3]), 1.0)
    reason = engine.handle(TimerFired(0, 5.0), 5.0)[-1].outcome.reason
    assert reason.startswith("5 s have passed since submission: 1 results arrived; 15 attempts have not answered")
    assert "14 of 16 blocks cannot be reconstructed (blocks 0, 1, 2, 5, 6," in reason


def test_composes_and_forwards_leftover():
    policy = Deadline(Speculate(UntilDecodable(Pairs(12, 8))), 5.0)
    assert policy.leftover == "cancel"
    outcomes = list(VirtualHost(Exponential(2.0), seed=3).simulate(Engine(policy, 12), 20))
    assert {o.error for o in outcomes} == {None}
    for o in outcomes:
        assert {b % 8 for a in o.arrivals for b in (a.task.slot, a.task.slot + 1)} == set(range(8))
        assert o.counts.balanced


def test_parameters_are_checked():
    with pytest.raises(InputError, match="n_workers=4, the engine has 3 slots"):
        Engine(UntilDecodable(Pairs(4, 4)), 3).open(0.0)
    with pytest.raises(InputError, match="margin"):
        UntilDecodable(Pairs(4, 4), margin=-1)
    with pytest.raises(InputError, match="max_extra"):
        UntilDecodable(Pairs(4, 4), max_extra=1.5)
    with pytest.raises(InputError, match="tolerance"):
        UntilDecodable(Pairs(4, 4), tolerance=0.0)
