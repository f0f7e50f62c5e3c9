"""Uploading only what changed, waiting for the first of each group: CADA and G-CADA."""

import numpy as np
import pytest
from toy_problems import draw, exponential, log20, train

from serverless_gc.aggregate import GradientTable
from serverless_gc.optim import AMSGrad
from serverless_gc.policies import CADA2Trigger, Groups, LagPSTrigger, has_changed

GOAL = 0.03
ALONE = [[i] for i in range(20)]
GROUPS = [list(range(4 * g, 4 * g + 4)) for g in range(5)]


class ThereError(Exception):
    pass


def to_the_goal(problem, groups, trigger=None, seed=0):
    """Run until the excess is small; return iterations, seconds and uploads."""
    runs = []

    def work(task, x):
        rows = draw(task.seed, problem.n, 128)
        gradient = problem.gradient(x, rows)
        told = task.payload
        if trigger is None or trigger.site == "driver" or told["sent"] is None:
            return gradient
        then = problem.gradient(runs[0].training.model_at(told["sent"]), rows)
        change = float(np.sum((gradient - then) ** 2))
        return gradient if has_changed(change, told["threshold"], told["age"], told["max_age"]) else None

    def look(run, step):
        runs[:] = [run]
        if step is not None and step.version % 5 == 0 and problem.excess(step.x) < GOAL:
            raise ThereError

    with pytest.raises(ThereError):
        train(
            Groups(groups, trigger), exponential, work, np.zeros(20), n_slots=20, aggregator=GradientTable(len(groups)),
            optimizer=AMSGrad(0.003, 0.9, 0.99), rounds=1000, seed=seed, on_step=look, snapshots=21,
        )  # fmt: skip
    [run] = runs
    return run.updates, run.times[-1], sum(len(step.update.meta["sent"]) for step in run.steps)


@pytest.fixture(scope="module")
def problem():
    return log20()


@pytest.fixture(scope="module")
def adam(problem):
    return to_the_goal(problem, ALONE)


def test_as_many_iterations_with_far_fewer_uploads(problem, adam):
    cada = to_the_goal(problem, ALONE, CADA2Trigger(1.0, 10, 20))
    assert cada[0] == pytest.approx(adam[0], rel=0.1)
    assert cada[2] <= 0.3 * adam[2]


def test_the_first_of_each_group_is_enough(problem, adam):
    grouped = to_the_goal(problem, GROUPS)
    lazy = to_the_goal(problem, GROUPS, CADA2Trigger(0.3, 10, 20))
    asked = to_the_goal(problem, GROUPS, LagPSTrigger(0.3, 10, 20, smoothness=0.3))
    for run in (grouped, lazy, asked):
        assert run[0] == pytest.approx(adam[0], rel=0.1)
        assert run[1] < 0.3 * adam[1]
    assert lazy[2] < 0.5 * grouped[2]
    # A worker that decides not to send has to be waited for all the same; a group that is not asked has not.
    assert asked[1] < 0.9 * grouped[1]
    assert asked[2] < grouped[2]
