"""Every attempt issued ends exactly once, whatever happens in whatever order."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.engine import (
    AbortRound,
    Arrived,
    Backoff,
    Cancelled,
    CloseRound,
    Counts,
    Engine,
    Failed,
    Issue,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.policies import Deadline, FirstK, Speculate

N_SLOTS = 5


class Observed:
    """Follows an engine from outside, by its actions only."""

    def __init__(self, engine):
        self.engine = engine
        self.now = 0.0
        self.issued = {}
        self.ended = Counter()
        self.flying = []
        self.seen = []
        self.timers = []
        self.total = None
        self.records = []

    def carry_out(self, actions):
        for action in actions:
            if isinstance(action, Issue):
                key = (action.task.task_id, action.task.attempt)
                assert key not in self.issued, "an attempt was issued twice"
                self.issued[key] = action.task
                self.flying.append(action.task)
            elif isinstance(action, Void):
                for task in action.tasks:
                    self.flying.remove(task)
            elif isinstance(action, SetTimer) and action.at is not None:
                self.timers.append(action)
            elif isinstance(action, (CloseRound, AbortRound)):
                outcome = action.outcome
                assert outcome.counts.balanced
                assert all(a.task.version <= outcome.version for a in outcome.arrivals)
                self.total = outcome.counts if self.total is None else self.total + outcome.counts
                self.records += outcome.records

    def finish(self, task):
        self.flying.remove(task)
        self.seen.append(task)


policies = st.builds(
    lambda k, leftover, eager, speculate, deadline: _wrap(
        FirstK(k, leftover=leftover, eager=eager), speculate=speculate, deadline=deadline
    ),
    st.integers(1, N_SLOTS),
    st.sampled_from(["cancel", "keep"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "abort", "close"]),
)


def _wrap(policy, *, speculate, deadline):
    if speculate:
        policy = Speculate(policy, quantile=0.5, factor=1.0, min_seconds=0.0, max_copies=2)
    return policy if deadline is None else Deadline(policy, 6.0, deadline)


steps = st.lists(
    st.tuples(
        st.sampled_from(["arrive"] * 6 + ["fail", "fail for good", "again", "foreign", "timer", "old timer", "cancel"]),
        st.integers(0, 10**6),
        st.floats(0.0, 2.0),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(policy=policies, steps=steps, max_attempts=st.integers(1, 3), seed=st.integers(0, 5))
def test_conservation(policy, steps, max_attempts, seed):
    engine = Engine(policy, N_SLOTS, max_attempts=max_attempts, seed=seed, backoff=Backoff(base=0.5))
    seen = Observed(engine)
    for what, pick, dt in steps:
        if not engine.is_open and what != "again":  # that one may come between two rounds
            seen.carry_out(engine.open(seen.now))
        seen.now += dt
        _do(seen, what, pick)
        assert engine.counts.balanced
        assert engine.counts.outstanding == len(seen.flying) + len(engine.view.buffer)
        assert len(engine.view.in_flight()) == len(seen.flying) == len(list(engine.view.in_flight()))
    seen.now += 1.0
    if not engine.is_open:
        seen.carry_out(engine.open(seen.now))
    seen.carry_out(engine.handle(Cancelled("the end"), seen.now))
    if seen.total.outstanding:  # the last round closed while it opened, and kept things
        seen.carry_out(engine.handle(Cancelled("the end"), seen.now))
        return
    _check_books(seen)


def _do(seen, what, pick):
    engine, now = seen.engine, seen.now
    if what == "cancel":
        seen.carry_out(engine.handle(Cancelled("interrupted"), now))
    elif what == "again" and seen.seen:
        assert engine.handle(Arrived(seen.seen[pick % len(seen.seen)], body="twice"), now) == []
    elif what == "foreign":
        other = Engine(FirstK(1), 1, version=10**6)
        assert engine.handle(Arrived(other.open(0.0)[0].task), now) == []
    elif what in {"timer", "old timer"} and seen.timers:
        timer = seen.timers[-1] if what == "timer" else seen.timers[pick % len(seen.timers)]
        seen.now = max(now, timer.at)
        seen.carry_out(engine.handle(TimerFired(timer.version, timer.at), seen.now))
    elif what in {"arrive", "fail", "fail for good"} and seen.flying and engine.is_open:
        task = seen.flying[pick % len(seen.flying)]
        seen.finish(task)
        event = Arrived(task) if what == "arrive" else Failed(task, "lost", retryable=what == "fail")
        seen.carry_out(engine.handle(event, now))


def _check_books(seen):
    keys = [(r.task_id, r.attempt) for r in seen.records]
    assert len(keys) == len(set(keys)), "an attempt ended twice"
    assert set(keys) == set(seen.issued), "an attempt did not end"
    fates = Counter(r.fate for r in seen.records)
    total: Counts = seen.total
    assert fates["used"] == total.used
    assert fates["surplus"] == total.surplus
    assert fates["failed"] == total.failed == sum(total.failures.values())
    assert fates["voided"] == total.voided
    assert fates["withdrawn"] == total.withdrawn
    assert total.issued == len(keys) - total.withdrawn == total.ended
    used = {r.task_id for r in seen.records if r.fate == "used"}
    assert len(used) == fates["used"], "two attempts at one task were used"
    assert total.busy_used >= 0
    assert total.busy_wasted >= 0


def test_counts_add_up_over_rounds():
    a = Counts(issued=4, used=2, outstanding=2, busy_used=1.0, failures={"lost": 1})
    b = Counts(issued=1, used=2, carried=2, outstanding=1, failures={"lost": 1, "timeout": 2})
    total = a + b
    assert (total.issued, total.used, total.carried, total.outstanding) == (5, 4, 0, 1)
    assert total.failures == {"lost": 2, "timeout": 2}
    assert total.balanced
