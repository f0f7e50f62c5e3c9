"""What step rules of second order want to know besides the direction, put into ``Update.meta``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.aggregate.weights import reported, weighted_sum
from serverless_gc.errors import InputError
from serverless_gc.types import Aggregator, Arrival, Update, UpdateContext

__all__ = ["AverageStats", "KeepSlots", "StackStats"]


@dataclass(frozen=True, slots=True)
class KeepSlots:
    """Also hand over each slot's own gradient, as ``meta["slots"]``; for `serverless_gc.optim.LBFGS`.

    Parameters
    ----------
    inner
        Makes the update.

    Examples
    --------
    >>> from serverless_gc.aggregate import Mean
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> arrivals = [Arrival(TaskSpec("0-3", 3, 0), 0.0, 1.0, body=np.array([2.0]))]
    >>> KeepSlots(Mean()).combine(arrivals, ctx).meta
    {'slots': {3: array([2.])}}
    """

    inner: Aggregator

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results; of two from one slot the later is kept."""
        slots = {a.task.slot: a.body for a in reported(arrivals)}
        return _with_meta(self.inner.combine(arrivals, ctx), slots=slots)


@dataclass(frozen=True, slots=True)
class AverageStats:
    """Also average sums over samples that results carry in ``stats``, as ``meta[name]``.

    Parameters
    ----------
    inner
        Makes the update.
    name
        Of the sum in ``stats``: ``"sum_of_squares"`` (of per-sample gradients, by parameter) or ``"fisher"`` (of their
        outer products), for `serverless_gc.optim.NaturalGradient`.

    Raises
    ------
    InputError
        When called, if a result lacks it.

    Examples
    --------
    >>> from serverless_gc.aggregate import Mean
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> stats = {"fisher": np.array([[8.0]])}
    >>> arrivals = [Arrival(TaskSpec("0-3", 3, 0), 0.0, 1.0, 4.0, np.array([2.0]), stats)]
    >>> AverageStats(Mean(), "fisher").combine(arrivals, ctx).meta
    {'fisher': array([[2.]])}
    """

    inner: Aggregator
    name: str

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results."""
        given = [a for a in reported(arrivals) if a.work_done > 0]
        update = self.inner.combine(arrivals, ctx)
        if not given:
            return update
        sums = [np.asarray(_stat(a, self.name)) for a in given]
        total = math.fsum(a.work_done for a in given)
        return _with_meta(update, **{self.name: weighted_sum(sums, [1.0 / total] * len(sums))})


@dataclass(frozen=True, slots=True)
class StackStats:
    """Also stack sketches that results carry in ``stats``, so that ``B.T @ B`` of the stack averages theirs.

    Parameters
    ----------
    inner
        Makes the update.
    name
        Of the sketch ``(rows, parameters)`` in ``stats``; for `serverless_gc.optim.SketchedNewton` it is
        ``"hessian_root"``.

    Raises
    ------
    InputError
        When called, if a result lacks it.
    """

    inner: Aggregator
    name: str = "hessian_root"

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results."""
        given = reported(arrivals)
        update = self.inner.combine(arrivals, ctx)
        if not given:
            return update
        stacked = np.concatenate([np.asarray(_stat(a, self.name)) for a in given]) / math.sqrt(len(given))
        return _with_meta(update, **{self.name: stacked})


def _stat(arrival: Arrival, name: str) -> object:
    if name not in arrival.stats:
        raise InputError(
            f"task {arrival.task.task_id} must deliver stats[{name!r}], got {sorted(arrival.stats)}: let the kernel "
            "return it"
        )
    return arrival.stats[name]


def _with_meta(update: Update, **more: object) -> Update:
    return replace(update, meta={**update.meta, **more})
