"""The driver loop: versions, staleness, transforms that drop, models kept for what is in flight."""

import numpy as np
import pytest

from serverless_gc.engine import Completion, Engine, VirtualHost
from serverless_gc.errors import DeadlineExceeded, InputError, InvokeError
from serverless_gc.fitting.training import Training
from serverless_gc.policies import Deadline, KAsync, KBatchAsync, KSync, WaitAll
from serverless_gc.stragglers import Constant, Exponential
from serverless_gc.types import Update


class Mean:
    def combine(self, arrivals, _ctx):
        return Update(np.mean([a.body for a in arrivals], axis=0), n_eff=len(arrivals))


class Descent:
    def __init__(self, lr):
        self.lr = lr

    def init(self, _x):
        return 0

    def step(self, x, update, state, t):
        assert t == state, "versions count the updates"
        return x - self.lr * update.direction, state + 1


async def gradient(_task, x):
    return Completion(np.array(x))  # of ||x||^2 / 2


def training(policy, n=8, law=None, work=gradient, **options):
    host = VirtualHost(law or Exponential(1.0), seed=1)
    return Training(
        Engine(policy, n_slots=n, seed=3), host, work, np.ones(2), aggregator=Mean(), optimizer=Descent(0.1), **options
    )


async def collect(run, rounds):
    return [step async for step in run.steps(rounds)]


@pytest.mark.parametrize("policy", [WaitAll(), KSync(4)])
async def test_synchronous_policies_use_fresh_results_only(policy):
    steps = await collect(training(policy), 20)
    assert [s.version for s in steps] == list(range(20))
    assert {age for s in steps for age in s.staleness} == {0}
    np.testing.assert_allclose(steps[-1].x, 0.9**20, rtol=1e-12)


async def test_mean_staleness_is_what_conservation_says():
    for policy, expected in [(KAsync(4), 8 / 4 - 1), (KBatchAsync(4), (8 - 1) / 4)]:
        run = training(policy, law=Exponential(2.0))
        steps = await collect(run, 4000)
        ages = [age for s in steps[50:] for age in s.staleness]
        assert np.mean(ages) == pytest.approx(expected, rel=0.01)
        assert len(run._models) < 40
        await run.close()


async def test_a_result_is_computed_at_the_model_of_its_version():
    seen = []

    async def work(task, x):
        seen.append((task.version, float(x[0])))
        return Completion(np.array(x))

    steps = await collect(training(KBatchAsync(2), n=4, work=work), 30)
    models = {0: 1.0} | {s.version + 1: float(s.x[0]) for s in steps}
    assert all(x == models[version] for version, x in seen)
    assert any(a.task.version < s.version for s in steps for a in s.outcome.arrivals)


async def test_transforms_correct_and_drop_and_a_round_without_results_still_counts():
    def drop_all(arrival, ctx):
        return None if ctx.version == 1 else arrival

    steps = await collect(training(WaitAll(), transforms=[drop_all]), 3)
    assert [s.update.n_eff for s in steps] == [8, 0.0, 8]
    assert np.array_equal(steps[1].x, steps[0].x)
    assert steps[1].outcome.counts.used == 8


async def test_a_round_that_cannot_end_is_an_error():
    async def work(_task, _x):
        raise InvokeError("out of memory", kind="function", retryable=False)

    with pytest.raises(Exception, match="update 0 was given up"):
        await collect(training(WaitAll(), work=work), 1)
    with pytest.raises(DeadlineExceeded, match="update 0 was given up"):
        await collect(training(Deadline(WaitAll(), 0.5), law=Constant(1.0)), 1)


async def test_forgotten_models_are_named():
    run = training(WaitAll())
    await collect(run, 2)
    with pytest.raises(InputError, match=r"no model of version 0 is kept; kept are \[2\]"):
        run.model_at(0)
    with pytest.raises(ValueError, match="read-only"):
        run.x[0] = 5
