# ruff: noqa: ARG005 - stand-ins must have the arguments of what they stand for
"""The round engine under hand-made events."""

import pytest

from serverless_gc.engine import (
    AbortRound,
    Arrived,
    Backoff,
    Cancelled,
    CloseRound,
    Engine,
    Failed,
    Issue,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.errors import InputError
from serverless_gc.policies import FirstK, KAsync, KBatchAsync, KBatchSync, KSync, LocallyAsync, WaitAll
from serverless_gc.types import Abort, Close, TaskSpec, Wait


class Rule:
    """A policy whose answers are given by the test."""

    def __init__(self, *, leftover="cancel", on_arrival=None, on_timer=None, timer=None, on_failure=None):
        self.leftover = leftover
        self._on_arrival = on_arrival or (lambda view, arrival: Wait())
        self._on_failure = on_failure or (lambda view, task: Wait())
        self._on_timer = on_timer or (lambda view: Wait())
        self._timer = timer or (lambda view: None)

    def open(self, view):
        return [view.new_task(slot) for slot in view.idle_slots()]

    def on_arrival(self, view, arrival):
        return self._on_arrival(view, arrival)

    def on_failure(self, view, task):
        return self._on_failure(view, task)

    def timer(self, view):
        return self._timer(view)

    def on_timer(self, view):
        return self._on_timer(view)


def issued(actions):
    return [a.task for a in actions if isinstance(a, Issue)]


def only(actions, kind):
    [action] = [a for a in actions if isinstance(a, kind)]
    return action


def test_first_k_closes_voids_the_rest_and_balances():
    engine = Engine(KSync(2), 4)
    tasks = issued(engine.open(10.0))
    assert [t.slot for t in tasks] == [0, 1, 2, 3]
    assert {t.version for t in tasks} == {0}
    assert len({t.task_id for t in tasks}) == len({t.seed for t in tasks}) == 4
    assert engine.handle(Arrived(tasks[2], body="c"), 11.0) == []
    void, close = engine.handle(Arrived(tasks[0], body="a"), 13.0)
    assert isinstance(void, Void)
    assert [t.slot for t in void.tasks] == [1, 3]
    outcome = close.outcome
    assert [(a.body, a.t_issued, a.t_arrived) for a in outcome.arrivals] == [("c", 10.0, 11.0), ("a", 10.0, 13.0)]
    assert (outcome.t_open, outcome.t_close, outcome.duration, outcome.error) == (10.0, 13.0, 3.0, None)
    c = outcome.counts
    assert (c.issued, c.used, c.surplus, c.failed, c.voided, c.late, c.outstanding) == (4, 2, 0, 0, 2, 0, 0)
    assert (c.busy_used, c.busy_wasted) == (4.0, 6.0)
    assert c.balanced
    assert sorted((r.slot, r.fate, r.t_end) for r in outcome.records) == [
        (0, "used", 13.0),
        (1, "voided", 13.0),
        (2, "used", 11.0),
        (3, "voided", 13.0),
    ]


def test_next_round_carries_the_new_version_and_all_slots():
    engine = Engine(KSync(1), 3)
    first = issued(engine.open(0.0))
    engine.handle(Arrived(first[0]), 1.0)
    assert engine.version == 1
    second = issued(engine.open(1.0))
    assert [(t.slot, t.version) for t in second] == [(0, 1), (1, 1), (2, 1)]
    assert not {t.task_id for t in first} & {t.task_id for t in second}
    assert not {t.seed for t in first} & {t.seed for t in second}


def test_late_reply_of_an_older_round_is_dropped_and_counted():
    engine = Engine(KSync(1), 3)
    first = issued(engine.open(0.0))
    engine.handle(Arrived(first[0]), 1.0)
    second = issued(engine.open(1.0))
    assert engine.handle(Arrived(first[1], body="stale"), 1.5) == []
    assert engine.handle(Arrived(first[0], body="stale, consumed"), 1.6) == []
    outcome = only(engine.handle(Arrived(second[2], body="fresh"), 2.0), CloseRound).outcome
    assert [a.body for a in outcome.arrivals] == ["fresh"]
    assert outcome.counts.late == 2
    assert outcome.counts.balanced


def test_second_arrival_of_a_buffered_task_is_a_duplicate():
    engine = Engine(KSync(2), 3)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0], body="first"), 1.0)
    assert engine.handle(Arrived(tasks[0], body="again"), 1.1) == []
    outcome = only(engine.handle(Arrived(tasks[1]), 2.0), CloseRound).outcome
    assert [a.body for a in outcome.arrivals] == ["first", None]
    assert (outcome.counts.duplicates, outcome.counts.late) == (1, 0)


