"""A fixed time of computing: anytime SGD averages models, anytime minibatch gradients."""

import numpy as np
import pytest
from toy_problems import SlotDelays, lin20, mean_excess, train

from serverless_gc.aggregate import AverageModels, WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD, ModelAverage
from serverless_gc.policies import Anytime, KSync, WaitAll

SPEEDS = np.array([1, 1, 2, 2, 4, 8, 16, 16, 32, 32])


@pytest.fixture(scope="module")
def problem():
    return lin20(n=20000)


def local_sgd(problem, x, lr, steps, rng):
    rows = rng.integers(problem.n, size=steps)
    X, y = problem.X[rows], problem.y[rows]
    for row, target in zip(X, y, strict=True):
        x = x - lr * (row @ x - target) * row
    return x


def anytime_sgd(problem, lr, weight, *, seeds, until):
    """In a second, worker ``i`` makes a Poisson number of steps of mean ``SPEEDS[i]``."""

    def work(task, x):
        rng = np.random.default_rng(task.seed)
        steps = rng.poisson(SPEEDS[task.slot])
        return Completion(local_sgd(problem, x, lr(task.version), steps, rng), work_done=steps)

    return [
        train(
            Anytime(1.0), lambda _: 1.0, work, np.zeros(20), n_slots=10,
            aggregator=AverageModels(weight), optimizer=ModelAverage(), until=until, seed=seed,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def wait_for_all(problem, lr, *, seeds, until):
    """Everybody makes eleven steps, however long that takes."""

    def work(task, x):
        return Completion(local_sgd(problem, x, lr(task.version), 11, np.random.default_rng(task.seed)), work_done=11)

    law = SlotDelays(lambda slot, _, rng: rng.gamma(11) / SPEEDS[slot])
    return [
        train(
            WaitAll(), law, work, np.zeros(20), n_slots=10,
            aggregator=AverageModels(), optimizer=ModelAverage(), until=until, seed=seed,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def test_models_weighted_by_work_win_with_decaying_steps(problem):
    def lr(k):
        return 0.08 / (1 + k) ** 0.75

    times = (4, 16, 64)
    by_work = mean_excess(anytime_sgd(problem, lr, "work_done", seeds=5, until=64), times, problem.excess)
    uniform = mean_excess(anytime_sgd(problem, lr, lambda _: 1.0, seeds=5, until=64), times, problem.excess)
    waiting = mean_excess(wait_for_all(problem, lr, seeds=5, until=64), times, problem.excess)
    assert (by_work < uniform).all()
    assert (uniform < waiting).all()


def test_with_constant_steps_the_uniform_average_has_the_lower_floor(problem):
    times = np.arange(50, 65)
    by_work = anytime_sgd(problem, lambda _: 0.05, "work_done", seeds=4, until=64)
    uniform = anytime_sgd(problem, lambda _: 0.05, lambda _: 1.0, seeds=4, until=64)
    assert np.mean(mean_excess(uniform, times, problem.excess)) < 0.7 * np.mean(
        mean_excess(by_work, times, problem.excess)
    )


def nominal_times(rng):
    return 1.0 + rng.standard_exponential() / (2 / 3)


def minibatch(problem, policy, delays, samples, *, seeds=8, until=140):
    def work(task, x):
        rng = np.random.default_rng(task.seed)
        size = samples(rng)
        if size == 0:
            return Completion(np.zeros(20), work_done=0)
        return Completion(problem.gradient(x, rng.integers(problem.n, size=size)) * size, work_done=size)

    return [
        train(
            policy(), delays, work, np.zeros(20), n_slots=10,
            aggregator=WeightedMean(of="sums"), optimizer=SGD(0.3), until=until, seed=seed,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def test_anytime_minibatch_beats_waiting_and_dropping(problem):
    times = (20, 40, 80, 140)
    seconds = (1 + 10 / 60) * 2.5
    amb = minibatch(
        problem, lambda: Anytime(seconds), lambda _: seconds, lambda rng: int(6 * seconds / nominal_times(rng))
    )
    assert np.mean([step.update.n_eff for run in amb for step in run.steps]) >= 60
    amb = mean_excess(amb, times, problem.excess)
    wait, drop5, drop2 = (
        mean_excess(minibatch(problem, policy, nominal_times, lambda _: 6), times, problem.excess)
        for policy in (WaitAll, lambda: KSync(5), lambda: KSync(8))
    )
    assert (amb < wait).all()
    assert (2 * amb < wait)[:3].all()
    assert (amb < np.minimum(drop5, drop2))[2:].all()
