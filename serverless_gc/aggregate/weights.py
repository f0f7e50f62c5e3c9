"""How much each result counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from serverless_gc.errors import InputError
from serverless_gc.types import Array, Arrival

__all__ = ["Weight", "reported", "weigh", "weighted_sum"]

Weight: TypeAlias = str | Callable[[Arrival], float]
"""``"work_done"``, the name of a number in the results' ``stats``, or a function of the result."""


def reported(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Return the results that have something to say: a body."""
    return [a for a in arrivals if a.body is not None]


def weigh(arrivals: Sequence[Arrival], weight: Weight) -> list[float]:
    """Return each result's weight.

    Raises
    ------
    InputError
        If a weight is negative, not finite, or not there.
    """
    weights = [_weight_of(arrival, weight) for arrival in arrivals]
    for arrival, value in zip(arrivals, weights, strict=True):
        if not 0 <= value < math.inf:
            raise InputError(f"the weight of a result must be at least 0, task {arrival.task.task_id} has {value}")
    return weights


def _weight_of(arrival: Arrival, weight: Weight) -> float:
    if callable(weight):
        return float(weight(arrival))
    if weight == "work_done":
        return float(arrival.work_done)
    if weight not in arrival.stats:
        raise InputError(
            f"weight {weight!r} must be 'work_done' or in the results' stats; "
            f"task {arrival.task.task_id} delivered {sorted(arrival.stats)}"
        )
    return float(arrival.stats[weight])


def weighted_sum(bodies: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return ``sum(weight * body)``; there is at least one."""
    total = weights[0] * bodies[0]
    for body, weight in zip(bodies[1:], weights[1:], strict=True):
        total = total + weight * body
    return total
