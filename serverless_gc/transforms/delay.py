"""Late results merged with a correction for the model having moved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Arrival, UpdateContext

__all__ = ["DelayCompensation", "PseudoGradient"]


@dataclass(frozen=True, slots=True)
class PseudoGradient:
    """Turn a local model into the gradient it stands for: ``(x_v - x_local) / lr``, at the model of the task.

    Aggregated by a weighted mean and stepped with ``SGD(lr)``, fresh local models give federated averaging.

    Parameters
    ----------
    lr
        Step length of the workers, or its function of the task's version.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.array([3.0]), 1, 0.0, np.random.default_rng(0), lambda v: np.array([1.0]))
    >>> PseudoGradient(0.5)(Arrival(TaskSpec("0-0", 0, version=0), 0.0, 1.0, body=np.array([0.0])), ctx).body
    array([2.])
    """

    lr: Rate

    def __post_init__(self) -> None:
        as_schedule(self.lr)

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:
        """Return the result with a gradient for its body."""
        if arrival.body is None:
            return arrival
        version = arrival.task.version
        moved = ctx.model_at(version) - arrival.body
        return replace(arrival, body=moved / as_schedule(self.lr)(version))


class DelayCompensation(Stateful):
    """Add to a stale gradient what it would have changed: ``g + weight * D * (x - x_v)``, to first order.

    Parameters
    ----------
    weight
        ``lambda``; 0 merges late results as they are.
    curvature
        The diagonal ``D``. ``"persample"``: the mean of the squares of per-sample gradients, from
        ``stats["sum_of_squares"]`` over ``work_done``; at the optimum of a likelihood this is the Hessian's diagonal.
        ``"square"``: the square of the mean gradient, which is smaller by the number of samples.
    adaptive
        Divide ``weight`` by the root of the exponential mean of the squared gradients.
    rho
        How much of that mean lasts from one result to the next.

    Raises
    ------
    InputError
        If a parameter is out of range; when called, if a result lacks ``stats["sum_of_squares"]``.

    Notes
    -----
    S. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation" (2017); as part of X. Li, Z. Qu,
    B. Tang, Z. Lu, "Stragglers Are Not Disaster" (2021).

    Examples
    --------
    A mean of normal variables, read at 0; the model is at 0.4 now:

    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.array([0.4]), 1, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> stats = {"sum_of_squares": np.array([100.0])}
    >>> stale = Arrival(TaskSpec("0-0", 0, version=0), 0.0, 1.0, 100.0, np.array([0.0]), stats)
    >>> DelayCompensation(1.0)(stale, ctx).body
    array([0.4])
    """

    remembered = ("_mean", "_weight")

    def __init__(
        self,
        weight: float,
        curvature: Literal["persample", "square"] = "persample",
        *,
        adaptive: bool = False,
        rho: float = 0.95,
    ) -> None:
        if not weight >= 0:
            raise InputError(f"weight must be at least 0, got {weight}")
        if curvature not in {"persample", "square"}:
            raise InputError(f"curvature must be 'persample' or 'square', got {curvature!r}")
        if not 0 <= rho < 1:
            raise InputError(f"rho must be in [0, 1), got {rho}")
        self.weight = float(weight)
        self.curvature = curvature
        self.adaptive = adaptive
        self.rho = rho
        self._mean: Array | float = 0.0
        self._weight = 0.0

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:
        """Return the result with its gradient corrected."""
        gradient = arrival.body
        if gradient is None:
            return arrival
        weight = self._weight_for(gradient)
        if arrival.task.version == ctx.version or self.weight == 0:
            return arrival
        moved = ctx.x - ctx.model_at(arrival.task.version)
        return replace(arrival, body=gradient + weight * self._diagonal(arrival) * moved)

    def _weight_for(self, gradient: Array) -> Array | float:
        if not self.adaptive:
            return self.weight
        self._mean = self.rho * self._mean + (1.0 - self.rho) * gradient**2
        self._weight = self.rho * self._weight + (1.0 - self.rho)
        return np.asarray(self.weight / (np.sqrt(self._mean / self._weight) + 1e-7))

    def _diagonal(self, arrival: Arrival) -> Array:
        if self.curvature == "square":
            return np.asarray(arrival.body**2)
        if "sum_of_squares" not in arrival.stats or not arrival.work_done > 0:
            raise InputError(
                f"task {arrival.task.task_id} delivered no stats['sum_of_squares'] of its samples, which "
                "curvature='persample' needs: let the kernel return it, or take curvature='square'"
            )
        return np.asarray(arrival.stats["sum_of_squares"] / arrival.work_done)
