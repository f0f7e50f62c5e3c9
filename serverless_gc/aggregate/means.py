"""Means and sums of gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from serverless_gc.aggregate.weights import Weight, reported, weigh, weighted_sum
from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.types import Arrival, Update, UpdateContext

__all__ = ["Mean", "SumOver", "WeightedMean"]


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of the results, whatever work each stands for; zero if none has anything to report.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> arrivals = [Arrival(TaskSpec(f"0-{i}", i, 0), 0.0, 1.0, body=np.array([b])) for i, b in enumerate([1.0, 5.0])]
    >>> Mean().combine(arrivals, ctx).direction
    array([3.])
    """

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results."""
        given = reported(arrivals)
        if not given:
            return Update(np.zeros_like(ctx.x), n_eff=0.0)
        total = weighted_sum([a.body for a in given], [1.0] * len(given))
        return Update(total / len(given), n_eff=math.fsum(a.work_done for a in given))


@dataclass(frozen=True, slots=True)
class WeightedMean:
    """The mean over samples, when results stand for different numbers of them.

    Parameters
    ----------
    weight
        What each result counts; by default the work it stands for.
    of
        What the bodies are: ``"means"`` over the work, or ``"sums"``.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> arrivals = [Arrival(TaskSpec(f"0-{n}", n, 0), 0.0, 1.0, float(n), np.array([2.0 * n])) for n in (1, 3)]
    >>> WeightedMean(of="sums").combine(arrivals, ctx).direction, WeightedMean().combine(arrivals, ctx).direction
    (array([2.]), array([5.]))
    """

    weight: Weight = "work_done"
    of: Literal["means", "sums"] = "means"

    def __post_init__(self) -> None:
        if self.of not in {"means", "sums"}:
            raise InputError(f"of must be 'means' or 'sums', got {self.of!r}")

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results; zero if they stand for no work."""
        given = reported(arrivals)
        weights = weigh(given, self.weight)
        total = math.fsum(weights)
        if not total > 0:
            return Update(np.zeros_like(ctx.x), n_eff=0.0)
        factors = weights if self.of == "means" else [float(w > 0) for w in weights]
        return Update(weighted_sum([a.body for a in given], factors) / total, n_eff=total)


@dataclass(frozen=True, slots=True)
class SumOver:
    """The sum of the results over a fixed number: a result that was dropped counts as zero, not as absent.

    `Mean` divides by the number kept instead.

    Parameters
    ----------
    n
        Results of a global batch.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> SumOver(4).combine([Arrival(TaskSpec("0-0", 0, 0), 0.0, 1.0, body=np.array([2.0]))], ctx).direction
    array([0.5])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_whole("n", self.n, 1))

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Make an update of the results."""
        given = reported(arrivals)
        if not given:
            return Update(np.zeros_like(ctx.x), n_eff=0.0)
        total = weighted_sum([a.body for a in given], [1.0] * len(given))
        return Update(total / self.n, n_eff=math.fsum(a.work_done for a in given))