def test_cancel_empties_the_buffer_of_what_was_not_consumed():
    # one consumed per round: with the buffer kept, the second round would close on the first one's spare arrival
    engine = Engine(Rule(on_arrival=lambda v, a: Close((v.buffer[-1],)) if len(v.buffer) == 2 else Wait()), 3)
    for version in range(2):
        tasks = issued(engine.open(float(version)))
        assert engine.view.buffer == []
        engine.handle(Arrived(tasks[0]), version + 0.1)
        outcome = only(engine.handle(Arrived(tasks[1]), version + 0.2), CloseRound).outcome
        assert [a.task for a in outcome.arrivals] == [tasks[1]]
        assert (outcome.counts.used, outcome.counts.surplus, outcome.counts.voided) == (1, 1, 1)


def test_keep_leaves_the_rest_in_flight_and_open_uses_idle_slots_only():
    engine = Engine(KAsync(1), 3)
    first = issued(engine.open(0.0))
    [close] = engine.handle(Arrived(first[1]), 1.0)
    assert (close.outcome.counts.outstanding, close.outcome.counts.voided) == (2, 0)
    second = issued(engine.open(1.0))
    assert [(t.slot, t.version) for t in second] == [(1, 1)]
    [close] = engine.handle(Arrived(first[0]), 2.0)
    assert [a.task.version for a in close.arrivals] == [0]
    assert close.outcome.version == 1
    c = close.outcome.counts
    assert (c.carried, c.issued, c.used, c.outstanding) == (2, 1, 1, 2)
    assert c.balanced


def test_keep_carries_unconsumed_arrivals_over():
    engine = Engine(
        Rule(leftover="keep", on_arrival=lambda v, a: Close((v.buffer[0],)) if len(v.buffer) == 2 else Wait()), 3
    )
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0], body=0), 1.0)
    engine.handle(Arrived(tasks[1], body=1), 2.0)
    assert [a.body for a in engine.view.buffer] == [1]
    assert engine.handle(Arrived(tasks[1], body="again"), 2.5) == []  # between two rounds
    engine.open(3.0)
    outcome = only(engine.handle(Arrived(tasks[2], body=2), 4.0), CloseRound).outcome
    assert [a.body for a in outcome.arrivals] == [1]
    assert outcome.counts.duplicates == 1
    assert outcome.counts.carried == 2
    assert outcome.counts.balanced


def test_keep_arrivals_between_rounds_belong_to_the_next():
    engine = Engine(KAsync(1), 2)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    assert engine.handle(Arrived(tasks[1], body="while the model was updated"), 1.5) == []
    actions = engine.open(2.0)
    assert [t.slot for t in issued(actions)] == [0]  # slot 1 was not idle when the round opened
    outcome = only(actions, CloseRound).outcome
    assert [(a.body, a.t_arrived) for a in outcome.arrivals] == [("while the model was updated", 1.5)]


def test_eager_slot_gets_another_task_of_the_same_version():
    engine = Engine(KBatchSync(3), 2)
    tasks = issued(engine.open(0.0))
    [again] = issued(engine.handle(Arrived(tasks[0]), 1.0))
    assert (again.slot, again.version, again.attempt) == (0, 0, 0)
    assert again.task_id != tasks[0].task_id
    assert again.seed != tasks[0].seed
    [third] = issued(engine.handle(Arrived(again), 2.0))
    assert len({tasks[0].task_id, again.task_id, third.task_id}) == 3
    assert len(only(engine.handle(Arrived(tasks[1]), 3.0), CloseRound).arrivals) == 3


def test_task_issued_after_a_close_carries_the_new_version_when_eager():
    engine = Engine(KBatchAsync(1), 2)
    tasks = issued(engine.open(0.0))
    assert issued(engine.handle(Arrived(tasks[0]), 1.0)) == []
    assert [(t.slot, t.version) for t in issued(engine.open(1.0))] == [(0, 1)]


