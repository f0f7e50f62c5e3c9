"""Models in which slots differ: rates of their own, multipliers, and states that last for rounds."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import Law, check_positive
from serverless_gc.stragglers.mixtures import Mixture
from serverless_gc.stragglers.order import check_order, integrate_survival
from serverless_gc.types import FloatArray, StragglerModel, Timing

__all__ = ["GilbertElliott", "HeterogeneousExponentials", "PerSlot"]

_SUBSETS = 15
"""Up to so many rates the closed form, a sum over all subsets, is used."""


@dataclass(frozen=True, slots=True)
class HeterogeneousExponentials:
    """Exponential times with a rate for each slot.

    Parameters
    ----------
    rates
        Per second, one for each slot.

    Examples
    --------
    >>> model = HeterogeneousExponentials((1.0, 1.0, 2.0, 3.0, 5.0, 0.2))
    >>> round(model.mean_order_stat(3), 6), round(model.p_first(4), 4)
    (0.37655, 0.4098)
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rates:
            raise InputError("rates must be at least one")
        check_positive(**{f"rates[{i}]": rate for i, rate in enumerate(self.rates)})

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:  # noqa: ARG002 - every round alike
        """Draw the timing of one task."""
        return Timing(compute=work * rng.standard_exponential() / self.rates[slot])

    def p_first(self, slot: int) -> float:
        """Probability that this slot is the first: the bias of taking one result from fixed shares of the data."""
        return self.rates[slot] / math.fsum(self.rates)

    def mean_order_stat(self, k: int) -> float:
        """Mean time until ``k`` of the slots are done.

        By inclusion and exclusion over the subsets of up to 15 slots, by the integral of the Poisson-binomial law
        beyond.

        Raises
        ------
        InputError
            Unless ``1 <= k <= len(rates)``.
        """
        n = len(self.rates)
        check_order(k, n)
        if n > _SUBSETS:
            return integrate_survival(lambda t: self._fewer(k, t), breaks=(1.0 / max(self.rates),), sharpness=n)
        return math.fsum(
            (-1) ** (j - (n - k + 1)) * math.comb(j - 1, n - k) / math.fsum(subset)
            for j in range(n - k + 1, n + 1)
            for subset in itertools.combinations(self.rates, j)
        )

    def _fewer(self, k: int, t: FloatArray) -> FloatArray:
        """Probability that fewer than ``k`` slots are done, at each time."""
        exactly = np.zeros((k + 1, t.size))  # the last row gathers k and more
        exactly[0] = 1.0
        for rate in self.rates:
            done = -np.expm1(-rate * t)
            more = exactly * done
            exactly -= more
            exactly[1:] += more[:-1]
            exactly[k] += more[k]
        return np.asarray(exactly[:k].sum(axis=0))


@dataclass(frozen=True, slots=True)
class PerSlot:
    """Another model with the computation of each slot so many times longer, in every round.

    Parameters
    ----------
    model
        Law of a slot with factor 1.
    factors
        One for each slot.

    Examples
    --------
    >>> from serverless_gc.stragglers import Constant
    >>> rng = np.random.default_rng(0)
    >>> [PerSlot(Constant(2.0), (1.0, 3.0)).sample(slot, 0, 1.0, rng).total for slot in range(2)]
    [2.0, 6.0]
    """

    model: StragglerModel
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.factors:
            raise InputError("factors must be at least one")
        check_positive(**{f"factors[{i}]": factor for i, factor in enumerate(self.factors)})

    @classmethod
    def drawn(cls, model: StragglerModel, n_slots: int, law: Law, seed: int = 0) -> PerSlot:
        """Draw the factors once, from a law of their own."""
        return cls(model, tuple(law.draws(np.random.default_rng(seed), n_slots).tolist()))

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of one task."""
        return self.model.sample(slot, k, work * self.factors[slot], rng)


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """Each slot is fast or slow for some rounds, then changes: a two-state Markov chain for each slot.

    On Lambda a slot is no machine; rounds are correlated only by the reuse of containers.

    Parameters
    ----------
    fast, slow
        Laws of the two states.
    p
        Probability that a fast slot is slow in the next round.
    r
        Probability that a slow slot is fast in the next round.
    seed
        Of the states, which do not depend on the order in which they are asked for.

    Raises
    ------
    InputError
        If ``p`` or ``r`` is not above 0 and at most 1.

    Examples
    --------
    >>> from serverless_gc.stragglers import Exponential
    >>> model = GilbertElliott(Exponential(10.0), Exponential(0.1), p=0.05, r=0.2)
    >>> round(model.p_slow, 3), round(model.autocorrelation(5), 4)
    (0.2, 0.2373)
    >>> round(model.stationary.mean_order_stat(12, 20), 6)
    0.149317
    """

    fast: Law
    slow: Law
    p: float
    r: float
    seed: int = 0
    _states: dict[int, _Chain] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value in (("p", self.p), ("r", self.r)):
            if not 0 < value <= 1:
                raise InputError(f"{name} must be above 0 and at most 1, got {value}")

    @property
    def p_slow(self) -> float:
        """Share of slow slots at stationarity."""
        return self.p / (self.p + self.r)

    @property
    def mean_burst(self) -> float:
        """Mean number of rounds that a slot stays slow."""
        return 1.0 / self.r

    def autocorrelation(self, lag: int) -> float:
        """Correlation of a slot's states ``lag`` rounds apart."""
        return float((1.0 - self.p - self.r) ** lag)

    @property
    def stationary(self) -> Mixture:
        """Law of a task in a round far from the first: what a planner that knows no states sees."""
        return Mixture((self.fast, self.slow), (1.0 - self.p_slow, self.p_slow))

    def p_at_most(self, most: int, n: int) -> float:
        """Probability that at most ``most`` of ``n`` slots are slow, at stationarity."""
        from scipy.special import bdtr

        return float(bdtr(most, n, self.p_slow))

    def is_slow(self, slot: int, k: int) -> bool:
        """Whether the slot is slow in round ``k``."""
        chain = self._states.get(slot)
        if chain is None:
            chain = self._states[slot] = _Chain(self.p, self.r, np.random.default_rng((self.seed, slot)))
        return chain.at(k)

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of round ``k``'s task in ``slot``."""
        law = self.slow if self.is_slow(slot, k) else self.fast
        return law.sample(slot, k, work, rng)


class _Chain:
    """States of one slot, from a stationary start on, made as far as they are asked for."""

    __slots__ = ("_ends", "_first", "_p", "_r", "_rng")

    def __init__(self, p: float, r: float, rng: np.random.Generator) -> None:
        self._p, self._r, self._rng = p, r, rng
        self._first = bool(rng.random() < p / (p + r))
        self._ends: list[int] = []

    def at(self, k: int) -> bool:
        ends = self._ends
        while not ends or ends[-1] <= k:
            slow = self._first ^ bool(len(ends) % 2)
            ends.append((ends[-1] if ends else 0) + int(self._rng.geometric(self._r if slow else self._p)))
        return self._first ^ bool(bisect.bisect_right(ends, k) % 2)
