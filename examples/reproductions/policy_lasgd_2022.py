"""Avidor, Tal Israel, "Locally Asynchronous Stochastic Gradient Descent", arXiv:2203.13085: groups that average.

Workers of a group update its model asynchronously; the groups average their models exactly, now and then. Larger groups
stand stragglers better; averaging ends lower than one asynchronous model. How groups are formed is our reading.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from network_problems import Lin20, SometimesSlow, trained

from serverless_gc.gossip import GroupedSGD, GroupGradients
from serverless_gc.policies import LocallyAsync
from serverless_gc.topologies import Groups

WORKERS, SEEDS = 16, 3
METHODS = {
    "local SGD": (1, 4),
    "groups of 2": (2, 4),
    "groups of 4": (4, 4),
    "groups of 8": (8, 8),
    "asynchronous": (16, 1),
}  # size of a group, its updates between averages
TIMES, CHECKPOINTS = np.arange(2, 59, 2), (20, 58)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict


def lasgd(size, period, gradient, model, *, slots, lr=0.05, d=20, **options):
    """Time and models of the groups after each update."""
    groups = Groups(slots, size).groups()
    plugins = (np.zeros((len(groups), d)), GroupGradients(), GroupedSGD(lr, period))
    return trained(LocallyAsync(groups, period), *plugins, gradient, model, slots=slots, **options)


def curve(size, period):
    """Mean excess of the average of the groups' models."""
    found = []
    for seed in range(SEEDS):
        problem = Lin20(batch=8, seed=seed)
        steps = lasgd(size, period, problem.gradient, SometimesSlow(), slots=WORKERS, until=TIMES[-1], seed=seed)
        ends = np.searchsorted([t for t, _ in steps], TIMES, side="right") - 1
        found.append([problem.excess(steps[end][1].mean(axis=0)) for end in ends])
    return np.mean(found, axis=0)


def figures():
    excess = {name: curve(*shape) for name, shape in METHODS.items()}
    return Figures(excess, {name: values[np.searchsorted(TIMES, CHECKPOINTS)] for name, values in excess.items()})


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"LASGD 2022: {WORKERS} workers, 5 % of tasks slow",
        [Panel("training", "loss above the least", lines=lines, x="seconds", log=True)],
    )


if __name__ == "__main__":
    main(figures, picture)
