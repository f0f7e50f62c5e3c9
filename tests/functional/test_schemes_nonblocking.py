"""Finished mini-batches only: full utilization, and error against time."""

import asyncio
import math

import numpy as np
import pytest
from policy_nonblocking_2022 import poisson_process
from scipy.integrate import quad
from scipy.stats import gamma
from toy_problems import Delays

from serverless_gc.aggregate import WeightedMean
from serverless_gc.engine import AioHost, Arrived, Completion, Engine, Failed, Issue, Progressed, VirtualHost
from serverless_gc.fitting.training import Training
from serverless_gc.optim import SGD
from serverless_gc.policies import FirstDone
from serverless_gc.transforms import SumMessages


def mean_time(p, m, rate=1.0):
    return quad(lambda t: gamma.sf(t * m * rate, m) ** p, 0, 20 / rate)[0]


@pytest.mark.parametrize(
    ("p", "m", "seconds", "finished"), [(8, 10, 0.600774, 48.0619), (16, 4, 0.330416, 21.1466), (8, 1, 1 / 8, 1.0)]
)
def test_time_and_number_of_finished_mini_batches(p, m, seconds, finished):
    assert mean_time(p, m) == pytest.approx(seconds, rel=1e-5)
    assert p * m * mean_time(p, m) == pytest.approx(finished, rel=1e-5)
    engine = Engine(FirstDone(), p, milestones=poisson_process(m), keep_records=False)
    rounds = list(VirtualHost(Delays(lambda rng: rng.gamma(m) / m), seed=1).simulate(engine, 400))
    times = np.array([o.duration for o in rounds])
    counts = np.array([m * len(o.arrivals) + sum(len(part.messages) for part in o.partials) for o in rounds])
    for seen, expected in ((times, seconds), (counts, finished)):
        assert abs(seen.mean() - expected) <= 3 * seen.std() / math.sqrt(400)
    waiting = quad(lambda t: 1 - gamma.cdf(t * m, m) ** p, 0, 20)[0]
    if (p, m) == (8, 10):
        assert waiting == pytest.approx(1.4917, abs=1e-4)
        assert finished / seconds / (p * m / waiting) == pytest.approx(1.49, abs=0.005)


def test_it_is_as_good_as_a_fixed_time_and_better_than_dropping(figures):
    every, some, ours, fixed = figures("policy_nonblocking_2022").at_checkpoints.values()
    assert (ours <= 0.6 * some).all()
    assert (some <= every).all()
    assert (np.abs(np.log(ours / fixed)) <= math.log(1.3)).all()


def test_messages_of_unfinished_tasks_enter_with_their_number():
    engine = Engine(FirstDone(2), 3, milestones=lambda _: (0.3, 0.6), max_attempts=1)
    a, b, c = [x.task for x in engine.open(0.0) if isinstance(x, Issue)]
    engine.handle(Progressed(c, (0,)), 1.0)
    engine.handle(Progressed(b, (0, 1)), 1.0)
    engine.handle(Arrived(a), 2.0)
    engine.handle(Progressed(c, (1,)), 2.5)
    outcome = engine.handle(Arrived(b), 3.0)[-1].outcome
    assert [x.task.slot for x in outcome.arrivals] == [0, 1]
    assert [(part.task.slot, part.messages) for part in outcome.partials] == [(2, (0,)), (2, (1,))]
    tasks = [x.task for x in engine.open(3.0) if isinstance(x, Issue)]
    engine.handle(Failed(tasks[0], "lost"), 4.0)
    assert engine.handle(Failed(tasks[1], "lost"), 4.0)[-1].outcome.error == "starved"


async def test_on_a_real_clock_partial_results_bring_their_messages():
    posted = asyncio.Event()

    async def work(task, _x):
        await (posted if task.slot == 0 else asyncio.Event()).wait()
        return Completion(np.full((3, 2), 1.0), work_done=3)

    async def watch(post):
        slow = next(f.task for f in training.engine.view.in_flight() if f.task.slot == 1)
        post(Progressed(slow, (0,), body=np.full((1, 2), 5.0)))
        post(Progressed(slow, (1,), body=np.full((1, 2), 7.0)))
        posted.set()
        await asyncio.Event().wait()

    training = Training(
        Engine(FirstDone(), 2, milestones=lambda _: (0.3, 0.6)), AioHost(), work, np.zeros(2),
        aggregator=WeightedMean(of="sums"), optimizer=SGD(1.0), transforms=(SumMessages(),), watch=watch,
    )  # fmt: skip
    async for step in training.steps(1):
        np.testing.assert_allclose(step.x, [-3.0, -3.0])  # (3 * 1 + 5 + 7) / 5
        assert step.staleness == (0, 0)
    await training.close()
