"""Stale gradients, made shorter or dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Arrival, UpdateContext

__all__ = ["StalenessAware", "StepLimit", "TokenDecay"]


@dataclass(frozen=True, slots=True)
class StepLimit:
    """Limit the step by how far the model moved: ``min(lr, limit / ||x - x_v||**2)`` for a gradient taken at ``x_v``.

    S. Dutta, G. Joshi, S. Ghosh, P. Dube, P. Nagpurkar, "Slow and Stale Gradients Can Win the Race" (2018).

    Parameters
    ----------
    limit
        ``C``.
    lr
        Step length of the optimizer, or its function of the update's number.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.array([3.0]), 1, 0.0, np.random.default_rng(0), lambda v: np.array([1.0]))
    >>> stale = Arrival(TaskSpec("0-0", 0, version=0), 0.0, 1.0, body=np.array([8.0]))
    >>> StepLimit(limit=0.1, lr=0.1)(stale, ctx).body
    array([2.])
    """

    limit: float
    lr: Rate

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        if not self.limit > 0:
            raise InputError(f"limit must be positive, got {self.limit}")

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:
        """Return the result, with a shorter gradient if the model moved far."""
        if arrival.body is None or arrival.task.version == ctx.version:
            return arrival
        moved = float(np.sum((ctx.x - ctx.model_at(arrival.task.version)) ** 2))
        longest = as_schedule(self.lr)(ctx.version) * moved
        return arrival if longest <= self.limit else replace(arrival, body=arrival.body * (self.limit / longest))


@dataclass(frozen=True, slots=True)
class StalenessAware:
    """Divide by the number of updates since the gradient's model: ``g / max(staleness, 1)``.

    W. Zhang, S. Gupta, X. Lian, J. Liu, "Staleness-aware Async-SGD for Distributed Deep Learning" (2016).

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 5, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> StalenessAware()(Arrival(TaskSpec("1-0", 0, version=1), 0.0, 1.0, body=np.array([8.0])), ctx).body
    array([2.])
    """

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:
        """Return the result with its gradient divided."""
        staleness = ctx.version - arrival.task.version
        return arrival if arrival.body is None or staleness <= 1 else replace(arrival, body=arrival.body / staleness)


@dataclass(frozen=True, slots=True)
class TokenDecay:
    """Suppress gradients whose token is too old.

    With ``s = version - token``, a gradient counts in full up to ``tolerance``; beyond, it is multiplied by
    ``decay**(s - tolerance)``, or dropped where ``decay`` is 0. A task without a token has its version for one.

    W. Su et al., "GBA: A Tuning-free Approach to Switch between Synchronous and Asynchronous Training for
    Recommendation Models" (2022). Goes with `serverless_gc.policies.GlobalBatch`.

    Parameters
    ----------
    tolerance
        Token staleness that does not matter; infinity to suppress nothing.
    decay
        In [0, 1).

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 5, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> old = Arrival(TaskSpec("0-0", 0, version=0, token=1), 0.0, 1.0, body=np.array([8.0]))
    >>> TokenDecay(tolerance=2, decay=0.5)(old, ctx).body
    array([2.])
    >>> TokenDecay(tolerance=2)(old, ctx) is None
    True
    """

    tolerance: float
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise InputError(f"tolerance must be at least 0, got {self.tolerance}")
        if not 0 <= self.decay < 1:
            raise InputError(f"decay must be in [0, 1), got {self.decay}")

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival | None:
        """Return the result, shortened, or None."""
        task = arrival.task
        excess = ctx.version - (task.version if task.token is None else task.token) - self.tolerance
        if excess <= 0:
            return arrival
        if self.decay == 0:
            return None
        return arrival if arrival.body is None else replace(arrival, body=arrival.body * self.decay**excess)