def test_failed_attempt_is_repeated_with_the_same_seed_after_a_jittered_wait():
    engine = Engine(KSync(2), 2, max_attempts=3, backoff=Backoff(base=1.0))
    task = issued(engine.open(0.0))[0]
    [again] = engine.handle(Failed(task, "throttled", "429"), 1.0)
    assert isinstance(again, Issue)
    assert (again.task.task_id, again.task.seed, again.task.attempt) == (task.task_id, task.seed, 1)
    assert 0 < again.delay < 1
    [third] = engine.handle(Failed(again.task, "throttled", "429"), 5.0)
    assert third.task.attempt == 2
    assert 0 < third.delay < 2
    actions = engine.handle(Failed(third.task, "function", "out of memory"), 9.0)
    outcome = only(actions, AbortRound).outcome
    assert outcome.error == "starved"
    assert outcome.failures == {0: "function: out of memory (3 attempts)"}
    assert dict(outcome.counts.failures) == {"throttled": 2, "function": 1}
    assert (outcome.counts.issued, outcome.counts.retries, outcome.counts.failed, outcome.counts.voided) == (4, 2, 3, 1)


def test_jitter_is_seeded():
    def delays(seed):
        engine = Engine(KSync(1), 3, seed=seed)
        return [a.delay for t in issued(engine.open(0.0)) for a in engine.handle(Failed(t, "lost"), 1.0)]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
    assert len(set(delays(1))) == 3


def test_failure_that_no_retry_mends_gives_the_slot_up_at_once():
    engine = Engine(KSync(1), 2, max_attempts=5)
    a, b = issued(engine.open(0.0))
    assert engine.handle(Failed(a, "denied", "no", retryable=False), 1.0) == []
    assert dict(engine.view.failures) == {0: ("denied", "no")}
    assert engine.view.idle_slots() == [0]
    outcome = only(engine.handle(Failed(b, "denied", "no", retryable=False), 1.0), AbortRound).outcome
    assert "slot 0 denied: no" in outcome.reason


def test_policy_that_waits_for_nothing_is_starved_not_hung():
    engine = Engine(Rule(), 2)
    a, b = issued(engine.open(0.0))
    engine.handle(Arrived(a), 1.0)
    outcome = only(engine.handle(Arrived(b), 2.0), AbortRound).outcome
    assert outcome.error == "starved"
    assert (outcome.counts.surplus, outcome.counts.outstanding) == (2, 0)
    assert engine.version == 0


def test_policy_that_issues_nothing_is_starved():
    rule = Rule()
    rule.open = lambda view: []
    assert only(Engine(rule, 2).open(0.0), AbortRound).outcome.error == "starved"


def test_pending_retry_is_not_starvation_and_is_withdrawn_when_the_round_ends():
    engine = Engine(WaitAll(), 2, max_attempts=2, backoff=Backoff(base=10.0, cap=10.0), seed=3)
    a, b = issued(engine.open(0.0))
    [retry_a] = engine.handle(Failed(a, "unavailable"), 1.0)
    [retry_b] = engine.handle(Failed(b, "unavailable"), 1.0)
    assert min(retry_a.delay, retry_b.delay) > 0
    void, abort = engine.handle(Cancelled("interrupted"), 1.0)
    assert {t.attempt for t in void.tasks} == {1}
    c = abort.outcome.counts
    assert (abort.outcome.error, abort.outcome.reason) == ("cancelled", "interrupted")
    assert (c.issued, c.failed, c.voided, c.withdrawn, c.retries, c.busy_wasted) == (2, 2, 0, 2, 0, 2.0)
    assert c.balanced
    assert engine.last is abort.outcome


def test_round_after_an_abort_uses_other_task_ids_for_the_same_version():
    engine = Engine(KSync(1), 2)
    first = issued(engine.open(0.0))
    engine.handle(Cancelled("interrupted"), 1.0)
    second = issued(engine.open(2.0))
    assert {t.version for t in second} == {0}
    assert not {t.task_id for t in first} & {t.task_id for t in second}
    assert engine.handle(Arrived(first[0], body="of the aborted round"), 3.0) == []
    assert engine.counts.late == 1


