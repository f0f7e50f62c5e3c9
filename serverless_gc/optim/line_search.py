"""Steps that look before they leap: trial points are evaluated until one is good enough.

A searching method is pure like a step rule, but a step of it is a generator: it yields trial points and is sent the
objective's value and gradient there. Between two steps all it knows is in its state, a tuple of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.proximal import Prox
from serverless_gc.types import Array

__all__ = ["Backtracking", "Found", "Searching", "Stepped", "Trials", "along", "wolfe"]

State: TypeAlias = tuple[Array, ...]

_ROUNDING = 1e-10
"""Values that differ by less than this, relatively, are told apart by their slopes: the rest is rounding."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The end of a step.

    Attributes
    ----------
    x
        Where the next gradient is wanted.
    state
        What the next step needs to know.
    known
        Value and gradient at ``x``, if a trial was there.
    stuck
        Why no step could be made; empty if one was.
    """

    x: Array
    state: State
    known: tuple[float, Array] | None = None
    stuck: str = ""


Trials: TypeAlias = Generator[Array, tuple[float, Array], Stepped]

Found: TypeAlias = tuple[Array, float, Array] | None
"""A point, value and gradient there."""


@runtime_checkable
class Searching(Protocol):
    """A method whose steps evaluate trial points."""

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        ...

    def search(self, x: Array, value: float, gradient: Array, state: State) -> Trials:
        """Make one step from ``x``, where value and gradient are known."""
        ...


@dataclass(frozen=True, slots=True)
class Backtracking:
    """Gradient descent, or accelerated descent, that finds its step length by itself, with or without a proximal map.

    A step length is halved until ``f(w) <= f(x) + <g, w - x> + ||w - x||**2 / (2 * lr)``, which any length up to one
    over the smoothness satisfies. Without acceleration the next step tries a longer one and costs as a rule one
    evaluation; an accelerated one costs two, since the next gradient is taken ahead of the iterate, and tries a longer
    length where its momentum begins anew.

    A. Beck, M. Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse Problems" (2009).

    Parameters
    ----------
    accelerate
        Whether to extrapolate, beginning anew when the momentum points uphill.
    prox
        Proximal map of the part that is not smooth, if there is one.
    first
        First length to try; by default one trial is spent on an estimate.
    most_trials
        Points to try in one step.

    Notes
    -----
    ``state[0]`` is the iterate.
    """

    accelerate: bool = False
    prox: Prox | None = None
    first: float | None = None
    most_trials: int = 60

    def __post_init__(self) -> None:
        if self.first is not None and not 0 < self.first < math.inf:
            raise InputError(f"first must be a positive step length, got {self.first!r}")
        if self.most_trials < 1:
            raise InputError(f"most_trials must be at least 1, got {self.most_trials}")

    def init(self, x: Array) -> State:
        """Return the state before the first step: the iterate, the momentum's number, and no length yet."""
        return np.array(x), np.ones(1), np.zeros(1)

    def search(self, x: Array, value: float, gradient: Array, state: State) -> Trials:
        """Make one step."""
        before, s, length = state
        lr = float(length[0]) or self.first or (yield from _first_length(x, gradient))
        for _ in range(self.most_trials):
            w = x - lr * gradient
            if self.prox is not None:
                w = self.prox(w, lr)
            found, slope = yield w
            if _majorized(value, gradient, found, slope, w - x, lr):
                return self._accepted(x, w, before, s, lr, (found, slope))
            lr /= 2
        return Stepped(
            x, state, (value, gradient), f"no step length down to {lr:.1e} lowers the objective as it should"
        )

    def _accepted(self, x: Array, w: Array, before: Array, s: Array, lr: float, known: tuple[float, Array]) -> Stepped:
        if not self.accelerate:
            return Stepped(w, (w, s, np.array([1.5 * lr])), known)
        length = np.array([lr])
        if float(np.vdot(x - w, w - before).real) > 0:
            return Stepped(w, (w, np.ones(1), 1.5 * length), known)
        following = (1 + np.sqrt(1 + 4 * s**2)) / 2
        ahead = w + (s - 1) / following * (w - before)
        return Stepped(ahead, (w, following, length), known if s[0] == 1 else None)


def _first_length(x: Array, gradient: Array) -> Generator[Array, tuple[float, Array], float]:
    """Return a length from the curvature that one trial meets along the gradient, twice as long as would be safe."""
    size = float(np.linalg.norm(gradient))
    lr = max(1.0, float(np.linalg.norm(x))) / size if size else 1.0
    _, slope = yield x - lr * gradient
    bend = float(np.vdot(gradient - slope, gradient).real)
    curved = math.isfinite(bend) and bend > 0
    return 2 * lr * size**2 / bend if curved else lr


