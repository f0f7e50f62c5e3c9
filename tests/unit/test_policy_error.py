"""When a gradient code's answer is good enough."""

import pytest
from gradient_codes import FANO, cyclic, fano, two_each

from serverless_gc.codes import get
from serverless_gc.codes.base import Verdict
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.engine import Arrived, CloseRound, Engine, Failed, Issue, TimerFired
from serverless_gc.errors import InputError
from serverless_gc.policies import Deadline, UntilDecodable, UntilError, natural_policy


def after(policy, *events):
    """Slots that arrive, or fail if negative (as ``~slot``); the outcome, or None while the round is open."""
    engine = Engine(policy, policy.code.n_workers if hasattr(policy, "code") else 7, max_attempts=1)
    tasks = {a.task.slot: a.task for a in engine.open(0.0) if isinstance(a, Issue)}
    for t, slot in enumerate(events):
        event = Arrived(tasks[slot]) if slot >= 0 else Failed(tasks[~slot], "function", "broken")
        actions = engine.handle(event, float(t))
        if not engine.is_open:
            assert t == len(events) - 1, "closed earlier than expected"
            return actions[-1].outcome
    return None


@pytest.mark.parametrize(
    ("options", "n"),
    [({"max_error": 2.5 / 7}, 2), ({"max_error": 1.6 / 7}, 3), ({"max_error": 0.0}, 7), ({"wait": 4}, 4), ({}, 7)],
)
def test_it_closes_at_the_first_result_that_suffices(options, n):
    """The error of Fano's code depends on how many straggle only: 0.25, 4/7, 1, 1.6, 2.5 for one to five."""
    options = {name: value + 1e-12 if name == "max_error" and value else value for name, value in options.items()}
    order = [4, 1, 6, 0, 5, 2, 3]
    assert after(UntilError(fano(), **options), *order[: n - 1]) is None
    outcome = after(UntilError(fano(), **options), *order[:n])
    assert outcome.error is None
    assert [a.task.slot for a in outcome.arrivals] == order[:n]


def test_an_exact_answer_closes_before_the_number_waited_for():
    outcome = after(UntilError(cyclic(6, 2), wait=6), 5, 1, 0, 3)
    assert outcome.error is None
    outcome = after(UntilError(two_each(4, 1), wait=4), 3, 1, 2)  # two messages each
    assert outcome.error is None


def test_failed_slots_are_stragglers_until_nothing_can_come():
    outcome = after(UntilError(fano(), max_error=0.05), ~0, 1, 2, 3, 4, 5, 6)
    assert outcome.error is None
    outcome = after(UntilError(fano(), max_error=0.01), ~0, 1, 2, 3, 4, 5, 6)
    assert outcome.error == "starved"
    assert "squared error is 0.0357 per partition with 6 results, at most 0.01 is asked for" in outcome.reason
    assert "broken" in outcome.reason
    outcome = after(UntilError(fano(), wait=6, max_error=0.0), ~0, ~1, 2, 3, 4, 5, 6)
    assert "at most 0 or 6 results is asked for" in outcome.reason


@pytest.mark.parametrize("events", [(~0, 1, 2, 3, 4, 5, 6), (~0, ~1, ~2, ~3, ~4, ~5, ~6)])
def test_a_deadline_that_closes_takes_what_is_here_and_nothing_from_nothing(events):
    outcome = after(Deadline(UntilError(fano(), max_error=0.01), 50.0, "close"), *events)
    assert outcome.error == (None if 1 in events else "starved")
    engine = Engine(Deadline(UntilError(fano(), max_error=0.01), 5.0, "close"), 7)
    engine.open(0.0)
    assert engine.handle(TimerFired(0, 5.0), 5.0)[-1].outcome.error == "deadline"


def test_a_tracker_without_an_error_is_helped_by_the_codes_weights():
    class Counting:
        """Knows only when everything is here."""

        def __init__(self):
            self.seen = set()

        @property
        def decodable(self):
            return len(self.seen) == 7

        def add(self, message):
            self.seen.add(message)
            return Verdict(self.decodable)

        def missing(self):
            return ()

    class Plain(LinearGradientCode):
        def tracker(self):
            return Counting()

    code = Plain(FANO, exact=False)
    assert after(UntilError(code, max_error=0.09), 0, 1, 2, 3) is None
    assert after(UntilError(code, max_error=0.09), 0, 1, 2, 3, 4).error is None


def test_what_a_code_waits_for_unless_told_otherwise():
    class Patient(LinearGradientCode):
        @property
        def awaited(self):
            return 5

    assert type(natural_policy(get("mds", n_workers=4, k=3))) is UntilDecodable
    assert type(natural_policy(cyclic())) is UntilDecodable
    assert natural_policy(Patient(FANO, exact=False)).wait == 5
    assert natural_policy(fano()).wait == 7


def test_parameters_are_checked():
    for options, words in [
        ({"max_error": -0.1}, "max_error must be at least 0"),
        ({"max_error": float("nan")}, "max_error must be at least 0"),
        ({"wait": 0}, "wait must be an integer of at least 1"),
        ({"wait": 8}, "wait must be at most the number of workers, 7"),
    ]:
        with pytest.raises(InputError, match=words):
            UntilError(fano(), **options)
    with pytest.raises(InputError, match="n_workers=7, the engine has 6 slots"):
        Engine(UntilError(fano()), 6).open(0.0)


def test_actions_end_the_round():
    engine = Engine(UntilError(fano(), wait=1), 7)
    tasks = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    assert isinstance(engine.handle(Arrived(tasks[3]), 1.0)[-1], CloseRound)