def test_copy_shares_the_task_and_the_first_result_voids_the_other():
    engine = Engine(
        Rule(
            timer=lambda v: 1.0,
            on_timer=lambda v: Wait((v.new_task(0),)),
            on_arrival=lambda v, a: Close() if len(v.buffer) == 2 else Wait(),
        ),
        2,
    )
    actions = engine.open(0.0)
    original, other = issued(actions)
    timer = only(actions, SetTimer)
    [issue] = [a for a in engine.handle(TimerFired(timer.version, timer.at), 1.0) if isinstance(a, Issue)]
    copy = issue.task
    assert (copy.task_id, copy.seed, copy.attempt) == (original.task_id, original.seed, 1)
    void = only(engine.handle(Arrived(copy, body="copy"), 2.0), Void)
    assert void.tasks == (original,)
    assert engine.handle(Arrived(original, body="original"), 2.5) == []
    outcome = only(engine.handle(Arrived(other), 3.0), CloseRound).outcome
    c = outcome.counts
    assert [a.body for a in outcome.arrivals] == ["copy", None]
    assert (c.issued, c.copies, c.used, c.voided, c.duplicates, c.late) == (3, 1, 2, 1, 1, 0)


def test_failure_of_one_of_two_attempts_is_no_reason_to_retry():
    engine = Engine(Rule(timer=lambda v: 1.0, on_timer=lambda v: Wait((v.new_task(0),))), 1, max_attempts=2)
    [original] = issued(engine.open(0.0))
    [copy] = issued(engine.handle(TimerFired(0, 1.0), 1.0))
    assert engine.handle(Failed(original, "lost"), 2.0) == []
    outcome = only(engine.handle(Failed(copy, "lost"), 3.0), AbortRound).outcome
    assert (outcome.counts.failed, outcome.counts.retries) == (2, 0)


def test_timers_of_older_rounds_and_replaced_timers_are_ignored():
    asked = []
    rule = Rule(
        timer=lambda v: 5.0 if not v.buffer else 7.0,
        on_timer=lambda v: asked.append(v.now) or Wait(),
        on_arrival=lambda v, a: Close() if len(v.buffer) == 2 else Wait(),
    )
    engine = Engine(rule, 3)
    actions = engine.open(0.0)
    assert only(actions, SetTimer) == SetTimer(5.0, 0)
    tasks = issued(actions)
    assert engine.handle(Arrived(tasks[0]), 1.0) == [SetTimer(7.0, 0)]
    assert engine.handle(TimerFired(0, 5.0), 5.0) == []
    engine.handle(Arrived(tasks[1]), 6.0)
    assert engine.handle(TimerFired(0, 7.0), 7.0) == []  # between two rounds
    engine.open(7.0)
    assert engine.handle(TimerFired(0, 7.0), 7.5) == []
    assert asked == []
    engine.handle(TimerFired(1, 12.0), 12.0)
    assert asked == [12.0]


def test_timer_of_an_older_round_is_told_by_its_version_even_at_the_same_time():
    asked = []
    engine = Engine(Rule(timer=lambda v: 5.0, on_timer=asked.append, on_arrival=lambda v, a: Close()), 2)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 0.0)
    assert only(engine.open(0.0), SetTimer) == SetTimer(5.0, 1)
    assert engine.handle(TimerFired(0, 5.0), 5.0) == []
    assert asked == []


def test_restarted_engine_issues_the_same_tasks():
    engine = Engine(KBatchSync(2), 2, seed=4)
    for _ in range(3):
        tasks = issued(engine.open(0.0))
        tasks += issued(engine.handle(Arrived(tasks[0]), 0.0))
        engine.handle(Arrived(tasks[-1]), 0.0)
    tasks = issued(engine.open(0.0))
    again = issued(Engine(KBatchSync(2), 2, seed=4, version=3).open(0.0))
    assert tasks == again
    assert tasks != issued(Engine(KBatchSync(2), 2, seed=5, version=3).open(0.0))


def test_timer_that_repeats_itself_does_not_spin():
    engine = Engine(Rule(timer=lambda v: 1.0), 1)
    assert only(engine.open(0.0), SetTimer).at == 1.0
    assert engine.handle(TimerFired(0, 1.0), 1.0) == []


