"""Ferdinand, Draper, "Anytime Stochastic Gradient Descent", arXiv:1810.02976: all compute until one moment.

Ten workers of speeds 1 to 32 run local SGD for a second; their models are averaged by the steps each has made, or
uniformly, or everybody is waited for. With a constant step the uniform average is the better one late: shown, too.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import SlotDelays, chosen, lin20, mean_excess, train

from serverless_gc.aggregate import AverageModels
from serverless_gc.engine import Completion
from serverless_gc.optim import ModelAverage
from serverless_gc.policies import Anytime, WaitAll

SPEEDS = np.array([1, 1, 2, 2, 4, 8, 16, 16, 32, 32])
STEPS = 11
TIMES, CHECKPOINTS = np.arange(1, 65), (4, 16, 64)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    decaying: dict
    at_checkpoints: dict
    constant: dict
    floors: dict  # of constant steps


def local_sgd(problem, x, lr, steps, rng):
    rows = rng.integers(problem.n, size=steps)
    for row, target in zip(problem.X[rows], problem.y[rows], strict=True):
        x = x - lr * (row @ x - target) * row
    return x


def curve(problem, policy, delays, weight, lr, seeds):
    """Mean excess over runs whose tasks make the steps that fit into their time, or eleven if it is not limited."""

    def work(task, x):
        steps = STEPS if task.stop_at is None else int(task.work)
        moved = local_sgd(problem, x, lr(task.version), steps, np.random.default_rng(task.seed))
        return Completion(moved, work_done=steps)

    runs = [
        train(
            policy, delays, work, np.zeros(20), n_slots=10,
            aggregator=AverageModels(weight), optimizer=ModelAverage(), until=TIMES[-1], seed=seed,
        )
        for seed in range(seeds)
    ]  # fmt: skip
    return mean_excess(runs, TIMES, problem.excess)


def anytime(problem, weight, lr, seeds):
    """In a second, worker ``i`` makes a Poisson number of steps of mean ``SPEEDS[i]``."""
    law = SlotDelays(lambda slot, _, rng: 1.0 / max(rng.poisson(SPEEDS[slot]), 0.5))
    return curve(problem, Anytime(1.0), law, weight, lr, seeds)


def wait_for_all(problem, lr, seeds):
    """Everybody makes as many steps, however long that takes."""
    law = SlotDelays(lambda slot, _, rng: rng.gamma(STEPS) / SPEEDS[slot])
    return curve(problem, WaitAll(), law, "work_done", lr, seeds)


def figures():
    problem = lin20(n=20000)

    def falling(k):
        return 0.08 / (1 + k) ** 0.75

    weights = {"weighted by work": "work_done", "uniform average": lambda _: 1.0}
    decaying = {name: anytime(problem, weight, falling, 5) for name, weight in weights.items()}
    decaying["wait for all"] = wait_for_all(problem, falling, 5)
    constant = {name: anytime(problem, weight, lambda _: 0.05, 4) for name, weight in weights.items()}
    floors = {name: float(excess[-15:].mean()) for name, excess in constant.items()}
    return Figures(decaying, chosen(decaying, TIMES, CHECKPOINTS), constant, floors)


def picture(found, path):
    axes = {"y": "loss above the least", "x": "seconds", "log": True}
    draw(
        path,
        "Anytime SGD 2018: ten workers of speeds 1 to 32",
        [
            Panel(name, lines={key: (TIMES, excess) for key, excess in lines.items()}, **axes)
            for name, lines in (("decaying steps", found.decaying), ("constant steps", found.constant))
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
