"""Workers of different noise: each counts by the inverse of its variance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from serverless_gc.aggregate.weights import reported, weighted_sum
from serverless_gc.errors import InputError
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["PrecisionWeightedMean"]


class PrecisionWeightedMean(Stateful):
    """Mean of gradients, weighted by the inverse of each slot's estimated variance.

    A result's body is the mean gradient of ``work_done`` samples, and ``stats["sum_of_squares"]`` the sum of the
    squares of the samples' gradients. The estimate used is the one from *before* the batch: weights computed from the
    same batch are biased wherever the noise is skewed.

    Parameters
    ----------
    memory
        How much of a slot's estimate lasts from one batch to the next.

    Raises
    ------
    InputError
        If ``memory`` is not in [0, 1); when called, if a result has no ``stats["sum_of_squares"]`` or fewer than two
        samples.

    Notes
    -----
    Precision weighting as in A. Ofner, R. Ratul, S. Ghosh, S. Stober, "Predictive coding, precision and natural
    gradients" (2021). Valid only if all slots estimate the same gradient: with data that belong to slots it re-weights
    the objective.

    Examples
    --------
    >>> aggregator = PrecisionWeightedMean()
    >>> aggregator.variances = {0: 1.0, 1: 3.0}
    >>> aggregator.weights([0, 1])
    [0.75, 0.25]
    """

    remembered = ("variances",)

    def __init__(self, memory: float = 0.9) -> None:
        if not 0 <= memory < 1:
            raise InputError(f"memory must be in [0, 1), got {memory}")
        self.memory = memory
        self.variances: dict[int, float] = {}  # slot -> variance of one sample's gradient, mean over parameters

    def weights(self, slots: Sequence[int], work: Sequence[float] | None = None) -> list[float]:
        """Return the weights of results of these slots; a slot not known yet counts like the mean of the known ones."""
        known = [self.variances[slot] for slot in slots if slot in self.variances]
        usual = math.fsum(known) / len(known) if known else 1.0
        least = max(known, default=1.0) * 1e-12 or 1.0  # a slot without noise outweighs the others, but stays finite
        samples = [1.0] * len(slots) if work is None else work
        raw = [n / max(self.variances.get(slot, usual), least) for slot, n in zip(slots, samples, strict=True)]
        total = math.fsum(raw)
        return [value / total for value in raw]

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Weigh the results by what was known before them, then learn from them."""
        given = [a for a in reported(arrivals) if a.work_done > 0]
        if not given:
            return Update(np.zeros_like(ctx.x), n_eff=0.0)
        weights = self.weights([a.task.slot for a in given], [a.work_done for a in given])
        direction = weighted_sum([a.body for a in given], weights)
        for arrival in given:
            self._learn(arrival)
        return Update(direction, n_eff=math.fsum(a.work_done for a in given), meta={"weights": tuple(weights)})

    def _learn(self, arrival: Arrival) -> None:
        n, squares = arrival.work_done, arrival.stats.get("sum_of_squares")
        if squares is None or n < 2:
            raise InputError(
                f"task {arrival.task.task_id} must deliver stats['sum_of_squares'] of at least two samples, got "
                f"{sorted(arrival.stats)} of {n:g}"
            )
        batch: Array = (np.asarray(squares) / n - np.asarray(arrival.body) ** 2) * (n / (n - 1))
        value = max(float(np.mean(batch)), 0.0)
        before = self.variances.get(arrival.task.slot, value)
        self.variances[arrival.task.slot] = self.memory * before + (1.0 - self.memory) * value
