"""Further laws: Weibull, gamma, uniform, bimodal, log-normal and Lomax."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import Law, Pareto, check_not_negative, check_positive, check_probability
from serverless_gc.stragglers.order import check_order
from serverless_gc.types import FloatArray

__all__ = ["Bimodal", "Erlang", "Gamma", "LogNormal", "Lomax", "Uniform", "Weibull"]

_ACCURATE = 1e-9
"""Relative rounding error above which the alternating sum of the Weibull law gives way to the integral."""


@dataclass(frozen=True, slots=True)
class Weibull(Law):
    """``P(X > t) = exp(-(t / scale)**shape)``.

    Parameters
    ----------
    scale
        Seconds.
    shape
        Below 1 the hazard falls with age (old tasks are the slow ones), above 1 it grows, at 1 it is exponential.

    Examples
    --------
    >>> law = Weibull(1.0, 0.7)
    >>> round(law.mean_order_stat(1, 10), 6), round(law.mean_order_stat(7, 10), 6)
    (0.047185, 1.192631)
    """

    scale: float
    shape: float

    def __post_init__(self) -> None:
        check_positive(scale=self.scale, shape=self.shape)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.scale * rng.weibull(self.shape, shape)

    def survival(self, t: FloatArray) -> FloatArray:
        """``exp(-(t / scale)**shape)``."""
        return np.exp(-((np.asarray(t) / self.scale) ** self.shape))

    def quantile(self, q: float) -> float:
        """``scale * (-log(1 - q))**(1 / shape)``."""
        check_probability(q)
        return float(self.scale * (-math.log1p(-q)) ** (1.0 / self.shape))

    def mean(self) -> float:
        """``scale * gamma(1 + 1 / shape)``."""
        return self.scale * math.gamma(1.0 + 1.0 / self.shape)

    def mean_order_stat(self, k: int, n: int) -> float:
        """Alternating sum where it is accurate (small ``k``), the integral elsewhere."""
        check_order(k, n)
        power = -1.0 - 1.0 / self.shape
        terms = [(-1) ** i * math.comb(k - 1, i) * float(n - k + i + 1) ** power for i in range(k)]
        total = math.fsum(terms)
        if total <= 0 or max(map(abs, terms)) * np.finfo(float).eps > _ACCURATE * total:
            return super(Weibull, self).mean_order_stat(k, n)
        return float(k * math.comb(n, k) * self.mean() * total)


@dataclass(frozen=True, slots=True)
class Gamma(Law):
    """Gamma law: the sum of ``shape`` exponential stages, for any positive ``shape``.

    Parameters
    ----------
    shape
        Above 1 the hazard grows with age.
    rate
        Rate of a stage per second; the mean is ``shape / rate``.
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        check_positive(shape=self.shape, rate=self.rate)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return rng.standard_gamma(self.shape, shape) / self.rate

    def survival(self, t: FloatArray) -> FloatArray:
        """Regularized upper incomplete gamma function of ``rate * t``."""
        from scipy.special import gammaincc

        return np.asarray(gammaincc(self.shape, self.rate * np.asarray(t)))

    def quantile(self, q: float) -> float:
        """Inverse of the incomplete gamma function."""
        from scipy.special import gammaincinv

        check_probability(q)
        return float(gammaincinv(self.shape, q)) / self.rate

    def mean(self) -> float:
        """``shape / rate``."""
        return self.shape / self.rate


def Erlang(stages: int, rate: float) -> Gamma:  # noqa: N802 - a law, named like the others
    """Sum of a whole number of exponential stages.

    Examples
    --------
    >>> Erlang(3, 2.0).mean()
    1.5
    """
    if isinstance(stages, bool) or stages != int(stages):
        raise InputError(f"stages must be a whole number, got {stages!r}")
    return Gamma(float(stages), rate)


