"""Barkai, Hakimi, Schuster, "Gap-Aware Mitigation of Gradient Staleness", arXiv:1909.10802: how far the model moved.

Stale gradients divided by the gap between the model they were computed at and the one they change, against division by
their age in steps, and none. The average step is that of incoming gradients (raw) or of steps made (applied).
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import chosen, lin20, mean_excess, train

from serverless_gc.aggregate import Mean
from serverless_gc.optim import SGD
from serverless_gc.policies import KBatchAsync
from serverless_gc.transforms import GapAware, StalenessAware

WORKERS, SEEDS, LONG, SHORT = 32, 2, 0.1, 0.05


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested; times are whole seconds from 1."""

    long_step: dict
    short_step: dict
    long_at_10_30: dict
    start: float


def gamma4(rng):
    return rng.gamma(4) / 4


def curve(problem, transform, lr, until):
    """Mean excess of asynchronous SGD at every second."""
    runs = [
        train(
            KBatchAsync(1), gamma4, lambda task, x: problem.sample(x, 8, task.seed), np.zeros(20), n_slots=WORKERS,
            aggregator=Mean(), optimizer=SGD(lr), until=until, seed=seed,
            transforms=() if transform is None else (transform(),),
        )
        for seed in range(SEEDS)
    ]  # fmt: skip
    return mean_excess(runs, np.arange(1, until + 1), problem.excess)


def figures():
    problem = lin20()
    long = {
        "plain": None,
        "by age": StalenessAware,
        "by gap, raw": lambda: GapAware(LONG),
        "by gap, applied": lambda: GapAware(LONG, mode="applied"),
    }
    short = {"plain": None, "by age": StalenessAware, "by gap, raw": lambda: GapAware(SHORT)}
    long_step = {name: curve(problem, transform, LONG, 30) for name, transform in long.items()}
    short_step = {name: curve(problem, transform, SHORT, 60) for name, transform in short.items()}
    early = chosen(long_step, np.arange(1, 31), (10, 30))
    return Figures(long_step, short_step, early, problem.excess(np.zeros(20)))


def picture(found, path):
    draw(
        path,
        f"Gap-Aware 2020: {WORKERS} asynchronous workers",
        [
            Panel(
                f"steps of {lr:g}",
                "loss above the least",
                lines={name: (np.arange(1, len(excess) + 1), excess) for name, excess in lines.items()},
                x="seconds",
                log=True,
                top=10 * found.start,
            )
            for lr, lines in ((LONG, found.long_step), (SHORT, found.short_step))
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
