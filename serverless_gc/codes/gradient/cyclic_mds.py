"""Cyclic MDS: a deterministic circulant of a Reed-Solomon generator polynomial, decoded by a formula."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Tracker, Verdict
from serverless_gc.codes.gradient.band import BandCode, CountTracker
from serverless_gc.codes.gradient.base import GradientTracker
from serverless_gc.codes.gradient.sizes import a_tenth
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["CyclicMDSCode", "contiguous_growth"]

_UNSTABLE = 1e8
_MOST_BY_DEFAULT = 5

_EARLY = 64
"""Most workers for which fewer than ``n - s`` arrivals are looked at: in larger codes such sets hardly occur, and one
arrival would cost a product with all rows before it."""


class EarlyTracker(CountTracker):
    """Decodable when enough messages arrived, or fewer happen to determine the sum: the running error tells."""

    __slots__ = ("_running",)

    def __init__(self, n_messages: int, needed: int, generator: Array) -> None:
        super().__init__(n_messages, needed, n_messages)
        self._running = GradientTracker(generator)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        self._running.add(message)
        return super().add(message)

    @property
    def decodable(self) -> bool:
        """Whether enough messages arrived, or the sum is determined already."""
        return super().decodable or self._running.decodable

    def missing(self) -> tuple[int, ...]:
        """Partitions that the best weights do not count exactly once."""
        return () if self.decodable else self._running.missing()


class CyclicMDSCode(BandCode):
    """Row ``i`` is row 0 shifted by ``i``; row 0 are the coefficients of ``prod (x - w**j)`` over ``s`` exponents.

    Here ``w = exp(2 pi i / n)``. No random numbers, and decoding weights in closed form; but neighbouring stragglers
    make them large: for few stragglers only. Any ``n - s`` workers suffice. Where ``n`` is composite fewer may do, such
    as every second worker for one straggler and even ``n``; up to 64 workers the tracker sees that.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; they are equal.
    stragglers
        Tolerated stragglers ``s``. By default a tenth of the workers, at most 5, fewer where that is unstable, and of
        the parity that the variant needs.
    variant
        ``"real"``: needs ``n_workers - stragglers`` odd; ``"complex"``: any, at twice the upload.
    first_exponent
        Of the complex variant: exponents are ``first_exponent ... first_exponent + s - 1``, within ``1 ... n - 1``.
        1 has the simplest decoder and is the least stable; by default they are centred.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, ``stragglers`` is out of range or of the wrong parity, the variant is
        unknown, or the exponents leave their range.

    Warns
    -----
    RuntimeWarning
        If neighbouring stragglers would make weights larger than 1e8.

    References
    ----------
    N. Raviv, I. Tamo, R. Tandon, A. G. Dimakis, "Gradient coding from cyclic MDS codes and expander graphs", 2020,
    arXiv:1707.03858.

    Examples
    --------
    >>> code = CyclicMDSCode(5, 5, stragglers=2)
    >>> code.coefficients[0].round(4)
    array([1.   , 1.618, 1.   ])
    >>> code.weights([2, 3, 4]).a.round(4)
    array([ 0.   ,  0.   ,  1.   , -0.618,  1.   ])
    """

    name = "cyclic-mds"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        stragglers: int | None = None,
        variant: Literal["real", "complex"] = "real",
        first_exponent: int | None = None,
    ) -> None:
        if variant not in {"real", "complex"}:
            raise InputError(f"variant must be 'real' or 'complex', got {variant!r}")
        self._real = variant == "real"
        self._first_given = first_exponent
        super().__init__(n_workers, k, stragglers)
        growth = contiguous_growth(self.n_workers, self._stragglers)
        if growth > _UNSTABLE:
            warnings.warn(
                f"cyclic-mds: weights grow to {growth:.0e} when {self._stragglers} neighbours of {self.n_workers} "
                "workers straggle: choose fewer stragglers, or the code 'cyclic'",
                RuntimeWarning,
                stacklevel=2,
            )

    def _default(self) -> int:
        n = self.n_workers
        fitting = [s for s in range(n) if not self._real or (n - s) % 2]
        few = min(max(a_tenth(n), 2), _MOST_BY_DEFAULT)  # two leave a choice of parity
        return [s for s in fitting if s <= few and contiguous_growth(n, s) <= _UNSTABLE][-1]

    def _coefficients(self) -> Array:
        n, s = self.n_workers, self._stragglers
        if self._real and (n - s) % 2 == 0:
            raise InputError(
                f"stragglers: the real variant needs n_workers - stragglers odd, got {n} - {s}: use "
                f"stragglers={s + 1 if s + 1 < n else s - 1} or variant='complex'"
            )
        self._first = self._first_exponent(n, s)
        polynomial = np.ones(1, complex)
        for j in range(self._first, self._first + s):
            polynomial = np.convolve(polynomial, [-np.exp(2j * np.pi * j / n), 1])
        row = polynomial.real if self._real else polynomial
        self._sum = row.sum()
        return np.tile(row, (n, 1))

    def _first_exponent(self, n: int, s: int) -> int:
        centred = max(1, (n - s + 1) // 2)
        if self._first_given is None:
            return centred
        if self._real:
            raise InputError(f"first_exponent belongs to variant='complex', got {self._first_given!r} with 'real'")
        first = check_whole("first_exponent", self._first_given, 1)
        if first + s > n:
            raise InputError(f"first_exponent must be in 1..n_workers - stragglers = {n - s}, got {first}")
        return first

    def tracker(self) -> Tracker:
        """Make a fresh tracker: it counts, and for small codes also finds smaller sets that decode."""
        if self._first == 1 or self.n_workers > _EARLY:
            return super().tracker()
        return EarlyTracker(self.n_messages, self.n_workers - self._stragglers, self.generator)

    # -- decoding ------------------------------------------------------------------------------------

    def _structured(self, lost: Array) -> Array:
        n = self.n_workers
        if not len(lost):
            return np.full(n, 1 / self._sum)
        workers = np.arange(n)
        if not self._real and self._first == 1:
            a: Array = np.prod(1 - np.exp(2j * np.pi * (lost - workers[:, None]) / n), axis=1) / self._sum
        else:
            lost = self._completed_set(lost)
            kept = np.setdiff1d(workers, lost, assume_unique=True)
            a = np.zeros(n, float if self._real else complex)
            a[kept] = (1 - self._interpolated(kept, lost)) / self._sum
        a[lost] = 0
        return a

    def _interpolated(self, kept: Array, lost: Array) -> Array:
        """Values at the kept workers of the polynomial of degree below ``s`` that is one at the lost ones."""
        n = self.n_workers
        steps, between = kept[:, None] - lost, lost[:, None] - lost
        if self._real:
            apart, among = np.sin(np.pi * steps / n), np.sin(np.pi * between / n)
            turned = np.where(steps % 2, -1.0, 1.0)
        else:
            x, y = (np.exp(-2j * np.pi * workers / n) for workers in (kept, lost))
            apart, among = x[:, None] - y, y[:, None] - y
            turned = np.exp(-2j * np.pi * self._first * steps / n)
        np.fill_diagonal(among, 1)
        values: Array = np.prod(apart, axis=1) * np.sum(turned / (apart * np.prod(among, axis=1)), axis=1)
        return values

    def _completed_set(self, lost: Array) -> Array:
        """Add arrivals to ignore until ``s`` are left out, each far from the others: what is spread is stable."""
        n = self.n_workers
        gaps = np.abs(np.arange(n)[:, None] - lost) % n
        distance = np.minimum(gaps, n - gaps).min(axis=1)
        chosen = lost.tolist()
        while len(chosen) < self._stragglers:
            chosen.append(int(np.argmax(distance)))
            gap = np.abs(np.arange(n) - chosen[-1])
            distance = np.minimum(distance, np.minimum(gap, n - gap))
        return np.array(sorted(chosen))

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        given = {} if self._first_given is None else {"first_exponent": self._first_given}
        return {"stragglers": self._stragglers, "variant": "real" if self._real else "complex", **given}


def contiguous_growth(n: int, s: int) -> float:
    """Return the largest weight when ``s`` neighbours of ``n`` workers straggle: about ``(n / pi)**s / s!``.

    Exact for the complex variant with first exponent 1, an upper estimate for the others.

    Examples
    --------
    >>> f"{contiguous_growth(100, 5):.1e} {contiguous_growth(500, 5):.1e}"
    '2.7e+05 8.5e+08'
    """
    ahead = np.arange(s) + (n - s + 1) // 2
    growth = np.log(np.sin(np.pi * ahead / n)).sum() - np.log(np.sin(np.pi * np.arange(1, s + 1) / n)).sum()
    return math.exp(min(float(growth), 700.0))