def _majorized(value: float, gradient: Array, found: float, slope: Array, move: Array, lr: float) -> bool:
    """Whether the parabola of this step length lies above the objective at the new point."""
    if not (math.isfinite(found) and np.isfinite(slope).all()):
        return False
    reach = float(np.vdot(move, move).real) / (2 * lr)
    if abs(found - value) > _ROUNDING * abs(value):
        return found <= value + float(np.vdot(gradient, move).real) + reach
    return float(np.vdot(slope - gradient, move).real) <= 2 * reach


def wolfe(
    value: float, slope: float, first: float, *, c1: float = 1e-4, c2: float = 0.9, most_trials: int = 30
) -> Generator[float, tuple[float, float], float]:
    """Find a step length that satisfies the strong Wolfe conditions.

    Yields lengths to try and is sent the objective and its slope there. Where values agree to rounding, slopes decide
    (the approximate conditions of W. Hager and H. Zhang, 2005).

    Parameters
    ----------
    value, slope
        Of the objective along the line at 0; the slope is negative.
    first
        First length to try.
    c1, c2
        Sufficient decrease, and by how much the slope has to flatten.
    most_trials
        After so many the longest length with sufficient decrease will do.

    Returns
    -------
    float
        The length, the last tried or an earlier one; 0 if none lowers the objective.

    Raises
    ------
    InputError
        If the slope is not negative or the conditions exclude each other.

    References
    ----------
    J. Nocedal, S. J. Wright, "Numerical Optimization" (2006), algorithms 3.5 and 3.6.

    Examples
    --------
    >>> search = wolfe(4.0, -4.0, 1.0, c2=0.1)  # (x - 2)**2 from 0
    >>> length = next(search)
    >>> try:
    ...     while True:
    ...         length = search.send(((length - 2) ** 2, 2 * (length - 2)))
    ... except StopIteration as stop:
    ...     stop.value
    2.0
    """
    if not slope < 0:
        raise InputError(f"slope must be negative along a direction of descent, got {slope}")
    if not 0 < c1 < c2 < 1:
        raise InputError(f"c1 and c2 must satisfy 0 < c1 < c2 < 1, got {c1} and {c2}")
    low, high = (0.0, value, slope), None
    length = first
    for _ in range(most_trials):
        here, steep = yield length
        point = (length, here, steep)
        finite = math.isfinite(here) and math.isfinite(steep)
        even = abs(here - value) <= _ROUNDING * abs(value)
        enough = finite and (steep <= (2 * c1 - 1) * slope if even else here <= value + c1 * length * slope)
        if not enough or (not even and low[0] > 0 and here >= low[1]):
            high = point
        elif abs(steep) <= -c2 * slope:
            return length
        elif steep * (1.0 if high is None else high[0] - low[0]) >= 0:
            low, high = point, low
        else:
            low = point
        if high is None:
            length *= 2
        else:
            length = _between(low, high)
            if abs(high[0] - low[0]) <= 1e-14 * max(low[0], high[0]):
                break
    return low[0]


def _between(low: tuple[float, float, float], high: tuple[float, float, float]) -> float:
    """Return the least point of the cubic through both ends, kept away from them; the middle if there is none."""
    (a, fa, da), (b, fb, db) = low, high
    middle = 0.5 * (a + b)
    if not (math.isfinite(fb) and math.isfinite(db)):
        return middle
    d1 = da + db - 3 * (fa - fb) / (a - b)
    inside = d1 * d1 - da * db
    if inside < 0:
        return middle
    d2 = math.copysign(math.sqrt(inside), b - a)
    below = db - da + 2 * d2
    if below == 0:
        return middle
    least = b - (b - a) * (db + d2 - d1) / below
    near, far = sorted((a + 0.1 * (b - a), b - 0.1 * (b - a)))
    return min(max(least, near), far)


def along(
    x: Array,
    value: float,
    gradient: Array,
    direction: Array,
    first: float | None = None,
    *,
    c1: float = 1e-4,
    c2: float = 0.9,
    most_trials: int = 30,
) -> Generator[Array, tuple[float, Array], Found]:
    """Search a line by `wolfe`: yields points and is sent the objective and its gradient there.

    Parameters
    ----------
    x, value, gradient
        Where it begins, and the objective and its flat gradient there.
    direction
        Where to, flat.
    first
        First length to try; by default that of a move of length 1.
    c1, c2, most_trials
        As for `wolfe`.

    Returns
    -------
    (point, value, gradient) or None
        None if the line does not lead down.
    """
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    if first is None:
        first = 1 / float(np.linalg.norm(direction))
    towards = direction.reshape(x.shape)
    tried: dict[float, tuple[Array, float, Array]] = {}
    lengths = wolfe(value, slope, first, c1=c1, c2=c2, most_trials=most_trials)
    length = next(lengths)
    while True:
        point = x + length * towards
        here, slopes = yield point
        tried[length] = (point, here, slopes)
        try:
            length = lengths.send((here, float(slopes.reshape(-1) @ direction)))
        except StopIteration as stop:
            return tried.get(stop.value)
