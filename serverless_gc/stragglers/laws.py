"""Laws of the time of one task, with their closed forms.

All scale with the work: a task of ``work`` units takes ``work`` times the draw.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.order import check_order, harmonic, mean_order_stat
from serverless_gc.types import FloatArray, Timing

__all__ = ["Constant", "Exponential", "Law", "Pareto", "ShiftedExponential"]


def check_positive(**values: float) -> None:
    """Raise `InputError` unless every value is positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value}")


def check_not_negative(**values: float) -> None:
    """Raise `InputError` unless every value is at least 0 and finite."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise InputError(f"{name} must be at least 0 and finite, got {value}")


class Law(ABC):
    """A law of independent, identically distributed times in seconds; a `serverless_gc.types.StragglerModel`."""

    __slots__ = ()

    @abstractmethod
    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the seconds that one unit of work takes, many times."""

    @abstractmethod
    def survival(self, t: FloatArray) -> FloatArray:
        """``P(X > t)`` for an array of times."""

    @abstractmethod
    def quantile(self, q: float) -> float:
        """Time by which a task is done with probability ``q``, ``0 <= q < 1``."""

    @abstractmethod
    def mean(self) -> float:
        """Mean time."""

    @property
    def breaks(self) -> tuple[float, ...]:
        """Times at which `survival` jumps or has a kink."""
        return ()

    def draw(self, rng: np.random.Generator) -> float:
        """Draw the seconds that one unit of work takes."""
        return float(self.draws(rng, 1)[0])

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the seconds from issue to arrival of many tasks of ``work`` units; the totals of `sample`."""
        return work * self.draws(rng, shape)

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:  # noqa: ARG002 - i.i.d.
        """Draw the timing of one task."""
        return Timing(compute=work * self.draw(rng))

    def mean_order_stat(self, k: int, n: int) -> float:
        """Mean time until ``k`` of ``n`` tasks are done.

        Raises
        ------
        InputError
            Unless ``1 <= k <= n``.
        """
        return mean_order_stat(self.survival, k, n, breaks=self.breaks)

    def quantile_order_stat(self, q: float, k: int, n: int) -> float:
        """Time by which ``k`` of ``n`` tasks are done with probability ``q``.

        Raises
        ------
        InputError
            Unless ``1 <= k <= n`` and ``0 <= q < 1``.
        """
        from scipy.special import betaincinv

        check_order(k, n)
        check_probability(q)
        return self.quantile(float(betaincinv(k, n - k + 1, q)))


@dataclass(frozen=True, slots=True)
class Constant(Law):
    """Every task takes ``seconds``.

    Examples
    --------
    >>> Constant(2.0).mean_order_stat(3, 4)
    2.0
    """

    seconds: float

    def __post_init__(self) -> None:
        check_not_negative(seconds=self.seconds)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:  # noqa: ARG002
        """Return ``seconds``, many times."""
        return np.full(shape, self.seconds)

    def survival(self, t: FloatArray) -> FloatArray:
        """1 before ``seconds``, 0 from then on."""
        return np.where(np.asarray(t) < self.seconds, 1.0, 0.0)

    def quantile(self, q: float) -> float:
        """Return ``seconds``."""
        check_probability(q)
        return self.seconds

    def mean(self) -> float:
        """Return ``seconds``."""
        return self.seconds

    @property
    def breaks(self) -> tuple[float, ...]:
        """The jump."""
        return (self.seconds,)

    def mean_order_stat(self, k: int, n: int) -> float:
        """Return ``seconds``."""
        check_order(k, n)
        return self.seconds


@dataclass(frozen=True, slots=True)
class ShiftedExponential(Law):
    """``shift + Exp(rate)``: the usual model of the coded-computation papers.

    Parameters
    ----------
    shift
        Least time, in seconds.
    rate
        Rate of the exponential part per second; its mean is ``1 / rate``.

    Examples
    --------
    >>> law = ShiftedExponential(shift=0.0, rate=2.0)
    >>> round(law.mean_order_stat(7, 10), 6), round(law.var_order_stat(7, 10), 6)
    (0.547817, 0.047164)
    """

    shift: float
    rate: float

    def __post_init__(self) -> None:
        check_not_negative(shift=self.shift)
        check_positive(rate=self.rate)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.shift + rng.standard_exponential(shape) / self.rate

    def survival(self, t: FloatArray) -> FloatArray:
        """``exp(-rate (t - shift))``."""
        return np.exp(-self.rate * np.maximum(np.asarray(t) - self.shift, 0.0))

    def quantile(self, q: float) -> float:
        """``shift - log(1 - q) / rate``."""
        check_probability(q)
        return self.shift - math.log1p(-q) / self.rate

    def mean(self) -> float:
        """``shift + 1 / rate``."""
        return self.shift + 1.0 / self.rate

    @property
    def breaks(self) -> tuple[float, ...]:
        """The kink at the shift."""
        return (self.shift,) if self.shift else ()

    def mean_order_stat(self, k: int, n: int) -> float:
        """``shift + (H_n - H_{n-k}) / rate``."""
        check_order(k, n)
        return self.shift + (harmonic(n) - harmonic(n - k)) / self.rate

    def var_order_stat(self, k: int, n: int) -> float:
        """Sum of ``1 / (i rate)**2`` for ``i`` from ``n-k+1`` to ``n``."""
        check_order(k, n)
        return (harmonic(n, 2) - harmonic(n - k, 2)) / self.rate**2


def Exponential(rate: float) -> ShiftedExponential:  # noqa: N802 - a law, named like the others
    """``Exp(rate)``: the shifted one without shift.

    Examples
    --------
    >>> Exponential(4.0).mean()
    0.25
    """
    return ShiftedExponential(0.0, rate)


@dataclass(frozen=True, slots=True)
class Pareto(Law):
    """``P(X > t) = (minimum / t)**alpha``: a heavy tail.

    Parameters
    ----------
    minimum
        Least time, in seconds.
    alpha
        Exponent of the tail; the mean is infinite up to 1, the variance up to 2.

    Examples
    --------
    >>> round(Pareto(1.0, alpha=2.5).mean_order_stat(8, 10), 6)
    1.817122
    """

    minimum: float
    alpha: float

    def __post_init__(self) -> None:
        check_positive(minimum=self.minimum, alpha=self.alpha)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.minimum * np.exp(rng.standard_exponential(shape) / self.alpha)

    def survival(self, t: FloatArray) -> FloatArray:
        """``(minimum / t)**alpha`` from ``minimum`` on."""
        return (self.minimum / np.maximum(np.asarray(t), self.minimum)) ** self.alpha

    def quantile(self, q: float) -> float:
        """``minimum * (1 - q)**(-1 / alpha)``."""
        check_probability(q)
        return float(self.minimum * (1.0 - q) ** (-1.0 / self.alpha))

    def mean(self) -> float:
        """``minimum * alpha / (alpha - 1)``, infinite for ``alpha <= 1``."""
        return self.moment_order_stat(1, 1, 1)

    @property
    def breaks(self) -> tuple[float, ...]:
        """The kink at the minimum."""
        return (self.minimum,)

    def mean_order_stat(self, k: int, n: int) -> float:
        """Mean; finite if ``alpha (n - k + 1) > 1``."""
        return self.moment_order_stat(k, n, 1)

    def var_order_stat(self, k: int, n: int) -> float:
        """Variance; finite if ``alpha (n - k + 1) > 2``."""
        second = self.moment_order_stat(k, n, 2)
        return second if math.isinf(second) else second - self.moment_order_stat(k, n, 1) ** 2

    def moment_order_stat(self, k: int, n: int, power: int) -> float:
        """Mean of the ``power``-th power of the ``k``-th smallest of ``n``."""
        check_order(k, n)
        p = power / self.alpha
        if p >= n - k + 1:
            return math.inf
        log = math.lgamma(n + 1) + math.lgamma(n - k + 1 - p) - math.lgamma(n - k + 1) - math.lgamma(n + 1 - p)
        return float(self.minimum**power * math.exp(log))


def check_probability(q: float) -> None:
    if not 0 <= q < 1:
        raise InputError(f"q must be at least 0 and below 1, got {q}")


def late_survival(law: Law, t: FloatArray) -> FloatArray:
    """``P(X > t)`` for times of any sign: a law that starts later."""
    return np.where(t < 0, 1.0, law.survival(np.maximum(t, 0.0)))