@dataclass(frozen=True, slots=True)
class Uniform(Law):
    """Uniform between ``low`` and ``high`` seconds.

    Examples
    --------
    >>> round(Uniform(0.0, 2.0).mean_order_stat(4, 8), 4)
    0.8889
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        check_not_negative(low=self.low)
        if not self.low < self.high < math.inf:
            raise InputError(f"high must be above low={self.low} and finite, got {self.high}")

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.low + (self.high - self.low) * rng.random(shape)

    def survival(self, t: FloatArray) -> FloatArray:
        """Falls linearly from 1 at ``low`` to 0 at ``high``."""
        return np.clip((self.high - np.asarray(t)) / (self.high - self.low), 0.0, 1.0)

    def quantile(self, q: float) -> float:
        """``low + q (high - low)``."""
        check_probability(q)
        return self.low + q * (self.high - self.low)

    def mean(self) -> float:
        """Middle."""
        return (self.low + self.high) / 2

    @property
    def breaks(self) -> tuple[float, ...]:
        """Both ends."""
        return (self.low, self.high) if self.low else (self.high,)

    def mean_order_stat(self, k: int, n: int) -> float:
        """``low + (high - low) k / (n + 1)``."""
        check_order(k, n)
        return self.low + (self.high - self.low) * k / (n + 1)


@dataclass(frozen=True, slots=True)
class Bimodal(Law):
    """``fast`` seconds, or ``slow`` with probability ``p_slow``: injected stragglers.

    Examples
    --------
    >>> round(Bimodal(1.0, 10.0, 0.1).mean_order_stat(9, 10), 6)
    3.37511
    """

    fast: float
    slow: float
    p_slow: float

    def __post_init__(self) -> None:
        check_not_negative(fast=self.fast)
        if not self.fast <= self.slow < math.inf:
            raise InputError(f"slow must be at least fast={self.fast} and finite, got {self.slow}")
        if not 0 <= self.p_slow <= 1:
            raise InputError(f"p_slow must be at least 0 and at most 1, got {self.p_slow}")

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return np.where(rng.random(shape) < self.p_slow, self.slow, self.fast)

    def survival(self, t: FloatArray) -> FloatArray:
        """Two steps."""
        t = np.asarray(t)
        return np.where(t < self.fast, 1.0, np.where(t < self.slow, self.p_slow, 0.0))

    def quantile(self, q: float) -> float:
        """``fast`` up to ``1 - p_slow``."""
        check_probability(q)
        return self.fast if q <= 1.0 - self.p_slow else self.slow

    def mean(self) -> float:
        """Mean of the two."""
        return self.fast + self.p_slow * (self.slow - self.fast)

    @property
    def breaks(self) -> tuple[float, ...]:
        """The steps."""
        return tuple(t for t in (self.fast, self.slow) if t)

    def mean_order_stat(self, k: int, n: int) -> float:
        """``fast + (slow - fast) P(fewer than k of n are fast)``."""
        from scipy.special import bdtr

        check_order(k, n)
        return self.fast + (self.slow - self.fast) * float(bdtr(k - 1, n, 1.0 - self.p_slow))


@dataclass(frozen=True, slots=True)
class LogNormal(Law):
    """``median * exp(sigma * Z)`` with a standard normal ``Z``, or with ``|Z|`` if ``folded``.

    Examples
    --------
    >>> round(LogNormal(40.0, 0.1).mean(), 3)
    40.201
    """

    median: float
    sigma: float
    folded: bool = False

    def __post_init__(self) -> None:
        check_positive(median=self.median, sigma=self.sigma)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        z = rng.standard_normal(shape)
        return self.median * np.exp(self.sigma * (np.abs(z) if self.folded else z))

    def survival(self, t: FloatArray) -> FloatArray:
        """Tail of the normal law at ``log(t / median) / sigma``."""
        from scipy.special import ndtr

        with np.errstate(divide="ignore"):
            z = np.log(np.asarray(t, dtype=np.float64) / self.median) / self.sigma
        return np.minimum(1.0, 2 * ndtr(-z)) if self.folded else np.asarray(ndtr(-z))

    def quantile(self, q: float) -> float:
        """``median * exp(sigma * z)`` with the normal quantile ``z``."""
        from scipy.special import ndtri

        check_probability(q)
        return self.median * math.exp(self.sigma * float(ndtri((1.0 + q) / 2 if self.folded else q)))

    def mean(self) -> float:
        """``median * exp(sigma**2 / 2)``, times ``2 Phi(sigma)`` if folded."""
        from scipy.special import ndtr

        mean = self.median * math.exp(self.sigma**2 / 2)
        return mean * 2 * float(ndtr(self.sigma)) if self.folded else mean

    @property
    def breaks(self) -> tuple[float, ...]:
        """The median: where the integral begins to look, and the kink of the folded law."""
        return (self.median,)


@dataclass(frozen=True, slots=True)
class Lomax(Law):
    """A Pareto tail that begins at 0: ``P(X > t) = (1 + t / scale)**-alpha``.

    Examples
    --------
    >>> round(Lomax(1.0, 2.2).mean(), 6)
    0.833333
    """

    scale: float
    alpha: float

    def __post_init__(self) -> None:
        check_positive(scale=self.scale, alpha=self.alpha)

    @property
    def _pareto(self) -> Pareto:
        return Pareto(self.scale, self.alpha)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw many times."""
        return self.scale * np.expm1(rng.standard_exponential(shape) / self.alpha)

    def survival(self, t: FloatArray) -> FloatArray:
        """``(1 + t / scale)**-alpha``."""
        return np.asarray((1.0 + np.asarray(t) / self.scale) ** -self.alpha)

    def quantile(self, q: float) -> float:
        """``scale * ((1 - q)**(-1 / alpha) - 1)``."""
        return self._pareto.quantile(q) - self.scale

    def mean(self) -> float:
        """``scale / (alpha - 1)``, infinite for ``alpha <= 1``."""
        return self._pareto.mean() - self.scale

    def mean_order_stat(self, k: int, n: int) -> float:
        """Take the Pareto law's, less ``scale``."""
        return self._pareto.mean_order_stat(k, n) - self.scale
