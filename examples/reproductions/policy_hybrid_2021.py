"""Li, Qu, Tang, Lu, "Stragglers Are Not Disaster", arXiv:2102.06329: federated averaging that merges late clients.

Three clients of ten are six times slower and have data of their own: waiting for them costs time, dropping them costs
the right solution; merged late, with a correction for the model having moved, they cost neither.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import SlotDelays, chosen, fed10, train

from serverless_gc.aggregate import WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD
from serverless_gc.policies import FreshK, KSync, WaitAll
from serverless_gc.transforms import DelayCompensation, PseudoGradient

CLIENTS, FRESH, STEP, SEEDS = 10, 7, 0.1, 8
TIMES, CHECKPOINTS = np.arange(2, 81, 2), (20, 40, 80)
POLICIES = {"wait for all": WaitAll, "drop the late": lambda: KSync(FRESH), "merge the late": lambda: FreshK(FRESH)}


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict
    least_used: int  # results of one client, when late ones are merged
    used_twice: int


def clients(problem, shards):
    """Five steps of gradient descent on a client's own rows."""

    def work(task, x):
        rows = shards[task.slot]
        gradients = problem.X[rows] * (problem.probabilities(x, rows) - problem.y[rows])[:, None] + problem.l2 * x
        for _ in range(5):
            x = x - STEP * problem.gradient(x, rows)
        return Completion(x, work_done=200, stats={"sum_of_squares": np.sum(gradients**2, axis=0)})

    return work


def slow_clients(slot, _k, rng):
    return (0.5 + 0.5 * rng.standard_exponential()) * (6 if slot < 3 else 1)


def figures():
    table, least, twice = {name: [] for name in POLICIES}, [], 0
    for seed in range(SEEDS):
        problem, shards = fed10(seed)
        for name, policy in POLICIES.items():
            run = train(
                policy(), SlotDelays(slow_clients), clients(problem, shards), np.zeros(10), n_slots=CLIENTS,
                aggregator=WeightedMean(), optimizer=SGD(STEP), until=TIMES[-1], seed=seed,
                transforms=(PseudoGradient(STEP), DelayCompensation(1.0)),
            )  # fmt: skip
            table[name].append([run.at(t, problem.excess) for t in TIMES])
        used = [arrival.task for step in run.steps for arrival in step.outcome.arrivals]
        twice += len(used) - len({task.task_id for task in used})
        least.append(np.bincount([task.slot for task in used], minlength=CLIENTS).min())
    excess = {name: np.mean(rows, axis=0) for name, rows in table.items()}
    return Figures(excess, chosen(excess, TIMES, CHECKPOINTS), int(min(least)), twice)


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"Hybrid federated learning 2021: {CLIENTS} clients, three slow",
        [Panel("training", "loss above the least", lines=lines, x="seconds", log=True)],
    )


if __name__ == "__main__":
    main(figures, picture)
