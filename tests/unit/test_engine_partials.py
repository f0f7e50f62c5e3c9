# ruff: noqa: ARG001, ARG002, ARG005 - stand-ins must have the arguments of what they stand for
"""Partial results in the engine, its policies and its hosts."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import get
from serverless_gc.engine import (
    AbortRound,
    AioHost,
    Arrived,
    Cancelled,
    CloseRound,
    Completion,
    Engine,
    Failed,
    Issue,
    Progressed,
    TimerFired,
    VirtualHost,
    Void,
    milestones,
)
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import Stragglers
from serverless_gc.policies import Deadline, FirstK, KAsync, Speculate, UntilDecodable, WaitAll
from serverless_gc.stragglers import Constant, Injected
from serverless_gc.testing.jump_loop import run_virtually
from serverless_gc.types import Close, SeesPartials, Timing, Wait

CODE = get("uc-mmc", k=4, r=3)  # worker i: blocks i, i+1, i+2


def issued(actions):
    return [a.task for a in actions if isinstance(a, Issue)]


def opened(policy=None, **options):
    engine = Engine(policy or UntilDecodable(CODE), 4, **options)
    return engine, issued(engine.open(0.0))


class Collecting(FirstK):
    """Closes at the k-th result and takes what others have done so far."""

    def on_arrival(self, view, arrival):
        act = super().on_arrival(view, arrival)
        return Close(collect_partials=True) if isinstance(act, Close) else act


# -- the engine ------------------------------------------------------------------------------------------


def test_prefixes_of_unfinished_tasks_decide():
    engine, tasks = opened()
    assert engine.handle(Progressed(tasks[0], (0,), body="a"), 1.0) == []
    assert engine.handle(Progressed(tasks[2], (0, 1), body="b"), 2.0) == []
    void, close = engine.handle(Progressed(tasks[0], (1,), body="c"), 3.0)
    assert isinstance(void, Void)
    assert len(void.tasks) == 4
    outcome = close.outcome
    assert outcome.arrivals == ()
    assert [(p.task.slot, p.messages, p.body) for p in outcome.partials] == [
        (0, (0,), "a"),
        (0, (1,), "c"),
        (2, (0, 1), "b"),
    ]
    counts = outcome.counts
    assert (counts.issued, counts.voided, counts.used, counts.partial_messages) == (4, 4, 0, 4)
    assert counts.balanced


def test_a_result_takes_the_place_of_its_parts():
    engine, tasks = opened()
    engine.handle(Progressed(tasks[0], (0,)), 1.0)
    engine.handle(Arrived(tasks[0]), 2.0)
    close = engine.handle(Progressed(tasks[3], (0,)), 3.0)[-1]
    assert [a.task.slot for a in close.arrivals] == [0]
    assert [p.task.slot for p in close.outcome.partials] == [3]
    assert close.outcome.counts.partial_messages == 1
    assert (close.outcome.counts.used, close.outcome.counts.voided) == (1, 3)


def test_a_closing_arrival_takes_the_parts_that_counted():
    engine, tasks = opened()
    engine.handle(Progressed(tasks[3], (0,)), 1.0)
    close = engine.handle(Arrived(tasks[0]), 2.0)[-1]
    assert isinstance(close, CloseRound)
    assert [(p.task.slot, p.messages) for p in close.outcome.partials] == [(3, (0,))]


def test_repeated_late_and_stale_parts_change_nothing_and_are_counted():
    engine, tasks = opened()
    engine.handle(Progressed(tasks[0], (0, 0, 1)), 1.0)
    assert engine.handle(Progressed(tasks[0], (1, 0)), 1.1) == []
    assert engine.counts.late_partials == 1
    engine.handle(Arrived(tasks[1]), 2.0)
    outcome = engine.last
    assert outcome.counts.partial_messages == 2
    assert outcome.counts.late_partials == 1
    # All of round 0 is over; its parts come late into round 1 and between the rounds.
    assert engine.handle(Progressed(tasks[2], (0,)), 3.0) == []
    new = issued(engine.open(4.0))
    assert engine.handle(Progressed(tasks[2], (0,)), 5.0) == []
    assert engine.counts.late_partials == 2
    engine.handle(Arrived(new[0]), 6.0)
    assert engine.handle(Progressed(new[0], (2,)), 7.0) == []
    assert engine.counts.late_partials == 3
    assert (outcome.counts + engine.counts).late_partials == 4


def test_only_what_is_new_is_told_and_only_to_policies_that_look():
    told = []

    class Looking(WaitAll):
        def on_partial(self, view, task, messages):
            told.append((task.slot, messages, len(view.in_flight())))
            return Wait()

    engine, tasks = opened(Looking())
    engine.handle(Progressed(tasks[1], (0, 1)), 1.0)
    engine.handle(Progressed(tasks[1], (1, 2)), 1.0)
    assert told == [(1, (0, 1), 4), (1, (2,), 4)]
    blind, tasks = opened(WaitAll())
    assert blind.handle(Progressed(tasks[1], (0, 1)), 1.0) == []
    assert not isinstance(blind.policy, SeesPartials)


def test_parts_of_a_failed_task_stay_valid():
    engine, tasks = opened(max_attempts=1)
    engine.handle(Progressed(tasks[3], (0,)), 1.0)
    engine.handle(Failed(tasks[3], "function", "killed"), 2.0)
    engine.handle(Progressed(tasks[3], (1,)), 2.5)  # found only now
    close = engine.handle(Progressed(tasks[1], (0, 1)), 3.0)[-1]
    assert [(p.task.slot, p.messages) for p in close.outcome.partials] == [(3, (0,)), (3, (1,)), (1, (0, 1))]
    counts = close.outcome.counts
    assert (counts.failed, counts.voided, counts.partial_messages) == (1, 3, 4)
    assert counts.balanced


def test_a_retry_adds_to_what_the_first_attempt_published():
    engine, tasks = opened(FirstK(4))
    engine.handle(Progressed(tasks[0], (0,)), 1.0)
    [retry] = issued(engine.handle(Failed(tasks[0], "lost"), 2.0))
    engine.handle(Progressed(retry, (0, 1)), 3.0)
    assert engine.counts.late_partials == 0
    engine.handle(Progressed(tasks[0], (1,)), 3.5)
    assert engine.counts.late_partials == 1


def test_collecting_takes_nothing_of_finished_tasks_and_forgets():
    engine, tasks = opened(Collecting(2))
    engine.handle(Progressed(tasks[0], (0,)), 1.0)
    engine.handle(Progressed(tasks[1], (0, 1)), 1.0)
    engine.handle(Arrived(tasks[0]), 2.0)
    close = engine.handle(Arrived(tasks[2]), 3.0)[-1]
    assert [(p.task.slot, p.messages) for p in close.outcome.partials] == [(1, (0, 1))]
    tasks = issued(engine.open(4.0))
    engine.handle(Arrived(tasks[0]), 5.0)
    assert engine.handle(Arrived(tasks[1]), 5.0)[-1].outcome.partials == ()


def test_kept_tasks_keep_their_parts_until_they_are_taken():
    class Keeping(Collecting):
        def __init__(self):
            super().__init__(1, leftover="keep")

    engine, tasks = opened(Keeping())
    engine.handle(Progressed(tasks[1], (0,)), 1.0)
    assert [p.messages for p in engine.handle(Arrived(tasks[0]), 2.0)[-1].outcome.partials] == [(0,)]
    assert engine.handle(Progressed(tasks[1], (0, 1)), 2.5) == []  # between two rounds
    [new] = issued(engine.open(3.0))
    close = engine.handle(Arrived(new), 4.0)[-1]
    assert [(p.task.version, p.messages) for p in close.outcome.partials] == [(0, (1,))]
    quiet, tasks = opened(KAsync(1))
    quiet.handle(Progressed(tasks[1], (0,)), 1.0)
    assert quiet.handle(Arrived(tasks[0]), 2.0)[-1].outcome.partials == ()


def test_an_aborted_round_uses_nothing():
    engine, tasks = opened()
    engine.handle(Progressed(tasks[0], (0,)), 1.0)
    abort = engine.handle(Cancelled("enough"), 2.0)[-1]
    assert isinstance(abort, AbortRound)
    assert abort.outcome.partials == ()
    assert abort.outcome.counts.partial_messages == 0


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_conservation_with_parts_in_any_order(data):
    engine, tasks = opened(Deadline(UntilDecodable(CODE, margin=data.draw(st.integers(0, 2))), 50.0))
    flying, done = list(tasks), {t.slot: set() for t in tasks}
    for now in range(1, 15):
        if not engine.is_open or not flying:
            break
        task = data.draw(st.sampled_from(flying))
        kind = data.draw(st.sampled_from(["part", "part", "part", "arrive", "fail"]))
        if kind == "part":
            places = data.draw(st.sets(st.integers(0, 2), max_size=3))
            done[task.slot] |= places
            actions = engine.handle(Progressed(task, tuple(sorted(places))), float(now))
        else:
            event = Arrived(task) if kind == "arrive" else Failed(task, "lost")
            actions = engine.handle(event, float(now))
            flying.remove(task)
        flying += issued(actions)
    if engine.is_open:
        engine.handle(Cancelled("no more"), 20.0)
    outcome = engine.last
    assert outcome.counts.balanced
    assert outcome.counts.outstanding == 0
    assert outcome.counts.partial_messages == sum(len(p.messages) for p in outcome.partials)
    arrived = {a.task.slot for a in outcome.arrivals}
    taken = {}
    for part in outcome.partials:
        assert part.task.slot not in arrived
        assert not taken.setdefault(part.task.slot, set()) & set(part.messages)
        taken[part.task.slot] |= set(part.messages)
    assert all(taken[slot] <= done[slot] for slot in taken)
    if outcome.error is None:
        here = [CODE.placement(slot) for slot in arrived]
        here += [[CODE.placement(slot)[p] for p in places] for slot, places in taken.items()]
        assert {m for messages in here for m in messages} == set(range(4))


# -- policies --------------------------------------------------------------------------------------------


def test_margin_counts_partial_results():
    engine, tasks = opened(UntilDecodable(CODE, margin=1))
    engine.handle(Progressed(tasks[0], (0, 1)), 1.0)
    assert engine.handle(Progressed(tasks[2], (0, 1)), 2.0) == []
    close = engine.handle(Progressed(tasks[2], (2,)), 3.0)[-1]
    assert sum(len(p.messages) for p in close.outcome.partials) == 5


def test_tolerance_waits_for_further_messages():
    code = get("lcc-mmc", n_workers=20, k=10, r=3)

    def used(tolerance):
        policy = UntilDecodable(code, tolerance=tolerance, max_extra=100)
        engine = Engine(policy, 20, milestones=lambda slot: milestones(3, 1))
        [outcome] = VirtualHost(Ramp(), seed=1).simulate(engine, 1)
        return outcome.counts.partial_messages + 3 * outcome.counts.used

    assert used(None) < used(1e-14)


def test_unknown_places_are_refused():
    for places in ((3,), (-1,)):
        engine, tasks = opened()
        with pytest.raises(InputError, match=r"slot 0 has messages 0\.\.2"):
            engine.handle(Progressed(tasks[0], places), 1.0)


def test_deadline_and_speculation_pass_parts_on():
    engine, tasks = opened(Deadline(Speculate(UntilDecodable(CODE)), 10.0))
    engine.handle(Progressed(tasks[0], (0, 1)), 1.0)
    close = engine.handle(Progressed(tasks[2], (0, 1)), 2.0)[-1]
    assert close.outcome.counts.partial_messages == 4
    closing, tasks = opened(Deadline(UntilDecodable(CODE), 10.0, "close"))
    closing.handle(Progressed(tasks[0], (0,)), 1.0)
    close = closing.handle(TimerFired(0, 10.0), 10.0)[-1]
    assert [p.messages for p in close.outcome.partials] == [(0,)]
    late, tasks = opened(Deadline(UntilDecodable(CODE), 10.0))
    assert isinstance(late.handle(Progressed(tasks[0], (0,)), 11.0)[-1], AbortRound)
    blind, tasks = opened(Speculate(WaitAll()))
    assert blind.handle(Progressed(tasks[0], (0,)), 1.0) == []


# -- hosts -----------------------------------------------------------------------------------------------


class Ramp:
    """Slot i needs (i + 1) seconds for each message, after half a second of start and before a tenth of write."""

    def sample(self, slot, k, work, rng):
        return Timing(start=0.4, read=0.1, compute=3.0 * (slot + 1), write=0.1)


def test_milestones():
    assert milestones(3, 1) == (1 / 3, 2 / 3)
    assert milestones(7, 3) == (3 / 7, 3 / 7, 3 / 7, 6 / 7, 6 / 7, 6 / 7)
    assert milestones(6, 3) == (0.5, 0.5, 0.5)
    assert milestones(3, 3) == milestones(3, 0) == milestones(0, 2) == ()
    with pytest.raises(InputError, match="publish"):
        milestones(3, -1)
    with pytest.raises(InputError, match="messages"):
        milestones(-3, 1)


def test_virtual_parts_are_there_at_their_milestones():
    seen = []

    async def execute(task):
        seen.append(task.slot)
        return Completion(body=f"result {task.slot}")

    events = []
    engine = Engine(WaitAll(), 2, milestones=lambda slot: milestones(3, 1))
    host = VirtualHost(Ramp())
    coro = host.run(engine, execute, on_event=lambda event, t: events.append((event, t)))
    outcome = asyncio.run(coro)
    times = [(e.task.slot, e.messages, t) for e, t in events if isinstance(e, Progressed)]
    assert times == [
        (0, (0,), pytest.approx(1.6)),
        (0, (1,), pytest.approx(2.6)),
        (1, (0,), pytest.approx(2.6)),
        (1, (1,), pytest.approx(4.6)),
    ]
    assert [(a.body, a.t_arrived) for a in outcome.arrivals] == [
        ("result 0", pytest.approx(3.6)),
        ("result 1", pytest.approx(6.6)),
    ]
    assert seen == [0, 1]  # the work is done once for all parts


@pytest.mark.parametrize("publish", [1, 2])
def test_virtual_completion_equals_the_closed_form(publish):
    code = get("uc-mmc", k=6, r=3)
    engine = Engine(UntilDecodable(code), 6, milestones=lambda slot: milestones(3, publish))
    [outcome] = VirtualHost(Ramp()).simulate(engine, 1)

    def ready(slot, place):
        return 0.6 + (slot + 1) * min(3, place // publish * publish + publish)

    block = [min(ready(s, p) for s in range(6) for p in range(3) if code.placement(s)[p] == b) for b in range(6)]
    assert outcome.t_close == pytest.approx(max(block))
    assert outcome.counts.partial_messages > 0


def test_a_virtual_attempt_that_fails_publishes_nothing_and_fails_at_its_end():
    async def execute(task):
        if task.slot == 0 and task.attempt == 0:
            raise InvokeError("boom", kind="function")
        return Completion()

    events = []
    engine = Engine(WaitAll(), 2, milestones=lambda slot: milestones(3, 1))
    coro = VirtualHost(Ramp()).run(engine, execute, on_event=lambda event, t: events.append((event, t)))
    outcome = asyncio.run(coro)
    failed = [(e.task.slot, t) for e, t in events if isinstance(e, Failed)]
    assert failed == [(0, pytest.approx(3.6))]
    assert {(e.task.slot, e.task.attempt) for e, _ in events if isinstance(e, Progressed)} == {(0, 1), (1, 0)}
    assert outcome.counts.failed == 1


def test_endless_work_has_no_parts():
    engine = Engine(UntilDecodable(CODE), 4, milestones=lambda slot: milestones(3, 1))

    class Never:
        def sample(self, slot, k, work, rng):
            return Timing(compute=np.inf)

    [outcome] = VirtualHost(Never()).simulate(engine, 1)
    assert outcome.error == "starved"


def test_injected_stragglers_slow_the_work_between_messages():
    model = Injected(Constant(0.3), Stragglers(fraction={0}, slowdown=10, base=0.9))
    engine = Engine(UntilDecodable(get("uc-mmc", k=2, r=2)), 2, milestones=lambda slot: milestones(2, 1))
    task = issued(engine.open(0.0))[0]
    timing = model.sample_task(task, np.random.default_rng(0))
    assert (timing.start, timing.total) == (pytest.approx(0.0), pytest.approx(9.0))
    plain = model.sample(0, 0, 1.0, np.random.default_rng(0))
    assert (plain.start, plain.total) == (pytest.approx(6.0), pytest.approx(9.0))


def test_the_loop_takes_what_a_watch_posts_until_the_round_ends():
    ended = []

    async def execute(task):
        await asyncio.sleep(100.0)

    async def watch(post):
        try:
            await asyncio.sleep(1.0)
            post(Progressed(tasks[0], (0, 1)))
            await asyncio.sleep(1.0)
            post(Progressed(tasks[2], (0, 1)))
            await asyncio.sleep(1000.0)
        finally:
            ended.append("watch")

    tasks = {}

    def on_event(event, t):
        if isinstance(event, Issue):
            tasks[event.task.slot] = event.task

    async def main():
        return await AioHost().run(Engine(UntilDecodable(CODE), 4), execute, on_event=on_event, watch=watch)

    outcome = run_virtually(main())
    assert outcome.duration == pytest.approx(2.0)
    assert outcome.counts.partial_messages == 4
    assert outcome.counts.voided == 4
    assert ended == ["watch"]


def test_a_bug_in_the_watch_ends_the_round():
    async def watch(post):
        raise ZeroDivisionError

    async def execute(task):
        await asyncio.sleep(100.0)

    with pytest.raises(ZeroDivisionError):
        run_virtually(AioHost().run(Engine(WaitAll(), 2), execute, watch=watch))
