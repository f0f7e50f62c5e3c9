"""Objectives with a part that is not smooth: a proximal map after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, Update

__all__ = ["FISTA", "Prox", "ProximalGradient", "box", "l2_ball", "soft_threshold"]

Prox: TypeAlias = Callable[[Array, float], Array]
"""``prox(x, step)``: argmin over ``w`` of ``h(w) + ||w - x||**2 / (2 * step)``."""

State: TypeAlias = tuple[Array, ...]


def soft_threshold(weight: float) -> Prox:
    """Return the proximal map of ``weight * ||w||_1``.

    Examples
    --------
    >>> soft_threshold(1.0)(np.array([3.0, 0.5, -2.0]), 0.5).tolist()
    [2.5, 0.0, -1.5]
    """
    if not weight >= 0:
        raise InputError(f"weight must be at least 0, got {weight}")

    def prox(x: Array, step: float) -> Array:
        shrunk: Array = np.sign(x) * np.maximum(np.abs(x) - weight * step, 0.0)
        return shrunk

    return prox


def box(low: float, high: float) -> Prox:
    """Return the projection onto ``low <= w <= high``.

    Examples
    --------
    >>> box(0, 1)(np.array([-2.0, 0.25, 7.0]), 0.1).tolist()
    [0.0, 0.25, 1.0]
    """
    if not low <= high:
        raise InputError(f"low must be at most high, got {low} and {high}")
    return lambda x, step: np.clip(x, low, high)  # noqa: ARG005 - a projection does not depend on the step


def l2_ball(radius: float) -> Prox:
    """Return the projection onto ``||w||_2 <= radius``.

    Examples
    --------
    >>> l2_ball(5.0)(np.array([6.0, 8.0]), 0.1).tolist()
    [3.0, 4.0]
    """
    if not radius > 0:
        raise InputError(f"radius must be positive, got {radius}")

    def prox(x: Array, step: float) -> Array:  # noqa: ARG001
        length = float(np.linalg.norm(x))
        return x * (radius / length) if length > radius else x

    return prox


@dataclass(frozen=True, slots=True)
class ProximalGradient:
    """``prox(x - lr * d, lr)``.

    Examples
    --------
    >>> rule = ProximalGradient(0.5, soft_threshold(1.0))
    >>> rule.step(np.array([4.0, 1.0]), Update(np.array([2.0, 2.0])), (), 0)[0]
    array([2.5, 0. ])
    """

    lr: Rate
    prox: Prox

    def __post_init__(self) -> None:
        as_schedule(self.lr)

    def init(self, x: Array) -> State:  # noqa: ARG002 - a rule without memory
        """Return the state before the first step."""
        return ()

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        lr = as_schedule(self.lr)(t)
        return self.prox(x - lr * update.direction, lr), state


@dataclass(frozen=True, slots=True)
class FISTA:
    """Accelerated proximal gradient; workers are given the extrapolated point.

    A. Beck, M. Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse Problems" (2009).

    Parameters
    ----------
    lr
        Step length, at most one over the smoothness.
    prox
        Proximal map of the part that is not smooth.
    restart
        Begin anew with the momentum when it points uphill (B. O'Donoghue, E. Candes, 2015).

    Notes
    -----
    ``state[0]`` is the iterate; the point ``x`` that the next gradient is taken at lies ahead of it.

    Examples
    --------
    >>> rule = FISTA(0.5, soft_threshold(1.0))
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> state[0], x > state[0]
    (array([2.]), array([False]))
    """

    lr: Rate
    prox: Prox
    restart: bool = True

    def __post_init__(self) -> None:
        as_schedule(self.lr)

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        return np.array(x), np.ones(1)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        before, s = state
        lr = as_schedule(self.lr)(t)
        w = self.prox(x - lr * update.direction, lr)
        if self.restart and float(np.vdot(x - w, w - before)) > 0:
            return w, (w, np.ones(1))
        following = (1 + np.sqrt(1 + 4 * s**2)) / 2
        return w + (s - 1) / following * (w - before), (w, following)
