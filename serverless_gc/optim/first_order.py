"""Step rules that look at one direction at a time.

Each is pure: ``init(x) -> state`` and ``step(x, update, state, t) -> (x, state)``. States are tuples of float64 arrays,
so that a run can be stored and taken up again to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, Update

__all__ = ["SGD", "AMSGrad", "Adam", "DualAveraging", "ModelAverage", "Momentum", "Nesterov"]

State: TypeAlias = tuple[Array, ...]


def _check_fraction(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(f"{name} must be in [0, 1), got {value}")


@dataclass(frozen=True, slots=True)
class SGD:
    """``x - lr * d``: gradient descent, stochastic or not.

    Parameters
    ----------
    lr
        Step length, or a function of the update's number.

    Examples
    --------
    >>> rule = SGD(0.5)
    >>> x, state = rule.step(np.array([4.0]), Update(np.array([2.0])), rule.init(np.zeros(1)), 0)
    >>> x
    array([3.])
    """

    lr: Rate

    def __post_init__(self) -> None:
        as_schedule(self.lr)

    def init(self, x: Array) -> State:  # noqa: ARG002 - a rule without memory
        """Return the state before the first step."""
        return ()

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        return x - as_schedule(self.lr)(t) * update.direction, state


class ModelAverage(SGD):
    """Takes the averaged model that an aggregator handed over as ``x - average``: a step of length one.

    Examples
    --------
    >>> rule = ModelAverage()
    >>> rule.step(np.array([4.0]), Update(np.array([4.0 - 1.5])), rule.init(np.zeros(1)), 0)[0]
    array([1.5])
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1.0)


@dataclass(frozen=True, slots=True)
class Momentum:
    """Heavy ball: ``u = beta * u + d``, ``x - lr * u``.

    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods" (1964).

    Examples
    --------
    >>> rule = Momentum(1.0, beta=0.5)
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> x.round(6)
    array([1.5])
    """

    lr: Rate
    beta: float = 0.9

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        _check_fraction(beta=self.beta)

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        return (np.zeros_like(x),)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        u = self.beta * state[0] + update.direction
        return x - as_schedule(self.lr)(t) * u, (u,)


@dataclass(frozen=True, slots=True)
class Nesterov:
    """Nesterov's accelerated gradient, with the direction taken at the point that workers are given.

    ``u = x - lr * d``, ``x = u + m * (u - u_before)``. With ``beta=None`` the momentum ``m`` grows as in Nesterov's
    scheme for convex functions, ``m = (s - 1) / s'`` with ``s' = (1 + sqrt(1 + 4 s**2)) / 2``; a number fixes it.

    Y. Nesterov, "A method for solving the convex programming problem with convergence rate O(1/k^2)" (1983).

    Examples
    --------
    >>> rule = Nesterov(1.0, beta=0.5)
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> x.round(6)
    array([0.75])
    """

    lr: Rate
    beta: float | None = None

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        if self.beta is not None:
            _check_fraction(beta=self.beta)

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        return np.array(x), np.ones(1)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        before, s = state
        u = x - as_schedule(self.lr)(t) * update.direction
        following = (1 + np.sqrt(1 + 4 * s**2)) / 2
        m = (s - 1) / following if self.beta is None else self.beta
        return u + m * (u - before), (u, following)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam with bias correction.

    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization" (2014).

    Examples
    --------
    >>> rule = Adam(0.5)
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> x.round(6)
    array([3.])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        _check_fraction(beta1=self.beta1, beta2=self.beta2)

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        return np.zeros_like(x), np.zeros_like(x), np.zeros(1)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        h, v, count = state
        count = count + 1
        h = self.beta1 * h + (1 - self.beta1) * update.direction
        v = self.beta2 * v + (1 - self.beta2) * update.direction**2
        mean, spread = h / (1 - self.beta1**count), v / (1 - self.beta2**count)
        return x - as_schedule(self.lr)(t) * mean / (np.sqrt(spread) + self.epsilon), (h, v, count)


@dataclass(frozen=True, slots=True)
class AMSGrad:
    """AMSGrad as the server of CADA runs it: the largest second moment so far is carried on.

    S. J. Reddi, S. Kale, S. Kumar, "On the Convergence of Adam and Beyond" (2018); T. Chen, Z. Guo, Y. Sun, W. Yin,
    "CADA: Communication-Adaptive Distributed Adam" (2021).

    Examples
    --------
    >>> rule = AMSGrad(0.1, beta2=0.0)
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> x.round(6)
    array([3.971])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        _check_fraction(beta1=self.beta1, beta2=self.beta2)

    def init(self, x: Array) -> State:
        """Return the state before the first step."""
        return np.zeros_like(x), np.zeros_like(x)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        h, largest = state
        h = self.beta1 * h + (1 - self.beta1) * update.direction
        largest = np.maximum(self.beta2 * largest + (1 - self.beta2) * update.direction**2, largest)
        return x - as_schedule(self.lr)(t) * h / np.sqrt(self.epsilon + largest), (h, largest)


@dataclass(frozen=True, slots=True)
class DualAveraging:
    """Dual averaging: ``z += d``, ``x = first - z / (L + alpha * sqrt(t))``.

    Yu. Nesterov, "Primal-dual subgradient methods for convex problems" (2009); the rule of Anytime Minibatch.

    Parameters
    ----------
    smoothness
        ``L``: the inverse of the first step's length.
    alpha
        Growth of the regularization; 0 makes it gradient descent with step ``1 / L``.

    Examples
    --------
    >>> rule = DualAveraging(2.0, alpha=2.0)
    >>> x, state = np.array([4.0]), rule.init(np.array([4.0]))
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(np.array([1.0])), state, t)
    >>> x.round(6)
    array([3.5])
    """

    smoothness: float
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not self.smoothness > 0:
            raise InputError(f"smoothness must be positive, got {self.smoothness}")
        if not self.alpha >= 0:
            raise InputError(f"alpha must be at least 0, got {self.alpha}")

    def init(self, x: Array) -> State:
        """Return the state before the first step: the sum of directions, and where it began."""
        return np.zeros_like(x), np.array(x)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:  # noqa: ARG002 - dual
        """Make one step."""
        z, first = state
        z = z + update.direction
        return first - z / (self.smoothness + self.alpha * np.sqrt(t)), (z, first)
