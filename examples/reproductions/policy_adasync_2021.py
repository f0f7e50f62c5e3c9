"""Dutta, Joshi, Ghosh, Dube, Nagpurkar, "Slow and Stale Gradients Can Win the Race", arXiv:1803.01113, 2003.10579.

Waiting for few gradients is fast and noisy, for many slow and exact; AdaSync begins with one and waits for more as the
loss falls. Stale gradients cost stability, which a step limited by how far the model has moved wins back.
"""

import bisect
from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import chosen, exponential, lin20, mean_excess, train

from serverless_gc.aggregate import Mean
from serverless_gc.optim import SGD
from serverless_gc.policies import AdaSync, KAsync, KSync
from serverless_gc.transforms import StepLimit

WORKERS, STEP = 16, 0.1
TIMES, CHECKPOINTS = np.arange(1, 81), (5, 10, 20, 40, 80)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict
    awaited: np.ndarray  # by AdaSync, over time
    stability: dict
    start: float


def runs(policy, problem, *, seeds=2, until=TIMES[-1], transforms=()):
    def tell(run, _step):
        run.training.engine.loss_estimate = problem.excess(run.training.x)

    return [
        train(
            policy(), exponential, lambda task, x: problem.sample(x, 1, task.seed), np.zeros(20), n_slots=WORKERS,
            aggregator=Mean(), optimizer=SGD(STEP), until=until, seed=seed, on_step=tell, transforms=transforms,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def figures():
    problem = lin20()
    made = {f"K-sync, {k}": runs(lambda k=k: KSync(k), problem) for k in (1, 2, 4, 8, 16)}
    made["AdaSync"] = runs(lambda: AdaSync(1, interval=2.0), problem)
    excess = {name: mean_excess(each, TIMES, problem.excess) for name, each in made.items()}
    adaptive = made["AdaSync"][0]
    awaited = [len(adaptive.steps[bisect.bisect_right(adaptive.times, t) - 2].outcome.arrivals) for t in TIMES]
    half = {"seeds": 1, "until": 40}
    stability = {
        "K-async, 1": runs(lambda: KAsync(1), problem, **half),
        "K-sync, 1": runs(lambda: KSync(1), problem, **half),
        "K-async, 1, limited step": runs(lambda: KAsync(1), problem, **half, transforms=(StepLimit(0.02, STEP),)),
    }
    return Figures(
        excess,
        chosen(excess, TIMES, CHECKPOINTS),
        np.array(awaited),
        {name: mean_excess(each, TIMES[:40], problem.excess) for name, each in stability.items()},
        problem.excess(np.zeros(20)),
    )


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    stability = {name: (TIMES[:40], excess) for name, excess in found.stability.items()}
    axes = {"y": "loss above the least", "x": "seconds", "log": True}
    draw(
        path,
        f"AdaSync 2021: {WORKERS} workers, exponential delays, steps of {STEP:g}",
        [
            Panel("how many to wait for", lines=lines, **axes),
            Panel("by AdaSync", "gradients awaited", lines={"one run": (TIMES, found.awaited)}, x="seconds"),
            Panel("stale gradients", lines=stability, top=100 * found.start, **axes),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
