"""Limited-memory BFGS with a line search, on exact values and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.lbfgs import two_loops
from serverless_gc.optim.line_search import Found, Stepped, Trials, along
from serverless_gc.types import Array

__all__ = ["QuasiNewton"]

State: TypeAlias = tuple[Array, Array]

_LEAST_CURVATURE = 1e-10
"""Pairs whose curvature, relative to their lengths, is below this say more about rounding than about the objective."""


@dataclass(frozen=True, slots=True)
class QuasiNewton:
    """L-BFGS: steps scaled by the curvature seen lately, their length found by the strong Wolfe conditions.

    Values and gradients should be exact; where answers come from changing sets of workers without decoding, other rules
    are needed.

    D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization" (1989).

    Parameters
    ----------
    memory
        How many steps are remembered.
    c1, c2
        Of the Wolfe conditions, `serverless_gc.optim.line_search.wolfe`.
    most_trials
        Points to try in one step.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """

    memory: int = 10
    c1: float = 1e-4
    c2: float = 0.9
    most_trials: int = 30

    def __post_init__(self) -> None:
        if self.memory < 1 or self.most_trials < 1:
            raise InputError(f"memory and most_trials must be at least 1, got {self.memory} and {self.most_trials}")
        if not 0 < self.c1 < self.c2 < 1:
            raise InputError(f"c1 and c2 must satisfy 0 < c1 < c2 < 1, got {self.c1} and {self.c2}")

    def init(self, x: Array) -> State:
        """Return the state before the first step: no pairs of moves and changes of the gradient."""
        return np.zeros((0, x.size)), np.zeros((0, x.size))

    def search(self, x: Array, value: float, gradient: Array, state: tuple[Array, ...]) -> Trials:
        """Make one step."""
        moves, changes = state
        flat = gradient.reshape(-1)
        found: Found = None
        down = partial(along, x, value, flat, c1=self.c1, c2=self.c2, most_trials=self.most_trials)
        if len(moves):
            found = yield from down(-two_loops(flat, zip(moves, changes, strict=True)), 1.0)
        if found is None:  # what is remembered misleads, or there is nothing yet
            moves, changes = self.init(x)
            found = yield from down(-flat)
        if found is None:
            return Stepped(x, state, (value, gradient), "no step along the gradient lowers the objective")
        new, new_value, new_gradient = found
        move, change = (new - x).reshape(-1), new_gradient.reshape(-1) - flat
        if move @ change > _LEAST_CURVATURE * np.linalg.norm(move) * np.linalg.norm(change):
            moves, changes = (np.vstack([old, one])[-self.memory :] for old, one in ((moves, move), (changes, change)))
        return Stepped(new, (moves, changes), (new_value, new_gradient))
