"""Ferdinand, Al-Lawati, Draper, Nokleby, "Anytime MiniBatch", arXiv:2006.05752: a fixed time, as many samples as fit.

Every worker sums the gradients of the samples that it manages in a fixed time, against a fixed number of samples with
the slowest waited for or dropped. The consensus of the paper's decentralized form is not shown.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import chosen, lin20, mean_excess, train

from serverless_gc.aggregate import WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD
from serverless_gc.policies import Anytime, KSync, WaitAll

WORKERS, SAMPLES, SEEDS = 10, 6, 8
SECONDS = (1 + WORKERS / 60) * 2.5  # in which 60 samples are made at least, on average
TIMES, CHECKPOINTS = np.arange(2, 141, 2), (20, 40, 80, 140)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict
    samples: float  # of an anytime step


def nominal_time(rng):
    """Seconds of ``SAMPLES`` samples."""
    return 1.0 + rng.standard_exponential() / (2 / 3)


def runs(problem, policy, delays):
    """Run tasks that sum over the samples that fit into their time, or over ``SAMPLES`` if it is not limited."""

    def work(task, x):
        size = SAMPLES if task.stop_at is None else int(task.work)
        if size == 0:
            return Completion(np.zeros(20), work_done=0)
        return Completion(problem.sample(x, size, task.seed) * size, work_done=size)

    return [
        train(
            policy, delays, work, np.zeros(20), n_slots=WORKERS,
            aggregator=WeightedMean(of="sums"), optimizer=SGD(0.3), until=TIMES[-1], seed=seed,
        )
        for seed in range(SEEDS)
    ]  # fmt: skip


def figures():
    problem = lin20(n=20000)
    made = {
        name: runs(problem, policy, nominal_time)
        for name, policy in (("wait for all", WaitAll()), ("drop the slowest 2", KSync(8)), ("drop 5", KSync(5)))
    }
    made["anytime"] = runs(problem, Anytime(SECONDS), lambda rng: nominal_time(rng) / SAMPLES)
    excess = {name: mean_excess(each, TIMES, problem.excess) for name, each in made.items()}
    samples = float(np.mean([step.update.n_eff for run in made["anytime"] for step in run.steps]))
    return Figures(excess, chosen(excess, TIMES, CHECKPOINTS), samples)


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"Anytime MiniBatch 2019: {WORKERS} workers",
        [Panel(f"{SAMPLES} samples each, or a fixed time", "loss above the least", lines=lines, x="seconds", log=True)],
    )


if __name__ == "__main__":
    main(figures, picture)
