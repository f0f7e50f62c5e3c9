"""He, Dube, "Accelerating Parallel SGD via Non-blocking Mini-batches", arXiv:2211.00889: finished parts only.

Learners split a batch into ten mini-batches; when the first has finished all of its own, what the others have finished
is used and the rest abandoned. That is nearly a fixed time of computing. When the paper closes a step is our reading.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import chosen, lin20, train

from serverless_gc.aggregate import WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD
from serverless_gc.policies import Anytime, FirstDone, KSync, WaitAll
from serverless_gc.transforms import SumMessages

LEARNERS, PARTS, SEEDS, SECONDS = 8, 10, 8, 0.6  # seconds of the fixed time: as long as non-blocking steps are
TIMES, CHECKPOINTS = np.arange(1, 21), (5, 10, 20)
# Each point is averaged over a round or two: rounds of a fixed time end at the same times in every run.
AROUND = TIMES[:, None] + np.linspace(-0.6, 0.6, 7)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict


def poisson_process(m, seed=0):
    """Milestones of ``m`` exponential mini-batches: given the time of the last, the others are uniform before it."""
    rng = np.random.default_rng(seed)
    return lambda _: tuple(np.sort(rng.random(m - 1)).tolist())


def curve(problems, policy, delays, count, **options):
    """Mean excess over one run for each problem; a task has ``count(task)`` mini-batches of one sample."""

    def batches(problem, task, x):
        size = count(task)
        rows = np.random.default_rng(task.seed).integers(problem.n, size=size)
        X = problem.X[rows]
        return Completion(X * (X @ x - problem.y[rows])[:, None], work_done=size)

    excess = []
    for seed, problem in enumerate(problems):
        run = train(
            policy, delays, lambda task, x, problem=problem: batches(problem, task, x), np.zeros(20),
            n_slots=LEARNERS, aggregator=WeightedMean(of="sums"), optimizer=SGD(0.3), transforms=(SumMessages(),),
            until=AROUND.max(), seed=seed, engine_options=options,
        )  # fmt: skip
        excess.append([[run.at(t, problem.excess) for t in times] for times in AROUND])
    return np.mean(excess, axis=(0, 2))


def figures():
    problems = [lin20(n=20000, seed=seed) for seed in range(SEEDS)]

    def erlang(rng):
        return rng.gamma(PARTS) / PARTS

    def all_parts(_task):
        return PARTS

    def parts_in_time(task):
        return int(np.random.default_rng(task.seed + 1).poisson(PARTS * SECONDS))

    excess = {
        "wait for all": curve(problems, WaitAll(), erlang, all_parts),
        "wait for half": curve(problems, KSync(LEARNERS // 2), erlang, all_parts),
        "non-blocking": curve(problems, FirstDone(), erlang, all_parts, milestones=poisson_process(PARTS)),
        "fixed time": curve(problems, Anytime(SECONDS), lambda _: SECONDS, parts_in_time),
    }
    return Figures(excess, chosen(excess, TIMES, CHECKPOINTS))


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"Non-blocking SGD 2022: {LEARNERS} learners",
        [Panel(f"{PARTS} mini-batches each", "loss above the least", lines=lines, x="seconds", log=True)],
    )


if __name__ == "__main__":
    main(figures, picture)
