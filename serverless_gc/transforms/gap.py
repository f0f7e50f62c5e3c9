"""Staleness measured by how far the parameters moved, in units of an average step."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["GapAware"]


class GapAware(Stateful):
    """Divide a stale gradient by its gap ``G = 1 + |x - x_v| / C``.

    ``C = lr (sqrt(e) + epsilon)`` is the length of an average step: ``lr`` is the largest step length so far and ``e``
    the exponential mean of the squared direction, corrected for its start. While nothing is known, ``G = 1``.

    Parameters
    ----------
    lr
        Step length of the optimizer, or its function of the update's number.
    rho
        How much of the mean lasts from one to the next.
    epsilon
        Keeps ``C`` away from 0.
    mode
        Which direction is averaged: ``"raw"``, the incoming gradient, or ``"applied"``, what was stepped along. With
        uniform steps the second equals the penalty by the number of steps; the first is gentler.
    elementwise
        A gap for each parameter, or one from norms.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Notes
    -----
    S. Barkai, I. Hakimi, A. Schuster, "Gap-Aware Mitigation of Gradient Staleness" (2020). Goes with
    ``KBatchAsync(1)``.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> gap = GapAware(lr=0.5)
    >>> ctx = UpdateContext(np.array([2.0]), 1, 0.0, np.random.default_rng(0), lambda v: np.array([0.0]))
    >>> fresh = Arrival(TaskSpec("1-0", 0, version=1), 0.0, 1.0, body=np.array([4.0]))
    >>> stale = Arrival(TaskSpec("0-1", 1, version=0), 0.0, 1.0, body=np.array([4.0]))
    >>> gap(fresh, ctx).body, gap(stale, ctx).body.round(6)
    (array([4.]), array([2.]))
    """

    remembered = ("_mean", "_weight", "_longest", "_version")

    def __init__(
        self,
        lr: Rate,
        *,
        rho: float = 0.999,
        epsilon: float = 1e-8,
        mode: Literal["raw", "applied"] = "raw",
        elementwise: bool = True,
    ) -> None:
        self._lr = as_schedule(lr)
        if not 0 <= rho < 1:
            raise InputError(f"rho must be in [0, 1), got {rho}")
        if not epsilon >= 0:
            raise InputError(f"epsilon must be at least 0, got {epsilon}")
        if mode not in {"raw", "applied"}:
            raise InputError(f"mode must be 'raw' or 'applied', got {mode!r}")
        self.rho = rho
        self.epsilon = epsilon
        self.mode = mode
        self.elementwise = elementwise
        self._mean: Array | float = 0.0
        self._weight = 0.0
        self._longest = 0.0
        self._version = 0

    def gap(self, moved: Array) -> Array | float:
        """Return the gap for a distance moved, of the model's shape."""
        if not self._weight:
            return 1.0
        mean = self._mean / self._weight
        step = self._longest * (np.sqrt(mean) + self.epsilon)
        distance = np.abs(moved) if self.elementwise else np.linalg.norm(moved)
        # A parameter that never moved has no average step, and no gap either.
        return np.asarray(1.0 + np.divide(distance, step, out=np.zeros_like(distance + step), where=step > 0))

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:
        """Return the result with its gradient divided by its gap."""
        gradient = arrival.body
        if gradient is None:
            return arrival
        self._version = ctx.version
        stale = arrival.task.version != ctx.version
        gap = self.gap(ctx.x - ctx.model_at(arrival.task.version)) if stale else 1.0
        if self.mode == "raw":
            self._average(gradient)
        return replace(arrival, body=gradient / gap)

    def after_step(self, before: Array, after: Array, update: Update) -> None:  # noqa: ARG002 - part of the protocol
        """Average the direction that was stepped along."""
        if self.mode == "applied":
            self._average((before - after) / self._lr(self._version))

    def _average(self, direction: Array) -> None:
        self._longest = max(self._longest, self._lr(self._version))
        square = direction**2 if self.elementwise else float(np.sum(direction**2))
        self._mean = self.rho * self._mean + (1.0 - self.rho) * square
        self._weight = self.rho * self._weight + (1.0 - self.rho)
