"""What makes asynchronous training stable: global batches, gaps, staleness."""

import numpy as np
import pytest
from toy_problems import lin20, mean_excess, train

from serverless_gc.aggregate import Mean, SumOver
from serverless_gc.optim import SGD
from serverless_gc.policies import GlobalBatch, KBatchAsync, WaitAll
from serverless_gc.transforms import GapAware, StalenessAware, TokenDecay


@pytest.fixture(scope="module")
def problem():
    return lin20()


def many(problem, policy, delays, *, n_slots, lr, until, seeds, aggregator=Mean, transforms=lambda: ()):
    return [
        train(
            policy(), delays, lambda task, x: problem.sample(x, 8, task.seed), np.zeros(20), n_slots=n_slots,
            aggregator=aggregator(), optimizer=SGD(lr), until=until, seed=seed, transforms=transforms(),
        )
        for seed in range(seeds)
    ]  # fmt: skip


def sometimes_very_slow(rng):
    return 5 + 30 * rng.random() if rng.random() < 0.05 else 0.5 + 0.5 * rng.standard_exponential()


def test_global_batches_keep_the_step_length_of_synchronous_training(problem):
    times = (40, 80)
    setting = {"n_slots": 16, "lr": 0.5, "until": 80, "seeds": 4}
    sync = many(problem, WaitAll, sometimes_very_slow, **setting)
    gba, gba1 = (
        many(
            problem, lambda: GlobalBatch(16), sometimes_very_slow, **setting,
            aggregator=lambda: SumOver(16), transforms=lambda i=i: (TokenDecay(i),),
        )
        for i in (4, 1)
    )  # fmt: skip
    alone = many(problem, lambda: KBatchAsync(1), sometimes_very_slow, **setting)
    dropped = [
        1 - np.sum([s.update.n_eff for r in runs for s in r.steps]) / sum(r.used for r in runs) for runs in (gba, gba1)
    ]
    assert sum(r.updates for r in gba) >= 5 * sum(r.updates for r in sync)
    assert (5 * mean_excess(gba, times, problem.excess) <= mean_excess(sync, times, problem.excess)).all()
    assert (mean_excess(alone, times, problem.excess) > 1e3).all()
    assert 0 < dropped[0] < dropped[1] < 0.1


def gamma4(rng):
    return rng.gamma(4) / 4


def one_by_one(problem, transform, lr, until, seeds):
    return many(
        problem, lambda: KBatchAsync(1), gamma4, n_slots=32, lr=lr, until=until, seeds=seeds,
        transforms=lambda: () if transform is None else (transform(),),
    )  # fmt: skip


def test_gaps_keep_a_long_step_stable(problem):
    plain, aware, raw, applied = (
        mean_excess(one_by_one(problem, transform, 0.1, 30, seeds=2), (10, 30), problem.excess)
        for transform in (
            None, StalenessAware, lambda: GapAware(0.1), lambda: GapAware(0.1, mode="applied"),
        )
    )  # fmt: skip
    start = problem.excess(np.zeros(20))
    assert plain[1] > start
    assert max(aware[1], raw[1], applied[1]) < start
    assert raw[0] <= aware[0] / 5
    assert applied[0] <= aware[0] / 2


def test_gaps_beat_both_at_a_shorter_step(problem):
    plain, aware, raw = (
        mean_excess(one_by_one(problem, transform, 0.05, 60, seeds=2), (30, 40, 50, 60), problem.excess)
        for transform in (None, StalenessAware, lambda: GapAware(0.05))
    )
    assert (raw < plain).all()
    assert (raw < aware).all()
