# ruff: noqa: ARG001, ARG002 - stand-ins must have the arguments of what they stand for
"""The asyncio host on a virtual loop, and the agreement of all hosts."""

import asyncio
import logging
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.engine import (
    AbortRound,
    AioHost,
    Arrived,
    Backoff,
    CloseRound,
    Completion,
    Engine,
    Failed,
    Issue,
    SetTimer,
    TimerFired,
    VirtualHost,
    Void,
)
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import draw
from serverless_gc.policies import Deadline, FirstK, KAsync, KSync, Speculate, WaitAll
from serverless_gc.testing.jump_loop import JumpLoop, run_virtually
from serverless_gc.types import Timing


def sleeping(seconds):
    """Make an ``execute`` that sleeps as a table or a function says."""

    async def execute(task):
        await asyncio.sleep(seconds(task) if callable(seconds) else seconds[task.slot])
        return Completion(body=task.slot, stats={"attempt": task.attempt})

    return execute


def test_first_k_on_the_loop():
    async def main():
        return await AioHost().run(Engine(KSync(2), 4), sleeping([4.0, 1.0, 3.0, 2.0]))

    outcome = run_virtually(main())
    assert [a.body for a in outcome.arrivals] == [1, 3]
    assert [a.t_arrived for a in outcome.arrivals] == pytest.approx([1.0, 2.0])
    assert outcome.duration == pytest.approx(2.0)
    assert (outcome.counts.used, outcome.counts.voided) == (2, 2)
    assert [r.stats for r in outcome.records if r.fate == "used"] == [{"attempt": 0}] * 2


def test_voided_attempts_are_cancelled_before_run_returns():
    ended = []

    async def execute(task):
        try:
            await asyncio.sleep(10.0 * task.slot)
        except asyncio.CancelledError:
            ended.append(task.slot)
            raise
        return Completion()

    async def main():
        await AioHost().run(Engine(KSync(1), 3), execute)
        return sorted(ended)

    assert run_virtually(main()) == [1, 2]


def test_attempt_that_ignores_cancellation_does_not_hold_rounds_up():
    async def execute(task):
        if task.slot == 1 and task.version == 0:
            for _ in range(40):
                try:
                    await asyncio.sleep(1.0)
                except asyncio.CancelledError:
                    continue
        elif task.slot == 1:
            await asyncio.sleep(100.0)
        return Completion(body=(task.version, task.slot))

    async def main():
        host, engine, loop = AioHost(grace=0.25), Engine(KSync(1), 2), asyncio.get_running_loop()
        start = loop.time()
        rounds = [await host.run(engine, execute) for _ in range(3)]
        took = loop.time() - start
        await asyncio.sleep(60.0)  # meanwhile it ends, and posts a result nobody wants
        return rounds, took, await host.run(engine, execute)

    rounds, took, after = run_virtually(main())
    assert took == pytest.approx(0.25)
    assert [[a.body for a in r.arrivals] for r in (*rounds, after)] == [[(v, 0)] for v in range(4)]
    assert after.counts.late == 1


def test_deadline_with_attempts_that_never_reply():
    async def never(task):
        await asyncio.get_running_loop().create_future()

    async def main():
        return await AioHost().run(Engine(Deadline(WaitAll(), 5.0), 16), never)

    outcome = run_virtually(main())
    assert outcome.error == "deadline"
    assert outcome.duration == pytest.approx(5.0)
    assert outcome.counts.voided == 16
    assert "5 s have passed since submission: 0 results arrived; 16 attempts" in outcome.reason


def test_failures_are_repeated_after_the_backoff_and_given_up():
    async def execute(task):
        await asyncio.sleep(1.0)
        if task.slot == 0 and task.attempt == 0:
            raise InvokeError("429", kind="throttled")
        if task.slot == 1:
            raise InvokeError("no such function", kind="missing")
        return Completion(body=task.attempt)

    async def main():
        engine = Engine(FirstK(2), 3, max_attempts=2, backoff=Backoff(base=8.0, cap=8.0))
        return await AioHost().run(engine, execute)

    outcome = run_virtually(main())
    assert sorted(a.body for a in outcome.arrivals) == [0, 1]
    assert outcome.failures == {1: "missing: no such function"}
    [retry] = [r for r in outcome.records if r.attempt == 1]
    assert 1.0 < retry.t_issued < 9.0
    assert retry.t_end == pytest.approx(retry.t_issued + 1.0)
    assert outcome.counts.retries == 1