def test_timer_early_by_the_resolution_of_the_clock_counts_as_on_time():
    seen = []
    engine = Engine(Rule(timer=lambda v: 1.0, on_timer=lambda v: seen.append(v.now) or Wait()), 1)
    engine.open(0.0)
    engine.handle(TimerFired(0, 1.0), 1.0 - 1e-9)
    assert seen == [1.0]


def test_abort_of_the_policy_names_its_kind():
    engine = Engine(Rule(on_arrival=lambda v, a: Abort("too late", "deadline")), 2)
    tasks = issued(engine.open(0.0))
    outcome = only(engine.handle(Arrived(tasks[0]), 1.0), AbortRound).outcome
    assert (outcome.error, outcome.reason, outcome.arrivals) == ("deadline", "too late", ())
    assert (outcome.counts.surplus, outcome.counts.voided) == (1, 1)


def test_history_and_clock_are_seen_by_the_policy():
    views = []
    engine = Engine(
        Rule(on_arrival=lambda v, a: views.append((v.now, v.round_start, list(v.history))) or Close()),
        2,
        history=[0.5, 0.25],
        history_limit=2,
    )
    tasks = issued(engine.open(3.0))
    engine.loss_estimate = 1.5
    engine.handle(Arrived(tasks[0]), 5.0)
    assert views == [(5.0, 3.0, [0.25, 2.0])]
    assert engine.view.loss_estimate == engine.loss_estimate == 1.5


def test_closing_without_any_arrival_advances_the_version():
    engine = Engine(Rule(timer=lambda v: 1.0, on_timer=lambda v: Close()), 2)
    engine.open(0.0)
    outcome = only(engine.handle(TimerFired(0, 1.0), 1.0), CloseRound).outcome
    assert outcome.arrivals == ()
    assert engine.version == 1


def test_cancelling_between_rounds_voids_what_was_kept():
    engine = Engine(KAsync(1), 3)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    void = only(engine.handle(Cancelled("closed"), 2.0), Void)
    assert list(void.tasks) == tasks[1:]
    assert engine.counts.voided == 2
    assert engine.counts.balanced


def test_misuse_is_refused():
    with pytest.raises(InputError, match="n_slots must be an integer of at least 1, got 0"):
        Engine(FirstK(1), 0)
    with pytest.raises(InputError, match="max_attempts"):
        Engine(FirstK(1), 1, max_attempts=0)
    with pytest.raises(InputError, match="seed must be an integer of at least 0, got -1"):
        Engine(FirstK(1), 1, seed=-1)
    with pytest.raises(InputError, match="backoff base"):
        Backoff(base=-1.0)
    engine = Engine(FirstK(1), 2)
    engine.open(0.0)
    with pytest.raises(RuntimeError, match="still open"):
        engine.open(1.0)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda v, a: Wait((a.task, a.task)), "was issued before"),
        (lambda v, a: Wait((TaskSpec("x", slot=9, version=0),)), "slot must be in 0..1"),
        (lambda v, a: Close((a, a)), "each once"),
    ],
)
def test_policy_errors_are_refused(act, message):
    engine = Engine(Rule(on_arrival=act), 2)
    tasks = issued(engine.open(0.0))
    with pytest.raises(InputError, match=message):
        engine.handle(Arrived(tasks[0]), 1.0)
    assert only(engine.handle(Cancelled("cleaning up"), 2.0), AbortRound).outcome.counts.balanced


def test_policy_timer_before_the_round_is_refused():
    with pytest.raises(InputError, match="timer must be at least 0"):
        Engine(Rule(timer=lambda v: -1.0), 1).open(0.0)


def test_what_a_policy_held_back_is_surplus_once_the_engine_is_closed():
    engine = Engine(LocallyAsync([[0, 1], [2]], period=1), 3)
    tasks = issued(engine.open(0.0))
    engine.handle(Arrived(tasks[0]), 1.0)
    engine.open(1.0)
    assert engine.handle(Arrived(tasks[1]), 2.0) == []  # its group has made its update
    [close] = engine.handle(Arrived(tasks[2]), 3.0)
    assert close.outcome.counts.outstanding == 1
    engine.handle(Cancelled("closed"), 4.0)
    counts = engine.counts
    assert (counts.carried, counts.surplus, counts.outstanding) == (1, 1, 0)
    assert counts.balanced
