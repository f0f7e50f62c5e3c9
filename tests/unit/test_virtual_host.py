# ruff: noqa: ARG001, ARG002 - stand-ins must have the arguments of what they stand for
"""The virtual-time host: times and staleness known in closed form."""

import asyncio
import math

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from serverless_gc.engine import Backoff, Completion, Engine, VirtualHost
from serverless_gc.engine.occupancy import Occupancy
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import Stragglers
from serverless_gc.policies import Anytime, Deadline, FirstK, KAsync, KBatchAsync, KSync, WaitAll
from serverless_gc.stragglers import Constant, Exponential, Injected
from serverless_gc.types import Close, Timing, Wait


def simulate(policy, law, *, n_slots=8, rounds=3000, seed=0):
    host = VirtualHost(law, seed=seed)
    outcomes = list(host.simulate(Engine(policy, n_slots, keep_records=False), rounds))
    return host, outcomes


def test_the_peak_counts_what_runs_on_to_its_end():
    class Slower:
        def sample_task(self, task, rng):
            return Timing(compute=1.0 + 2.0 * task.slot)

    host = VirtualHost(Slower())
    list(host.simulate(Engine(KSync(1), 2), 2))
    # at 0: 2; at 1: the slow one runs until 3 and two more start; at 2 nothing starts
    assert [host.peak_since(t) for t in (0.0, 1.0, 1.5)] == [3, 3, 0]
    list(host.simulate(Engine(KSync(1), 2), 1))
    assert [host.peak_since(t) for t in (0.0, 1.5)] == [4, 4]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.booleans()), max_size=30), st.sampled_from([1, 3, 100])
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_peak_is_what_counting_at_every_moment_gives(monkeypatch, told, block):
    monkeypatch.setattr("serverless_gc.engine.occupancy._BLOCK", block)
    running, attempts = Occupancy(), []
    for start, seconds, gone in sorted(told):
        attempts.append((start, start + seconds))
        running.add(start, start + seconds, now=start)
        if gone:  # a repetition that was to start later, and does not
            running.add(start + 20.0, math.inf, now=start)
            running.withdraw(start + 20.0, math.inf)
    for since in range(12):
        moments = [sum(a <= t < b for a, b in attempts) for t, _ in attempts if t >= since]
        assert running.peak_since(since, now=16.0) == max(moments, default=0)


def test_an_attempt_that_never_answers_counts_until_it_is_given_up():
    running = Occupancy()
    running.add(0.0, math.inf, now=0.0)
    running.add(1.0, 2.0, now=1.0)
    running.give_up_endless(now=1.5)
    running.add(2.5, 3.0, now=2.5)
    assert [running.peak_since(t, now=4.0) for t in (0.0, 2.0)] == [2, 1]


def test_spare_copies_do_not_leak_into_the_next_round():
    # wait for one of each group of r slots; the round takes H_S / (r mu), or less if the buffer were kept
    class Groups:
        leftover = "cancel"

        def open(self, view):
            return [view.new_task(slot) for slot in range(view.n_slots)]

        def on_arrival(self, view, arrival):
            first = {}
            for a in view.buffer:
                first.setdefault(a.task.slot % 5, a)
            return Close(tuple(first.values())) if len(first) == 5 else Wait()

        def on_failure(self, view, task):
            return Wait()

        def timer(self, view):
            return None

        def on_timer(self, view):
            return Wait()

    _, outcomes = simulate(Groups(), Exponential(1.0), n_slots=20)
    assert outcomes[-1].t_close / len(outcomes) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4, rel=0.03)


def test_equal_seeds_give_equal_runs():
    def log(seed):
        _, outcomes = simulate(KBatchAsync(3), Exponential(1.0), rounds=50, seed=seed)
        return [(a.task.task_id, a.t_arrived) for o in outcomes for a in o.arrivals]

    assert log(1) == log(1)
    assert log(1) != log(2)