def test_withdrawn_retry_is_never_started():
    started = []

    async def execute(task):
        started.append((task.slot, task.attempt))
        if task.slot == 0:
            raise InvokeError("reset", kind="unavailable")
        await asyncio.sleep(0.01)
        return Completion()

    async def main():
        engine = Engine(KSync(1), 2, backoff=Backoff(base=100.0, cap=100.0))
        outcome = await AioHost().run(engine, execute)
        await asyncio.sleep(200.0)
        return outcome

    outcome = run_virtually(main())
    assert started == [(0, 0), (1, 0)]
    assert (outcome.counts.issued, outcome.counts.withdrawn) == (2, 1)


def test_attempt_cancelled_by_someone_else_counts_as_lost():
    async def execute(task):
        if task.attempt == 0 and task.slot == 0:
            asyncio.current_task().cancel()
            await asyncio.sleep(1.0)
        return Completion(body=task.attempt)

    async def main():
        return await AioHost().run(Engine(WaitAll(), 2, backoff=Backoff(base=0.0)), execute)

    outcome = run_virtually(main())
    assert sorted(a.body for a in outcome.arrivals) == [0, 1]
    assert dict(outcome.counts.failures) == {"lost": 1}


def test_bug_in_execute_propagates_after_cleaning_up():
    ended = []

    async def execute(task):
        if task.slot == 2:
            await asyncio.sleep(1.0)
            raise ZeroDivisionError("a bug")
        try:
            await asyncio.sleep(50.0)
        finally:
            ended.append(task.slot)

    async def main():
        engine = Engine(WaitAll(), 3)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await AioHost().run(engine, execute)
        return engine

    engine = run_virtually(main())
    assert ended == [0, 1]
    assert engine.last.error == "cancelled"
    assert "a bug" in engine.last.reason
    assert engine.last.counts.voided == 3
    assert engine.last.counts.balanced


def test_bug_of_a_voided_attempt_is_logged_and_hurts_nobody(caplog):
    async def execute(task):
        try:
            await asyncio.sleep(5.0 * task.slot)
        except asyncio.CancelledError:
            raise ValueError("torn apart") from None
        return Completion()

    async def main():
        host, engine = AioHost(), Engine(KSync(1), 2)
        return [await host.run(engine, execute) for _ in range(2)]

    with caplog.at_level(logging.WARNING):
        rounds = run_virtually(main())
    assert [r.error for r in rounds] == [None, None]
    assert "failed after it was voided" in caplog.text
    assert "torn apart" in caplog.text


def test_interrupt_voids_everything_and_reraises_within_the_grace():
    async def stubborn(task):
        for _ in range(40):
            try:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                if task.slot:
                    raise
        return Completion()

    async def main():
        loop, engine = asyncio.get_running_loop(), Engine(WaitAll(), 3)
        running = asyncio.create_task(AioHost(grace=0.5).run(engine, stubborn))
        await asyncio.sleep(4.0)
        running.cancel()
        interrupted = loop.time()
        with pytest.raises(asyncio.CancelledError):
            await running
        took, left = loop.time() - interrupted, len(asyncio.all_tasks()) - 1
        await asyncio.sleep(100.0)
        return engine, took, left, len(asyncio.all_tasks()) - 1

    engine, took, left, left_at_last = run_virtually(main())
    assert took == pytest.approx(0.5)
    assert (left, left_at_last) == (1, 0)
    assert engine.last.reason == "interrupted"
    assert engine.last.counts.voided == 3
    assert not engine.is_open


