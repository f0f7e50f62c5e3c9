"""Ofner, Ratul, Ghosh, Stober, "Predictive coding, precision and natural gradients", arXiv:2111.06942, adapted.

What is carried over from networks that weigh prediction errors by learned precisions: workers weighted by the inverse
variance of their gradients, and steps by the inverse Fisher information. The paper's inference loop has no place here.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import exponential, hetero10, train

from serverless_gc.aggregate import Mean, PrecisionWeightedMean, WeightedMean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD, NaturalGradient
from serverless_gc.policies import WaitAll
from serverless_gc.types import Update

WORKERS, ROUNDS, STEPS = 10, 350, 500


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    error: dict  # squared distance from the solution, over the rounds
    floor: dict
    left: dict  # share of the excess, over the steps, on badly scaled features
    left_at_the_end: dict


def weighted():
    """Three workers of ten have labels twenty times noisier than the others."""
    problem, solution = hetero10()

    def work(task, x):
        rows = 200 * task.slot + np.random.default_rng(task.seed).integers(200, size=10)
        g = problem.X[rows] * problem.errors(x, rows)[:, None]
        return Completion(g.mean(axis=0), work_done=10, stats={"sum_of_squares": np.sum(g**2, axis=0)})

    aggregators = {
        "plain mean": Mean(),
        "learned precisions": PrecisionWeightedMean(),
        "known precisions": WeightedMean(lambda a: 1.0 if a.task.slot < 3 else 400.0),
    }
    error = {}
    for name, aggregator in aggregators.items():
        run = train(
            WaitAll(), exponential, work, np.zeros(10), n_slots=WORKERS, aggregator=aggregator, optimizer=SGD(0.1),
            rounds=ROUNDS,
        )  # fmt: skip
        error[name] = np.array([np.sum((x - solution) ** 2) for x in run.models])
    return error


def scaled():
    """Features whose scales span three powers of ten."""
    rng = np.random.default_rng(2)
    scales = np.geomspace(1, 1000, 10)
    X = rng.standard_normal((1000, 10)) * scales
    y = X @ (rng.standard_normal(10) / scales) + rng.standard_normal(1000)
    gram = X.T @ X / 1000
    best = np.linalg.lstsq(X, y, rcond=None)[0]

    def left(rule, **meta):
        x, state, shares = np.zeros(10), rule.init(np.zeros(10)), []
        for t in range(STEPS):
            x, state = rule.step(x, Update(gram @ (x - best), meta=meta), state, t)
            shares.append((x - best) @ gram @ (x - best) / (best @ gram @ best))
        return np.array(shares)

    return {
        "gradient descent": left(SGD(1 / np.linalg.eigvalsh(gram)[-1])),
        "diagonal Fisher": left(NaturalGradient(0.5), sum_of_squares=np.diag(gram)),
    }


def figures():
    error, left = weighted(), scaled()
    return Figures(
        error,
        {name: float(values[100:].mean()) for name, values in error.items()},
        left,
        {name: float(values[-1]) for name, values in left.items()},
    )


def picture(found, path):
    draw(
        path,
        "Precision and natural gradients 2021",
        [
            Panel(
                f"{WORKERS} workers, three very noisy",
                "squared distance from the solution",
                lines={name: (np.arange(len(values)), values) for name, values in found.error.items()},
                x="steps",
                log=True,
            ),
            Panel(
                "features of scales 1 to 1000",
                "share of the excess loss left",
                lines={name: (np.arange(1, STEPS + 1), values) for name, values in found.left.items()},
                x="steps",
                log=True,
            ),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
