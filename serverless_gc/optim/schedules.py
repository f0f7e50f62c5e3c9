"""Step lengths: a number, or a function of the update's number ``t = 0, 1, ...``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from serverless_gc.errors import InputError

__all__ = ["Rate", "as_schedule", "inverse_time", "power"]

Schedule: TypeAlias = Callable[[int], float]
Rate: TypeAlias = float | Schedule


def as_schedule(lr: Rate) -> Schedule:
    """Return the schedule that a number or a function stands for.

    Raises
    ------
    InputError
        If the number is not positive and finite.
    """
    if callable(lr):
        return lr
    if not 0 < lr < math.inf:
        raise InputError(f"lr must be a positive number or a function of the update's number, got {lr!r}")
    return lambda t: lr  # noqa: ARG005 - the same for every update


def power(first: float, exponent: float) -> Schedule:
    """Return ``first / (1 + t)**exponent``.

    Examples
    --------
    >>> [power(0.1, 0.5)(t) for t in (0, 3)]
    [0.1, 0.05]
    """
    as_schedule(first)
    if not exponent >= 0:
        raise InputError(f"exponent must be at least 0, got {exponent}")
    return lambda t: first / (1 + t) ** exponent


def inverse_time(first: float, decay: float) -> Schedule:
    """Return ``first / (1 + decay * t)``.

    Examples
    --------
    >>> [inverse_time(1.0, 0.5)(t) for t in (0, 2)]
    [1.0, 0.5]
    """
    as_schedule(first)
    if not decay >= 0:
        raise InputError(f"decay must be at least 0, got {decay}")
    return lambda t: first / (1 + decay * t)