def test_no_round_is_longer_than_its_deadline():
    _, outcomes = simulate(Deadline(WaitAll(), 1.5, "close"), Exponential(1.0), rounds=500)
    assert max(o.duration for o in outcomes) == pytest.approx(1.5)
    assert {o.error for o in outcomes} == {None}
    assert len({len(o.arrivals) for o in outcomes}) > 2


def test_execute_is_awaited_for_arrivals_only_and_in_order_of_time():
    done = []

    class Backwards:
        def sample(self, slot, k, work, rng):
            return Timing(start=1.0, read=0.5, compute=work * (10 - slot), write=0.25)

    async def execute(task):
        done.append(task.slot)
        if task.slot == 9 and task.attempt == 0:
            raise InvokeError("killed", kind="function")
        return Completion(body=task.slot * 10, work_done=0.5, stats={"n": 1})

    host = VirtualHost(Backwards(), start=100.0)
    outcome = asyncio.run(host.run(Engine(KSync(2), 10), execute))
    assert done == [9, 8, 7]
    assert outcome.t_open == 100.0
    assert [(a.body, a.work_done, a.stats) for a in outcome.arrivals] == [(80, 0.5, {"n": 1}), (70, 0.5, {"n": 1})]
    assert outcome.arrivals[0].t_arrived == 100.0 + 1.75 + 2.0
    assert host.now == outcome.t_close
    assert outcome.counts.failed == 1


def test_clock_goes_on_from_round_to_round():
    async def execute(task):
        return Completion()

    async def main():
        host, engine = VirtualHost(Constant(2.0)), Engine(FirstK(1), 2)
        return [(o.t_open, o.t_close) for o in [await host.run(engine, execute) for _ in range(3)]]

    assert asyncio.run(main()) == [(0.0, 2.0), (2.0, 4.0), (4.0, 6.0)]


def test_attempts_that_never_answer_starve_the_round_instead_of_hanging_it():
    class Never:
        def sample(self, slot, k, work, rng):
            return Timing(compute=math.inf if slot else 1.0)

    host = VirtualHost(Never())
    [outcome] = host.simulate(Engine(WaitAll(), 4), 1)
    assert outcome.error == "starved"
    assert "never answer" in outcome.reason
    [late] = VirtualHost(Never()).simulate(Engine(Deadline(WaitAll(), 5.0), 4), 1)
    assert (late.error, late.t_close) == ("deadline", 5.0)
    assert host.ignored_seconds == 0.0


def test_arrival_at_the_deadline_counts():
    [outcome] = VirtualHost(Constant(5.0)).simulate(Engine(Deadline(WaitAll(), 5.0), 3), 1)
    assert outcome.error is None
    assert len(outcome.arrivals) == 3


def test_bug_in_execute_propagates_and_leaves_the_engine_clean():
    async def broken(task):
        raise ZeroDivisionError

    async def works(task):
        return Completion(body=task.version)

    async def main():
        host, engine = VirtualHost(Constant(1.0)), Engine(WaitAll(), 3)
        with pytest.raises(ZeroDivisionError):
            await host.run(engine, broken)
        assert engine.last.counts.voided == 3
        return await host.run(engine, works)

    outcome = asyncio.run(main())
    assert [a.body for a in outcome.arrivals] == [0, 0, 0]
    assert outcome.t_open == 1.0


def test_kept_attempts_are_voided_at_close():
    host, engine = VirtualHost(Exponential(1.0)), Engine(KAsync(2), 8)
    list(host.simulate(engine, 5))
    asyncio.run(host.close(engine))
    assert engine.counts.voided == 6
    assert engine.counts.outstanding == 0
    assert host.ignored_seconds > 0


def test_error_of_a_policy_leaves_a_simulation_clean():
    class Broken(WaitAll):
        def on_arrival(self, view, arrival):
            if view.version == 2:
                raise LookupError
            return super().on_arrival(view, arrival)

    host, engine = VirtualHost(Constant(1.0)), Engine(Broken(), 3)
    with pytest.raises(LookupError):
        list(host.simulate(engine, 5))
    assert not engine.is_open
    assert engine.last.counts.balanced


