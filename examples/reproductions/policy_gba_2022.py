"""Su et al., "GBA: A Tuning-free Approach to Switch between Synchronous and Asynchronous Training", arXiv:2205.11048.

Asynchronous workers, but every step takes as many gradients as a synchronous one, so that its step length holds; a
gradient that belongs to a batch too long ago is dropped. Plain asynchronous SGD diverges at that step length.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import chosen, lin20, mean_excess, train

from serverless_gc.aggregate import Mean, SumOver
from serverless_gc.optim import SGD
from serverless_gc.policies import GlobalBatch, KBatchAsync, WaitAll
from serverless_gc.transforms import TokenDecay

WORKERS, STEP, SEEDS = 16, 0.5, 4
TIMES, CHECKPOINTS = np.arange(1, 81), (40, 80)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict
    updates: dict
    dropped: dict  # share of the gradients


def sometimes_very_slow(rng):
    return 5 + 30 * rng.random() if rng.random() < 0.05 else 0.5 + 0.5 * rng.standard_exponential()


def runs(problem, policy, aggregator, *transforms):
    return [
        train(
            policy(), sometimes_very_slow, lambda task, x: problem.sample(x, 8, task.seed), np.zeros(20),
            n_slots=WORKERS, aggregator=aggregator, optimizer=SGD(STEP), until=TIMES[-1], seed=seed,
            transforms=transforms,
        )
        for seed in range(SEEDS)
    ]  # fmt: skip


def figures():
    problem = lin20()
    made = {
        "synchronous": runs(problem, WaitAll, Mean()),
        "asynchronous": runs(problem, lambda: KBatchAsync(1), Mean()),
        "GBA, up to 4 late": runs(problem, lambda: GlobalBatch(WORKERS), SumOver(WORKERS), TokenDecay(4)),
        "GBA, up to 1 late": runs(problem, lambda: GlobalBatch(WORKERS), SumOver(WORKERS), TokenDecay(1)),
    }
    excess = {name: mean_excess(each, TIMES, problem.excess) for name, each in made.items()}
    kept = {name: sum(step.update.n_eff for run in each for step in run.steps) for name, each in made.items()}
    return Figures(
        excess,
        chosen(excess, TIMES, CHECKPOINTS),
        {name: sum(run.updates for run in each) / SEEDS for name, each in made.items() if name != "asynchronous"},
        {name: 1 - kept[name] / sum(run.used for run in made[name]) for name in made if name.startswith("GBA")},
    )


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"GBA 2022: {WORKERS} workers, 5 % of tasks very slow, steps of {STEP:g}",
        [
            Panel("training", "loss above the least", lines=lines, x="seconds", log=True, top=1e3),
            Panel(f"in {TIMES[-1]} seconds", "updates", bars=found.updates),
            Panel("too late", "share of gradients dropped", bars=found.dropped),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
