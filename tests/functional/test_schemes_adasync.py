"""K-sync, K-async and AdaSync on least squares: error against time."""

import numpy as np
from toy_problems import exponential, lin20, mean_excess, train

from serverless_gc.aggregate import Mean
from serverless_gc.optim import SGD
from serverless_gc.policies import AdaSync, KAsync, KSync
from serverless_gc.transforms import StepLimit

TIMES = (5, 10, 20, 40, 80)


def runs(policy, problem, *, lr=0.1, seeds=2, until=TIMES[-1], transforms=()):
    def tell(run, _step):
        run.training.engine.loss_estimate = problem.excess(run.training.x)

    return [
        train(
            policy(), exponential, lambda task, x: problem.sample(x, 1, task.seed), np.zeros(20), n_slots=16,
            aggregator=Mean(), optimizer=SGD(lr), until=until, seed=seed, on_step=tell, transforms=transforms,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def test_adasync_is_near_the_best_fixed_k_at_all_times_and_best_later():
    problem = lin20()
    fixed = {k: mean_excess(runs(lambda k=k: KSync(k), problem), TIMES, problem.excess) for k in (1, 2, 4, 8, 16)}
    ours = mean_excess(runs(lambda: AdaSync(1, interval=2.0), problem), TIMES, problem.excess)
    best = np.min(list(fixed.values()), axis=0)
    assert (ours <= 1.25 * best).all()
    assert (ours < best)[2:].all()
    assert all((excess >= 1.4 * ours).any() for excess in fixed.values())


def test_staleness_costs_stability():
    problem = lin20()
    [stale] = runs(lambda: KAsync(1), problem, seeds=1, until=40)
    [fresh] = runs(lambda: KSync(1), problem, seeds=1, until=40)
    [limited] = runs(lambda: KAsync(1), problem, seeds=1, until=40, transforms=(StepLimit(0.02, 0.1),))
    assert limited.at(40, problem.excess) < 2.0
    assert not problem.excess(stale.models[-1]) < problem.excess(np.zeros(20))
    assert fresh.at(40, problem.excess) < 1.5