def test_kept_attempts_run_on_between_rounds():
    async def main():
        host, engine = AioHost(), Engine(KAsync(1), 2)
        execute = sleeping(lambda task: 1.0 if task.slot == 0 else 2.5)
        versions = []
        for _ in range(3):
            outcome = await host.run(engine, execute)
            versions.append([(a.task.slot, a.task.version, a.t_arrived) for a in outcome.arrivals])
        await asyncio.sleep(10.0)
        await host.close(engine)
        return versions, engine.counts

    versions, counts = run_virtually(main())
    assert versions == [[(0, 0, 1.0)], [(0, 1, 2.0)], [(1, 0, 2.5)]]
    assert counts.voided == 1
    assert counts.outstanding == 0


def test_two_engines_on_one_host_do_not_mix():
    async def main():
        host = AioHost()
        one, two = Engine(KSync(1), 2, seed=1), Engine(KSync(2), 2, seed=2)
        return await asyncio.gather(
            host.run(one, sleeping([1.0, 9.0])),
            host.run(two, sleeping([2.0, 3.0])),
        )

    one, two = run_virtually(main())
    assert [a.body for a in one.arrivals] == [0]
    assert [a.body for a in two.arrivals] == [0, 1]
    assert one.counts.late == two.counts.late == 0


def test_observers_see_events_and_actions_in_order():
    seen = []

    async def main():
        return await AioHost().run(
            Engine(KSync(1), 2), sleeping([1.0, 2.0]), on_event=lambda item, at: seen.append((type(item).__name__, at))
        )

    run_virtually(main())
    assert seen == [("Issue", 0.0), ("Issue", 0.0), ("Arrived", 1.0), ("Void", 1.0), ("CloseRound", 1.0)]


def test_error_of_an_observer_propagates_after_cleaning_up():
    def broken(item, at):
        if isinstance(item, Arrived):
            raise LookupError("observer")  # noqa: TRY004 - any error will do

    async def main(host, engine):
        with pytest.raises(LookupError, match="observer"):
            await host.run(engine, sleeping([1.0, 2.0]), on_event=broken)
        return engine.last

    class One:
        def sample(self, slot, k, work, rng):
            return Timing(compute=1.0 + slot)

    for host in (AioHost(), VirtualHost(One())):
        last = run_virtually(main(host, Engine(KSync(1), 2)))
        assert last.error == "cancelled"
        assert last.counts.balanced


def test_clock_can_be_injected():
    offset = 1000.0

    async def main():
        loop = asyncio.get_running_loop()
        host = AioHost(clock=lambda: loop.time() + offset)
        return await host.run(Engine(Deadline(WaitAll(), 3.0), 2), sleeping([1.0, 50.0]))

    outcome = run_virtually(main())
    assert (outcome.t_open, outcome.t_close) == pytest.approx((1000.0, 1003.0))
    assert outcome.error == "deadline"


def test_no_op_round_on_a_real_loop():
    async def execute(task):
        return Completion(body=task.slot)

    before = time.monotonic()
    outcome = asyncio.run(AioHost().run(Engine(WaitAll(), 64), execute))
    assert before <= outcome.t_open <= outcome.t_close
    assert sorted(a.body for a in outcome.arrivals) == list(range(64))


def test_grace_is_bounded():
    with pytest.raises(InputError, match="grace"):
        AioHost(grace=5.0)


# -- one engine, three hosts -----------------------------------------------------------------------------

N_SLOTS = 4


class Table:
    """Durations and failures by slot, round and attempt; a delay model and a piece of work in one."""

    def __init__(self, ticks, fails):
        self._ticks = ticks
        self._fails = fails
        self.done = []

    def seconds(self, task):
        index = (task.slot + 5 * task.version + 11 * task.attempt) % len(self._ticks)
        # A random fraction: no two attempts end so close together that rounding decides who is first.
        return self._ticks[index] + 0.1 * draw(0, task.task_id, task.attempt)

    def result(self, task):
        self.done.append((task.task_id, task.attempt))
        if (task.slot, task.version, task.attempt) in self._fails:
            raise InvokeError("reset", kind="lost")
        return Completion(body=(task.slot, task.version))

    def sample(self, slot, k, work, rng):
        raise AssertionError("the attempt number matters here")

    def sample_task(self, task, rng):
        return Timing(start=self.seconds(task))

    async def execute_now(self, task):
        return self.result(task)

    async def execute_on_the_loop(self, task):
        await asyncio.sleep(self.seconds(task))
        return self.result(task)


