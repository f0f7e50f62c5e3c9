"""Zhu, Zhang, Simeone, Wang, "Adaptive Worker Grouping", arXiv:2201.04301: send what changed, wait for one of a group.

CADA sends a gradient only if it differs enough from the one sent last; G-CADA gives groups of workers the same shard
and waits for the first of each. The driver-side rule that does not even ask a group is an addition (after LAG).
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import draw as draw_rows
from toy_problems import exponential, log20, train

from serverless_gc.aggregate import GradientTable
from serverless_gc.optim import AMSGrad
from serverless_gc.policies import CADA2Trigger, Groups, LagPSTrigger, has_changed

WORKERS, GOAL, LOOK = 20, 0.03, 5
ALONE = [[i] for i in range(WORKERS)]
GROUPS = [list(range(4 * g, 4 * g + 4)) for g in range(5)]


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested: to reach the goal."""

    curves: dict  # seconds and excess
    iterations: dict
    seconds: dict
    uploads: dict


class ThereError(Exception):
    """The goal is reached."""


def to_the_goal(problem, groups, trigger=None):
    """Run until the excess is small; return the run, and seconds and excess on the way."""
    runs, way = [], [(0.0, problem.excess(np.zeros(20)))]

    def work(task, x):
        rows = draw_rows(task.seed, problem.n, 128)
        gradient = problem.gradient(x, rows)
        told = task.payload
        if trigger is None or trigger.site == "driver" or told["sent"] is None:
            return gradient
        then = problem.gradient(runs[0].training.model_at(told["sent"]), rows)
        change = float(np.sum((gradient - then) ** 2))
        return gradient if has_changed(change, told["threshold"], told["age"], told["max_age"]) else None

    def look(run, step):
        runs[:] = [run]
        if step is None or step.version % LOOK:
            return
        way.append((step.outcome.t_close, problem.excess(step.x)))
        if way[-1][1] < GOAL:
            raise ThereError

    try:
        train(
            Groups(groups, trigger), exponential, work, np.zeros(20), n_slots=WORKERS,
            aggregator=GradientTable(len(groups)), optimizer=AMSGrad(0.003, 0.9, 0.99), rounds=1000, on_step=look,
            snapshots=21,
        )  # fmt: skip
    except ThereError:
        return runs[0], np.transpose(way)
    raise RuntimeError(f"1000 steps did not bring the excess below {GOAL}: it is {way[-1][1]:.3g}")


def figures():
    problem = log20()
    ways = {
        "Adam": to_the_goal(problem, ALONE),
        "CADA": to_the_goal(problem, ALONE, CADA2Trigger(1.0, 10, 20)),
        "grouped Adam": to_the_goal(problem, GROUPS),
        "G-CADA": to_the_goal(problem, GROUPS, CADA2Trigger(0.3, 10, 20)),
        "groups, asked if need be": to_the_goal(problem, GROUPS, LagPSTrigger(0.3, 10, 20, smoothness=0.3)),
    }
    return Figures(
        {name: way for name, (_, way) in ways.items()},
        {name: run.updates for name, (run, _) in ways.items()},
        {name: run.times[-1] for name, (run, _) in ways.items()},
        {name: sum(len(step.update.meta["sent"]) for step in run.steps) for name, (run, _) in ways.items()},
    )


def picture(found, path):
    draw(
        path,
        f"G-CADA 2022: {WORKERS} workers, alone or in five groups",
        [
            Panel("training", "loss above the least", lines=found.curves, x="seconds", log=True),
            Panel(f"to {GOAL:g}", "iterations", bars=found.iterations),
            Panel(f"to {GOAL:g}", "gradients sent", bars=found.uploads),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
