"""Nguyen, Han, "AET-SGD: Asynchronous Event-triggered Stochastic Gradient Descent", arXiv:2112.13935: ever rarer talk.

Nodes work alone and exchange models after numbers of samples that grow linearly, against constant ones. The models are
those that all nodes have in common; early the growing schedule is ahead at equal messages, late it need not be.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from network_problems import net16

from serverless_gc.gossip import AET, LinearSampleTrigger, synchronous
from serverless_gc.optim import inverse_time
from serverless_gc.topologies import Complete

NODES, EARLY, LATE, PLANNED, SEEDS = 8, 500, 2000, 4000, 10
SCHEDULES = {
    "10, 20, 30, ...": LinearSampleTrigger(10, 10),
    "10 always": LinearSampleTrigger(0, 10),
    "150 always": LinearSampleTrigger(0, 150),
}


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    curves: dict  # samples of a node and excess
    messages: dict  # of a node, for the planned samples
    early: dict
    final: dict  # share of the excess at the start


def train(trigger, seed, samples):
    """Return samples of a node and excess, at each exchange of models."""
    problem = net16(n=NODES, batch=1, shuffled=True, seed=seed)
    kernel = AET(Complete(NODES), problem.gradient, np.zeros(problem.d), trigger, inverse_time(0.1, 0.01))
    rounds = trigger.rounds(samples + 1) - 1
    exchanges = synchronous(kernel, NODES, rounds)
    models = [np.zeros(problem.d), *(np.mean([x for x, _ in states], axis=0) for states in exchanges)]
    return np.array([trigger.total(k) for k in range(rounds + 1)]), np.array([problem.excess(x) for x in models])


def figures():
    curves = {name: train(trigger, 0, LATE) for name, trigger in SCHEDULES.items()}
    return Figures(
        curves,
        {name: trigger.rounds(PLANNED) for name, trigger in SCHEDULES.items()},
        {
            name: float(np.mean([train(SCHEDULES[name], seed, EARLY)[1][-1] for seed in range(SEEDS)]))
            for name in ("10, 20, 30, ...", "150 always")
        },
        {name: float(excess[-1] / excess[0]) for name, (_, excess) in curves.items()},
    )


def picture(found, path):
    draw(
        path,
        f"AET-SGD 2021: {NODES} nodes, samples between two exchanges",
        [
            Panel("training", "loss above the least", lines=found.curves, x="samples of a node", log=True),
            Panel(f"for {PLANNED} samples", "exchanges", bars=found.messages),
            Panel(f"at {EARLY} samples, mean of {SEEDS} runs", "loss above the least", bars=found.early),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