def by_hand(engine, table, rounds):
    """Drive an engine by a plain sorted list."""
    now, pending, outcomes = 0.0, [], []
    for _ in range(rounds):
        timer, actions = None, engine.open(now)
        while True:
            for action in actions:
                if isinstance(action, Issue):
                    pending.append((now + action.delay + table.seconds(action.task), action.task))
                elif isinstance(action, Void):
                    pending = [(t, task) for t, task in pending if task not in action.tasks]
                elif isinstance(action, SetTimer):
                    timer = action
                elif isinstance(action, (CloseRound, AbortRound)):
                    outcomes.append(action.outcome)
            if outcomes and not engine.is_open:
                break
            pending.sort(key=lambda item: item[0])
            if timer is not None and timer.at is not None and (not pending or timer.at < pending[0][0]):
                now, fired, timer = timer.at, timer, None
                actions = engine.handle(TimerFired(fired.version, fired.at), now)
                continue
            now, task = pending.pop(0)
            try:
                done = table.result(task)
                event = Arrived(task, done.body)
            except InvokeError as error:
                event = Failed(task, error.kind, str(error), error.retryable)
            actions = engine.handle(event, now)
    return outcomes


def summary(outcomes):
    return [
        (
            o.version,
            o.error,
            [(a.body, a.task.attempt) for a in o.arrivals],
            sorted((r.task_id, r.attempt, r.fate, r.kind) for r in o.records),
            Counter(o.counts.failures),
            (o.counts.issued, o.counts.withdrawn, o.counts.outstanding, o.counts.copies, o.counts.retries),
            o.failures,
        )
        for o in outcomes
    ]


def times(outcomes):
    return [t for o in outcomes for t in (o.t_open, o.t_close, *sorted(r.t_end for r in o.records))]


rules = st.builds(
    lambda k, leftover, eager, speculate, seconds: (k, leftover, eager, speculate, seconds),
    st.integers(1, N_SLOTS),
    st.sampled_from(["cancel", "keep"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 2.5, 7.5]),
)


def make_policy(rule):
    k, leftover, eager, speculate, seconds = rule
    policy = FirstK(k, leftover=leftover, eager=eager)
    if speculate:
        policy = Speculate(policy, quantile=0.5, factor=1.2, min_seconds=0.0)
    return policy if seconds is None else Deadline(policy, seconds)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rule=rules,
    ticks=st.lists(st.sampled_from([0.3, 0.7, 1.1, 2.0, 6.0]), min_size=3, max_size=12),
    fails=st.sets(st.tuples(st.integers(0, N_SLOTS - 1), st.integers(0, 3), st.integers(0, 2)), max_size=8),
    max_attempts=st.integers(1, 3),
)
def test_all_hosts_agree(rule, ticks, fails, max_attempts):
    rounds = 4

    def fresh():
        engine = Engine(make_policy(rule), N_SLOTS, max_attempts=max_attempts, seed=7, backoff=Backoff(base=0.9))
        return engine, Table(ticks, fails)

    engine, table = fresh()
    expected, done = by_hand(engine, table, rounds), table.done

    async def on(host, engine, execute):
        outcomes = [await host.run(engine, execute) for _ in range(rounds)]
        if isinstance(host, AioHost):
            await host.close(engine)
        return outcomes

    engine, table = fresh()
    virtual = asyncio.run(on(VirtualHost(table), engine, table.execute_now))
    assert summary(virtual) == summary(expected)
    assert times(virtual) == pytest.approx(times(expected))
    assert table.done == done

    engine, table = fresh()
    loop = JumpLoop()
    real = loop.run_until_complete(on(AioHost(), engine, table.execute_on_the_loop))
    loop.close()
    assert summary(real) == summary(expected)
    assert times(real) == pytest.approx(times(expected))
    assert table.done == done


def test_a_host_tells_its_clock():
    async def main():
        return AioHost().now - asyncio.get_running_loop().time()

    assert run_virtually(main()) == 0
    assert AioHost(clock=lambda: 5.0).now == 5.0
