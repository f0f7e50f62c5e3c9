"""Second-order steps that look before they leap: the rule says where to, a line search how far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.line_search import Stepped, Trials, along
from serverless_gc.optim.natural import NaturalGradient
from serverless_gc.optim.sketched import SketchedNewton
from serverless_gc.types import Array, Update

__all__ = ["Searched"]

State: TypeAlias = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Searched:
    """A rule that knows the curvature, with step lengths that satisfy the strong Wolfe conditions.

    Where values are exact each step lowers the objective, so that convex ones are minimized from anywhere, however
    coarse the curvature is. Where the rule's direction does not lead down, steepest descent makes the step.

    Parameters
    ----------
    rule
        Its steps are taken for directions; their natural length should be 1.
    remembers
        Whether a step first tries the length of the one before, for rules whose steps have no length of their own; else
        it first tries 1, which is right near the minimum where the curvature is that of the objective.
    most_trials
        Points to try along a direction.

    Raises
    ------
    InputError
        If ``most_trials`` is not positive.

    Examples
    --------
    >>> rule = Searched(SketchedNewton())
    >>> trials = rule.search(x := np.array([2.0]), 2.0, x, rule.init(x), {"hessian_root": np.eye(1)})
    >>> float(next(trials)[0])
    0.0
    """

    rule: SketchedNewton | NaturalGradient
    remembers: bool = False
    most_trials: int = 30

    def __post_init__(self) -> None:
        if self.most_trials < 1:
            raise InputError(f"most_trials must be at least 1, got {self.most_trials}")

    @property
    def needs(self) -> str:
        """What the rule has to know of every point that it steps from."""
        return self.rule.needs

    def init(self, x: Array) -> State:
        """Return the state before the first step: the last length, and the rule's own."""
        return np.ones(1), *self.rule.init(x)

    def search(
        self, x: Array, value: float, gradient: Array, state: State, meta: Mapping[str, Any] | None = None
    ) -> Trials:
        """Make one step from ``x``, where value, gradient and, in ``meta``, what the rule needs are known."""
        length, *before = state
        target, after = self.rule.step(x, Update(gradient, meta=meta or {}), tuple(before), 0)
        flat, direction = gradient.reshape(-1), (target - x).reshape(-1)
        first = float(length[0]) if self.remembers else 1.0
        found = yield from along(x, value, flat, direction, first, most_trials=self.most_trials)
        if found is None:
            found = yield from along(x, value, flat, -flat, most_trials=self.most_trials)
        else:
            length = np.array([np.linalg.norm(found[0] - x) / np.linalg.norm(direction)])
        if found is None:
            return Stepped(x, state, (value, gradient), "no step along the gradient lowers the objective")
        return Stepped(found[0], (length, *after), found[1:])
