"""A fixed time of computing: durations, late results, and the closed forms of Anytime Minibatch."""

import math

import numpy as np
import pytest
from scipy.special import exp1

from serverless_gc.engine import Arrived, Completion, Engine, Failed, Issue, SetTimer, TimerFired, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.policies import Anytime
from serverless_gc.stragglers import Exponential, LinearProgress, Shifted, ShiftedExponential, Uniform
from serverless_gc.types import Timing


def opened(policy, n=3, now=10.0, **options):
    engine = Engine(policy, n, **options)
    actions = engine.open(now)
    return engine, [a.task for a in actions if isinstance(a, Issue)], actions[-1]


def test_all_stop_at_one_moment_and_the_round_ends_with_the_last():
    engine, tasks, timer = opened(Anytime(2.0, guard=0.5))
    assert {task.stop_at for task in tasks} == {12.0}
    assert timer == SetTimer(12.5, 0)
    for task in tasks[:2]:
        assert engine.handle(Arrived(task), 12.1) == []
    assert len(engine.handle(Arrived(tasks[2]), 12.2)[-1].arrivals) == 3


def test_what_is_later_than_the_guard_is_lost():
    engine, tasks, timer = opened(Anytime(2.0, guard=0.5))
    engine.handle(Arrived(tasks[1]), 12.1)
    void, close = engine.handle(TimerFired(0, timer.at), timer.at)
    assert [task.slot for task in void.tasks] == [0, 2]
    assert [a.task.slot for a in close.arrivals] == [1]
    engine.handle(Arrived(tasks[0]), 12.6)
    engine.open(12.7)
    assert engine.counts.late == 1 or engine.last.counts.late == 1


def test_nobody_in_time_closes_empty():
    engine, _, timer = opened(Anytime(2.0))
    close = engine.handle(TimerFired(0, timer.at), timer.at)[-1]
    assert close.outcome.error is None
    assert close.arrivals == ()


def test_failures_are_gone_without_until_nobody_is_left():
    engine, tasks, _ = opened(Anytime(2.0), max_attempts=1)
    engine.handle(Failed(tasks[0], "lost"), 10.5)
    engine.handle(Arrived(tasks[1]), 12.0)
    close = engine.handle(Failed(tasks[2], "lost"), 12.0)[-1]
    assert len(close.arrivals) == 1
    engine, tasks, _ = opened(Anytime(2.0), max_attempts=1)
    assert engine.handle(Failed(tasks[0], "lost", "reset"), 10.5) == []
    assert engine.handle(Failed(tasks[1], "lost", "reset"), 10.5) == []
    abort = engine.handle(Failed(tasks[2], "lost", "reset"), 10.5)[-1]
    assert abort.outcome.error == "starved"
    assert "no slot can deliver: 3 slots were given up" in abort.outcome.reason


@pytest.mark.parametrize("law", [Exponential(1.0), ShiftedExponential(1.0, 0.1)])
def test_no_round_is_longer_than_allowed(law):
    rounds = list(VirtualHost(law).simulate(Engine(Anytime(1.0, guard=0.25), 8), 2000))
    assert max(r.duration for r in rounds) <= 1.25 + 1e-9
    assert {r.error for r in rounds} == {None}


def test_a_slow_start_means_less_work_done():
    class Progress:
        """Computes from the end of its start until it is told to stop."""

        host = None

        def sample_task(self, task, rng):
            start = min(rng.standard_exponential(), task.stop_at - self.host.now)
            return Timing(start=start, compute=task.stop_at - self.host.now - start)

        def sample(self, slot, k, work, rng):
            raise NotImplementedError

    law = Progress()
    law.host = host = VirtualHost(law)
    rounds = list(host.simulate(Engine(Anytime(1.5), 4), 50))
    assert {len(r.arrivals) for r in rounds} == {4}
    assert [r.duration for r in rounds] == pytest.approx([1.5] * 50)


def test_closed_forms_of_anytime_minibatch():
    n, b, rate, shift = 10, 600, 2 / 3, 1.0
    law = ShiftedExponential(shift, rate)
    seconds = (1 + n / b) * law.mean()
    assert seconds == pytest.approx(2.541667, abs=1e-6)
    assert law.mean_order_stat(n, n) / seconds == pytest.approx(2.122014, abs=1e-6)
    assert law.mean_order_stat(n, n) <= law.mean() + math.sqrt(n - 1) / rate
    inverse = rate * math.exp(rate * shift) * float(exp1(rate * shift))
    assert inverse == pytest.approx(0.517330, abs=1e-6)
    assert b * seconds * inverse - n / 2 == pytest.approx(784.0, abs=0.1)


async def test_work_of_a_fixed_time_in_the_loop():
    n, b, updates, guard = 10, 600, 40_000, 0.1
    model = LinearProgress(ShiftedExponential(1.0, 2 / 3), nominal=b / n)
    seconds = (1 + n / b) * model.law.mean()
    nominal = model.law.totals(1.0, np.random.default_rng(0), (updates, n))
    samples = model.work_done_by(nominal, seconds).tolist()

    async def work(task):
        return Completion(work_done=samples[task.version][task.slot])

    engine = Engine(Anytime(seconds, guard=guard), n, keep_records=False)
    host, done, longest = VirtualHost(Shifted(Uniform(0.0, guard), seconds)), 0.0, 0.0
    for _ in range(updates):
        outcome = await host.run(engine, work)
        done += sum(arrival.work_done for arrival in outcome.arrivals)
        longest = max(longest, outcome.duration)
    assert seconds < longest <= seconds + guard + 1e-9
    assert b <= done / updates == pytest.approx(784.0, rel=0.015)


def test_parameters_are_checked():
    with pytest.raises(InputError, match="seconds must be positive"):
        Anytime(0.0)
    with pytest.raises(InputError, match="guard must be at least 0"):
        Anytime(1.0, guard=-0.1)
