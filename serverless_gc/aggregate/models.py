"""Averages of local models, as a direction: ``x - average``, for the step rule `serverless_gc.optim.ModelAverage`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.aggregate.weights import Weight, reported, weigh, weighted_sum
from serverless_gc.errors import InputError
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["AverageModels", "merge_late"]


@dataclass(frozen=True, slots=True)
class AverageModels:
    """The average of local models, each counting as much as the work behind it.

    Weights in proportion to the work minimize the variance of an average of independent estimates whose variances are
    inverse to it. N. Ferdinand, S. Draper, "Anytime Stochastic Gradient Descent" (2018). If nobody did anything the
    model stays what it is.

    Parameters
    ----------
    weight
        What each model counts; by default the work done.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.array([1.0]), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> models = [Arrival(TaskSpec(f"0-{n}", n, 0), 0.0, 1.0, float(n), np.array([4.0 * n])) for n in (0, 1, 3)]
    >>> ctx.x - AverageModels().combine(models, ctx).direction
    array([10.])
    """

    weight: Weight = "work_done"

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the local models."""
        given = reported(arrivals)
        weights = weigh(given, self.weight)
        total = math.fsum(weights)
        if not total > 0:
            return Update(np.zeros_like(ctx.x), n_eff=0.0)
        average = weighted_sum([a.body for a in given], [w / total for w in weights])
        return Update(ctx.x - average, n_eff=total)


def merge_late(master: Array, local: Array, *, work: float, late_work: float) -> Array:
    """Merge the average that a worker receives with what it did meanwhile: the generalized anytime rule.

    Parameters
    ----------
    master, local
        The average, and the model that the worker went on with; of one shape.
    work
        Work of all workers behind the average.
    late_work
        Work that the worker did since.

    Returns
    -------
    ndarray
        ``a * master + (1 - a) * local`` with ``a = work / (work + late_work)``.

    Raises
    ------
    InputError
        If an amount of work is negative, or both are 0.

    Examples
    --------
    >>> merge_late(np.array([4.0]), np.array([0.0]), work=30, late_work=10)
    array([3.])
    """
    if not (work >= 0 and late_work >= 0 and work + late_work > 0):
        raise InputError(f"work and late_work must be at least 0 and not both 0, got {work} and {late_work}")
    share = work / (work + late_work)
    merged: Array = share * master + (1.0 - share) * local
    return merged
