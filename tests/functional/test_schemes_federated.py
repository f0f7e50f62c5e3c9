"""Hybrid federated learning: late clients are merged instead of dropped."""

import numpy as np
from toy_problems import SlotDelays, fed10, train

from serverless_gc.aggregate import WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD
from serverless_gc.policies import FreshK, KSync, WaitAll
from serverless_gc.transforms import DelayCompensation, PseudoGradient

LR = 0.1


def clients(problem, shards):
    def work(task, x):
        rows = shards[task.slot]
        gradients = problem.X[rows] * (problem.probabilities(x, rows) - problem.y[rows])[:, None] + problem.l2 * x
        for _ in range(5):
            x = x - LR * problem.gradient(x, rows)
        return Completion(x, work_done=200, stats={"sum_of_squares": np.sum(gradients**2, axis=0)})

    return work


def test_merging_late_clients_has_neither_the_bias_nor_the_wait():
    law = SlotDelays(lambda slot, _, rng: (0.5 + 0.5 * rng.standard_exponential()) * (6 if slot < 3 else 1))
    table = []
    for seed in range(8):
        problem, shards = fed10(seed)
        runs = [
            train(
                policy, law, clients(problem, shards), np.zeros(10), n_slots=10,
                aggregator=WeightedMean(), optimizer=SGD(LR), until=80, seed=seed,
                transforms=(PseudoGradient(LR), DelayCompensation(1.0)),
            )
            for policy in (WaitAll(), KSync(7), FreshK(7))
        ]  # fmt: skip
        table.append([run.at(80, problem.excess) for run in runs])
        # Nobody is starved, and no result is used twice.
        used = [a.task for step in runs[-1].steps for a in step.outcome.arrivals]
        assert len({task.task_id for task in used}) == len(used)
        assert np.bincount([task.slot for task in used], minlength=10).min() >= 5
    every, drop, ours = np.mean(table, axis=0)
    assert ours <= 0.65 * drop
    assert ours <= 0.5 * every
