"""LASGD: asynchronous within groups, an exact average between them.

The model of `serverless_gc.fitting.training.Training` is the stack of the groups' models, shape (G, d). The driver is
every group's parameter server: `GroupGradients` aggregates, `GroupedSGD` steps and averages, and the waiting policy
`serverless_gc.policies.LocallyAsync` holds back what a finished group must not process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["GroupGradients", "GroupedSGD", "average_groups"]


class GroupGradients:
    """Aggregates gradients by the group that computed them, ``task.payload["group"]``.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros((2, 1)), 0, 0.0, np.random.default_rng(0), lambda version: np.zeros((2, 1)))
    >>> task = TaskSpec("0-3", slot=3, version=0, payload={"group": 1})
    >>> update = GroupGradients().combine([Arrival(task, 0.0, 1.0, body=np.array([5.0]))], ctx)
    >>> update.direction.tolist(), update.meta["updates"].tolist()
    ([[0.0], [5.0]], [0, 1])
    """

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Sum the gradients of each group, and count them."""
        direction = np.zeros_like(ctx.x, dtype=np.float64)
        updates = np.zeros(len(ctx.x), dtype=np.int64)
        for arrival in arrivals:
            group = arrival.task.payload["group"]
            direction[group] += arrival.body
            updates[group] += 1
        return Update(direction, n_eff=float(len(arrivals)), meta={"updates": updates})


class GroupedSGD:
    """SGD on each group's model; when every group has made ``period`` updates, all get the exact average.

    The state is the number of updates that each group has made since the last average.

    Parameters
    ----------
    lr
        Step length, or a function of the update's number.
    period
        Updates of a group between two averages; that of the policy.

    Raises
    ------
    InputError
        If ``period`` is not positive, or ``lr`` is a number that is not positive and finite.

    Notes
    -----
    Avidor and Tal Israel, "Locally Asynchronous Stochastic Gradient Descent for Decentralised Deep Learning", 2022.

    Examples
    --------
    >>> rule = GroupedSGD(lr=1.0, period=1)
    >>> update = Update(np.array([[2.0], [4.0]]), meta={"updates": np.array([1, 1])})
    >>> x, state = rule.step(np.zeros((2, 1)), update, rule.init(np.zeros((2, 1))), 0)
    >>> x.tolist(), state[0].tolist()
    ([[-3.0], [-3.0]], [0, 0])
    """

    def __init__(self, lr: Rate, period: int) -> None:
        if period < 1:
            raise InputError(f"period must be at least 1, got {period}")
        self.lr = as_schedule(lr)
        self.period = period

    def init(self, x: Array) -> tuple[Array]:
        """No updates yet."""
        return (np.zeros(len(x), dtype=np.int64),)

    def step(self, x: Array, update: Update, state: tuple[Array], t: int) -> tuple[Array, tuple[Array]]:
        """Step, and average if all groups are ready."""
        x = x - self.lr(t) * update.direction
        made = state[0] + update.meta.get("updates", 0)
        if np.all(made >= self.period):
            return average_groups(x), (np.zeros_like(made),)
        return x, (made,)


def average_groups(x: Array) -> Array:
    """Give every group the mean of the groups' models, shape (G, d): bit-identical rows.

    Examples
    --------
    >>> average_groups(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """
    return np.broadcast_to(x.mean(axis=0), x.shape).copy()
