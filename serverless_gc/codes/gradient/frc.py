"""Fractional repetition: teams of workers that compute the same partitions; one of each team suffices."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.base import GradientCode, Weights
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["ClassTracker", "FractionalRepetitionCode"]


class ClassTracker(Tracker):
    """Decodable when every class of equal workers has an arrival. ``O(1)`` per arrival."""

    __slots__ = ("_class_of", "_each", "_left", "_seen")

    def __init__(self, class_of: list[int], n_classes: int, partitions_each: int) -> None:
        self._class_of = class_of
        self._each = partitions_each
        self._left = n_classes
        self._seen = bytearray(n_classes)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._class_of))
        owner = self._class_of[message]
        if not self._seen[owner]:
            self._seen[owner] = 1
            self._left -= 1
        return Verdict(self._left == 0, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether every class has an arrival."""
        return self._left == 0

    @property
    def error(self) -> float:
        """``err(F)``: partitions of the classes without an arrival."""
        return float(self._left * self._each)

    def missing(self) -> tuple[int, ...]:
        """Partitions of the classes without an arrival."""
        return tuple(t * self._each + j for t, seen in enumerate(self._seen) if not seen for j in range(self._each))


class FractionalRepetitionCode(GradientCode):
    """Workers in ``T = n_workers / (s + 1)`` classes; class ``t`` computes the ``t``-th run of ``k / T`` partitions.

    The sum of the first arrivals of all classes is the gradient, without a multiplication: no rounding grows. Exact for
    any ``stragglers`` missing workers, and for most larger sets.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    stragglers
        Tolerated stragglers ``s``; by default the smallest that fits and is at least a tenth of the workers.
    layout
        ``"stacked"``: worker ``i`` is of class ``i mod T``; ``"grouped"``: of class ``i // (s + 1)``.

    Raises
    ------
    InputError
        If ``s + 1`` does not divide ``n_workers``, ``T`` does not divide ``k``, or the layout is unknown.

    References
    ----------
    R. Tandon, Q. Lei, A. G. Dimakis, N. Karampatziakis, "Gradient Coding: Avoiding Stragglers in Distributed
    Learning", ICML 2017, arXiv:1612.03301.

    Examples
    --------
    >>> code = FractionalRepetitionCode(6, 6, stragglers=1)
    >>> code.row(4)
    ((2, 3), array([1., 1.]))
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(worker)) for worker in (0, 3, 1, 5)]
    [False, False, False, True]
    >>> code.weights([0, 3, 1, 5]).a
    array([1., 1., 0., 0., 0., 1.])
    >>> code.guaranteed_threshold, code.average_threshold
    (5, 3.8)
    """

    name = "frc"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        stragglers: int | None = None,
        layout: Literal["stacked", "grouped"] = "stacked",
    ) -> None:
        super().__init__(n_workers, k)
        if layout not in {"stacked", "grouped"}:
            raise InputError(f"layout must be 'stacked' or 'grouped', got {layout!r}")
        self._layout = layout
        self._stragglers = self._fitting(stragglers)
        self._classes = self.n_workers // (self._stragglers + 1)
        if self.k % self._classes:
            raise InputError(
                f"k must be a multiple of the {self._classes} classes n_workers / (stragglers + 1), got k={k}"
            )
        self._each = self.k // self._classes
        worker = np.arange(self.n_workers)
        self._class_of = worker % self._classes if layout == "stacked" else worker // (self._stragglers + 1)

    def _fitting(self, stragglers: int | None) -> int:
        n = self.n_workers
        fitting = [s for s in range(n) if n % (s + 1) == 0]
        if stragglers is None:
            return next(s for s in fitting if s >= a_tenth(n))
        s = check_stragglers(stragglers, n)
        if s not in fitting:
            near = sorted(sorted(fitting, key=lambda t: abs(t - s))[:2])
            raise InputError(
                f"stragglers + 1 must divide n_workers={n}, got stragglers={s}: use {' or '.join(map(str, near))}, "
                "another number of workers, or the code 'cyclic', which takes any"
            )
        return s

    def _build_generator(self) -> FloatArray:
        mine: Array = self._class_of[:, None] == np.arange(self.k) // self._each
        return mine.astype(np.float64)

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions of the worker's class, each with coefficient 1."""
        check_message(message, self.n_messages)
        first = int(self._class_of[message]) * self._each
        return tuple(range(first, first + self._each)), np.ones(self._each)

    @cached_property
    def _class_list(self) -> list[int]:
        return [int(t) for t in self._class_of]

    def tracker(self) -> ClassTracker:
        """Make a fresh tracker of the classes that have an arrival."""
        return ClassTracker(self._class_list, self._classes, self._each)

    # -- bounds --------------------------------------------------------------------------------------

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact."""
        return self._stragglers

    @property
    def average_threshold(self) -> float:
        """Mean number of arrivals until the gradient is determined, in random order."""
        n = self.n_workers
        undecided = sum((1 - Fraction(self.decodable_sets(f), math.comb(n, f)) for f in range(n)), Fraction(0))
        return float(undecided)

    def decodable_sets(self, arrived: int) -> int:
        """How many of the sets of so many arrivals determine the gradient."""
        n, size = self.n_workers, self._stragglers + 1
        empty = range(min(self._classes, (n - arrived) // size) + 1)
        return sum((-1) ** j * math.comb(self._classes, j) * math.comb(n - j * size, arrived) for j in empty)

    def p_decodable(self, arrived: int) -> float:
        """Probability that a uniformly random set of so many arrivals determines the gradient."""
        return float(Fraction(self.decodable_sets(arrived), math.comb(self.n_workers, arrived)))

    def expected_error(self, arrived: int) -> float:
        """Mean of ``err(F)``: ``k C(n - s - 1, f) / C(n, f)``, the least that any code of this load can have."""
        left = self.n_workers - self._stragglers - 1
        return float(Fraction(self.k * math.comb(left, arrived), math.comb(self.n_workers, arrived)))

    def worst_error(self, stragglers: int) -> float:
        """Largest ``err(F)``: all partitions of as many classes as the stragglers fill."""
        return float(self._each * (stragglers // (self._stragglers + 1)))

    # -- decoding ------------------------------------------------------------------------------------

    def _solve(self, arrived: Array) -> Weights:
        representative = np.full(self._classes, -1)
        representative[self._class_of[arrived[::-1]]] = arrived[::-1]  # the last assignment stays: the first arrival
        covered = representative >= 0
        a = np.zeros(self.n_workers)
        a[representative[covered]] = 1
        alpha = np.repeat(covered.astype(float), self._each)
        for array in (a, alpha):
            array.setflags(write=False)
        n_covered = int(np.count_nonzero(covered))
        growth = n_covered / math.sqrt(self._classes)
        return Weights(a, alpha, float((self._classes - n_covered) * self._each), growth, "copy")

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"stragglers": self._stragglers, "layout": self._layout}