def test_retries_that_never_started_are_not_billed():
    async def execute(task):
        if task.slot == 0:
            raise InvokeError("reset", kind="unavailable")
        return Completion()

    class Staggered:
        def sample(self, slot, k, work, rng):
            return Timing(compute=1.0 + slot)

    host = VirtualHost(Staggered())
    engine = Engine(KSync(1), 3, backoff=Backoff(base=100.0, cap=100.0))
    outcome = asyncio.run(host.run(engine, execute))
    assert (outcome.counts.withdrawn, outcome.counts.voided) == (1, 1)
    assert host.ignored_seconds == 1.0


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_a_seed_is_an_integer_of_at_least_0(seed):
    with pytest.raises(InputError, match="seed must be an integer of at least 0"):
        VirtualHost(Constant(1.0), seed=seed)


def test_start_must_be_finite():
    with pytest.raises(InputError, match="start"):
        VirtualHost(Constant(1.0), start=math.inf)


# -- tasks that stop at a time -----------------------------------------------------------------------------


class Slots:
    """Phases that depend on the slot."""

    def __init__(self, *timings):
        self.timings = timings

    def sample(self, slot, k, work, rng):
        return self.timings[slot]


def anytime(law, rounds=1, seconds=1.0, start=0.0, guard=10.0):
    """Run rounds in which everybody works until a time; what each was asked to do, and the outcomes."""
    host, asked = VirtualHost(law, seed=4, start=start), []
    engine = Engine(Anytime(seconds, guard), n_slots=len(getattr(law, "timings", range(3))))

    async def execute(task):
        asked.append((task.slot, task.work))
        return Completion(work_done=task.work)

    async def go():
        return [await host.run(engine, execute) for _ in range(rounds)]

    outcomes = asyncio.run(go())
    return asked, outcomes


def test_a_task_that_stops_at_a_time_does_what_fits():
    law = Slots(
        Timing(compute=0.25),
        Timing(start=0.1, read=0.2, compute=0.1, write=0.5),
        Timing(start=0.5, compute=0.6),
        Timing(start=2.0, compute=0.1),
    )
    asked, [outcome] = anytime(law)
    assert sorted(asked) == [(0, 4.0), (1, 7.0), (2, 0.0), (3, 0.0)]
    assert {a.task.slot: a.t_arrived for a in outcome.arrivals} == {0: 1.0, 1: 1.5, 2: 1.0, 3: 2.0}
    assert all(a.task.work == 1.0 for a in outcome.arrivals)  # what was issued


@pytest.mark.parametrize("start", [0.0, 5.3, 1e6 + 0.1])
def test_who_stops_at_the_time_is_in_time(start):
    asked, outcomes = anytime(Constant(0.1), rounds=20, seconds=0.7, start=start, guard=0.0)
    assert [len(o.arrivals) for o in outcomes] == [3] * 20
    assert {work for _, work in asked} <= {6.0, 7.0}
    assert outcomes[-1].t_close == pytest.approx(start + 14.0)


def test_fitting_work_repeats_with_the_seed_and_endless_work_is_refused():
    first, again = (anytime(Exponential(5.0), rounds=30) for _ in range(2))
    assert first[0] == again[0]
    assert len({work for _, work in first[0]}) > 5
    with pytest.raises(InputError, match="endless work"):
        anytime(Slots(Timing(), Timing()))


def test_injected_stragglers_do_less():
    slow = Stragglers(fraction={1}, slowdown=5, base=0.25)
    asked, [outcome] = anytime(Injected(Constant(0.1), slow))
    assert sorted(asked) == [(0, 8.0), (1, 0.0), (2, 8.0)]  # 0.15 s go by before the work; 0.75 s, and each unit 0.5 s
    assert outcome.t_close == 1.0


def test_who_never_answers_is_given_up_behind_the_guard():
    asked, [outcome] = anytime(Slots(Timing(compute=0.5), Timing(compute=math.inf)), guard=0.25)
    assert asked == [(0, 2.0)]
    assert (outcome.t_close, outcome.counts.voided) == (1.25, 1)
