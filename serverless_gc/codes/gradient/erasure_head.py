"""ErasureHead: fractional repetition, stopped early; classes of which no copy arrived count as zero."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import ApproximateCode, ErrorTracker, nearest
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["CoverTracker", "ErasureHeadCode", "usual_divisor"]


class CoverTracker(ErrorTracker):
    """Counts the classes of which a copy arrived. ``O(1)`` per arrival."""

    __slots__ = ("_classes", "_covered", "_each", "_left")

    def __init__(self, code: ErasureHeadCode) -> None:
        super().__init__(code)
        self._classes = code.class_of
        self._covered = bytearray(code.n_classes)
        self._each = code.k // code.n_classes
        self._left = code.n_classes

    @property
    def error(self) -> float:
        """Number of partitions in classes of which no copy arrived."""
        return float(self._each * self._left)

    def _record(self, message: int) -> None:
        group = self._classes[message]
        if not self._covered[group]:
            self._covered[group] = 1
            self._left -= 1


class ErasureHeadCode(ApproximateCode):
    """``load`` copies of every class of partitions; stop after ``wait`` arrivals, or once all classes are covered.

    No code with so many copies has a smaller mean error against random stragglers. An adversary who knows the layout
    can silence whole classes.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; ``k`` is a multiple of the number of classes, ``n_workers / load``.
    load
        Copies of each class, a divisor of ``n_workers``; if None the first of 3, 2, 4, 5 that divides it.
    layout
        ``"grouped"``: the copies of a class are consecutive workers; ``"stacked"``: they are ``n_workers / load``
        apart.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If ``load`` does not divide ``n_workers``, the number of classes does not divide ``k``, or ``layout`` is
        unknown.

    References
    ----------
    H. Wang, Z. Charles, D. Papailiopoulos, ErasureHead: Distributed Gradient Descent without Delays Using Approximate
    Gradient Coding, 2019, arXiv:1901.09671.

    Examples
    --------
    >>> code = ErasureHeadCode(12, 12, load=3)
    >>> code.weights([0, 1, 4, 11]).alpha.tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    >>> round(code.expected_error(8), 7)
    0.2181818
    """

    name = "erasurehead"
    methods: ClassVar[tuple[str, ...]] = (*ApproximateCode.methods, "unbiased")

    def __init__(
        self, n_workers: int, k: int, *, load: int | None = None, layout: str = "grouped", wait: int | None = None
    ) -> None:
        super().__init__(n_workers, k, wait=wait)
        n = self.n_workers
        self.load = usual_divisor("n_workers", n) if load is None else check_whole("load", load, 1, n)
        if n % self.load:
            divisors = [c for c in range(1, n + 1) if n % c == 0]
            raise InputError(
                f"load must divide n_workers={n}, got {self.load}: take one of {nearest(self.load, divisors)}"
            )
        self.n_classes = n // self.load
        if self.k % self.n_classes:
            raise InputError(
                f"k must be a multiple of the number of classes, n_workers / load = {self.n_classes}, got {self.k}"
            )
        if layout not in {"grouped", "stacked"}:
            raise InputError(f"layout must be 'grouped' or 'stacked', got {layout!r}")
        self.layout = layout

    @property
    def class_of(self) -> list[int]:
        """Class of each worker."""
        if self.layout == "grouped":
            return [i // self.load for i in range(self.n_workers)]
        return [i % self.n_classes for i in range(self.n_workers)]

    @property
    def tolerated(self) -> int:
        """Any ``load - 1`` stragglers leave a copy of every class."""
        return self.load - 1

    def expected_error(self, arrived: int) -> float:
        """Mean of ``err(F)`` over uniformly random sets: ``k C(n - load, f) / C(n, f)``."""
        self._check_count("arrived", arrived)
        return self.k * self._missed(arrived)

    def worst_error(self, stragglers: int) -> float:
        """Error when an adversary silences whole classes; attained."""
        self._check_count("stragglers", stragglers)
        return float(self.k // self.n_classes * (stragglers // self.load))

    def mean_arrival_time(self, arrived: int) -> float:
        """Mean time of the ``arrived``-th arrival when response times are independent and exponential of mean 1."""
        self._check_count("arrived", arrived)
        return _harmonic(self.n_workers) - _harmonic(self.n_workers - arrived)

    def mean_cover_time(self) -> float:
        """Mean time until all classes are covered when response times are independent and exponential of mean 1."""
        return _harmonic(self.n_classes) / self.load

    def tracker(self) -> CoverTracker:
        """Make a fresh tracker."""
        return CoverTracker(self)

    def _build_generator(self) -> FloatArray:
        return np.repeat(np.eye(self.n_classes)[self.class_of], self.k // self.n_classes, axis=1)

    def _missed(self, arrived: int) -> float:
        n = self.n_workers
        return math.comb(n - self.load, arrived) / math.comb(n, arrived)

    def _solve(self, arrived: Array) -> Weights:
        _, first = np.unique(np.array(self.class_of)[arrived], return_index=True)
        weights = np.zeros(len(arrived))
        weights[first] = 1.0
        return self._weighted(arrived, weights, "optimal")

    def _by_method(self, arrived: Array, method: str) -> Weights:
        """Return the weights; ``"unbiased"`` divides by the chance that a class is covered by so many arrivals."""
        if method != "unbiased" or not len(arrived):
            return super()._by_method(arrived, "optimal" if method == "unbiased" else method)
        return self._weighted(arrived, self._solve(arrived).a[arrived] / (1 - self._missed(len(arrived))), method)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        layout = {} if self.layout == "grouped" else {"layout": self.layout}
        return {"load": self.load, **layout, **super().params()}


def usual_divisor(label: str, n: int) -> int:
    """Return the first of 3, 2, 4, 5 that divides ``n``: the number of copies where none was asked for.

    Raises
    ------
    InputError
        If none of them does.
    """
    for copies in (3, 2, 4, 5):
        if n % copies == 0:
            return copies
    near = nearest(n, [m for m in range(2, n + 6) if any(m % c == 0 for c in (2, 3, 5))])
    raise InputError(f"{label} must be a multiple of 2, 3 or 5 unless load is given, got {n}: take one of {near}")


def _harmonic(n: int) -> float:
    return math.fsum(1 / j for j in range(1, n + 1))
