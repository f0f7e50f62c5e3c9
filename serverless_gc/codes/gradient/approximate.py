"""What approximate gradient codes share: when to stop, bounds that hold for any matrix, fast running errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.base import EXACT, GradientCode, Weights
from serverless_gc.codes.gradient.spectral import certified_error, spectral_ratio
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = [
    "ApproximateCode",
    "CountedErrors",
    "ErrorTracker",
    "missed_by_all",
    "nearest",
    "real_number",
    "same_size",
]


class ApproximateCode(GradientCode):
    """A gradient code that gives the best combination of whatever arrived, with its error.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    wait
        Arrivals after which to stop by default, ``1 .. n_workers``; nine tenths of the workers, rounded up, if None.

    Raises
    ------
    InputError
        If ``wait`` is out of range.
    """

    exact: ClassVar[bool] = False
    methods: ClassVar[tuple[str, ...]] = ("optimal", "lstsq", "one-step", "algorithmic", "rescaled")
    """Decoders that `weights` knows. ``"rescaled"`` multiplies the optimal weights by ``k / (k - err)``: partitions
    then count once on average, as an unbiased step size wants, at an error of ``k err / (k - err)``."""

    def __init__(self, n_workers: int, k: int, *, wait: int | None = None) -> None:
        super().__init__(n_workers, k)
        self._wait = None if wait is None else check_whole("wait", wait, 1, self.n_workers)

    @property
    def awaited(self) -> int | None:
        """Arrivals after which to stop by default."""
        return -(-9 * self.n_workers // 10) if self._wait is None else self._wait

    # -- bounds --------------------------------------------------------------------------------------

    def expected_error(self, arrived: int) -> float | None:
        """Mean of ``err(F)`` over uniformly random sets of so many arrivals; None if no closed form is known."""
        self._check_count("arrived", arrived)
        if arrived == 0:
            return float(self.k)
        if arrived >= self.n_workers - self.tolerated:
            return self._full_error
        return None

    def worst_error(self, stragglers: int) -> float | None:
        """Upper bound of ``err(F)`` over all sets of so many stragglers; None if none is known.

        The spectral certificate where rows and columns sum alike.
        """
        self._check_count("stragglers", stragglers)
        if stragglers <= self.tolerated:
            return self._full_error
        if stragglers == self.n_workers:
            return float(self.k)
        ratio = self._spectral_ratio
        return None if ratio is None else min(float(self.k), certified_error(ratio, self.n_workers, stragglers))

    def one_step_error(self, arrived: int) -> float:
        """Mean error of one-step decoding over uniformly random sets of so many arrivals, exact for this matrix."""
        self._check_count("arrived", arrived)
        if arrived == 0:
            return float(self.k)
        n, theta = self.n_messages, self._common_weight(arrived)
        sums, squares = self.generator.sum(axis=0), (self.generator**2).sum(axis=0)
        spread = theta**2 * arrived * (n - arrived) / (n * max(n - 1, 1)) * (squares - sums**2 / n)
        return float(((theta * arrived / n * sums - 1) ** 2 + spread).sum())

    def expected_error_bounds(self, arrived: int) -> tuple[float, float]:
        """Bounds of the mean of ``err(F)``: partitions that nobody delivers, and the mean one-step error."""
        high = self.one_step_error(arrived)
        return missed_by_all(self.generator, arrived), min(high, float(self.k))

    def least_worst_error(self, stragglers: int) -> int:
        """Error that an adversary can always cause by silencing all holders of some partitions."""
        self._check_count("stragglers", stragglers)
        most = int(np.count_nonzero(self.generator, axis=0).max())
        return min(self.k, stragglers // most) if most else self.k

    @cached_property
    def _full_error(self) -> float:
        error = self.weights(range(self.n_messages)).error
        return 0.0 if error <= EXACT * self.k else error

    @cached_property
    def _spectral_ratio(self) -> float | None:
        return spectral_ratio(self.generator)

    def _check_count(self, label: str, value: int) -> None:
        if not 0 <= value <= self.n_workers:
            raise InputError(f"{label} must be in 0..{self.n_workers}, got {value}")

    # -- decoding ------------------------------------------------------------------------------------

    def _by_method(self, arrived: Array, method: str) -> Weights:
        if method not in self.methods:
            raise InputError(f"method must be one of {', '.join(map(repr, self.methods))}, got {method!r}")
        if method != "rescaled":
            return super()._by_method(arrived, method)
        best = self._solve(arrived)
        counted = self.k - best.error
        return self._weighted(arrived, best.a[arrived] * (self.k / counted if counted > EXACT else 1.0), method)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {} if self._wait is None else {"wait": self._wait}


class ErrorTracker(Tracker):
    """A tracker that knows ``err(F)`` from the structure of its code, without linear algebra.

    A subclass records arrivals, each once, in `_record` and tells the error.
    """

    __slots__ = ("_arrived", "_code")

    def __init__(self, code: GradientCode) -> None:
        self._code = code
        self._arrived: set[int] = set()

    @property
    @abstractmethod
    def error(self) -> float:
        """``err(F)``: squared error of the best weights for the messages added so far."""

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine the sum exactly."""
        return self.error <= EXACT * self._code.k

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._code.n_messages)
        if message not in self._arrived:
            self._arrived.add(message)
            self._record(message)
        return Verdict(self.decodable, self.missing)

    @abstractmethod
    def _record(self, message: int) -> None:
        """Take in a message that was not there yet."""

    def missing(self) -> tuple[int, ...]:
        """Partitions that the best weights do not count exactly once."""
        if self.decodable:
            return ()
        off = np.abs(self._code.weights(self._arrived).alpha - 1)
        return tuple(np.flatnonzero(off > math.sqrt(EXACT)).tolist())


class CountedErrors(ErrorTracker):
    """Running error of a code where only the number of arrivals counts: ``errors[f]``. ``O(1)`` per arrival."""

    __slots__ = ("_errors",)

    def __init__(self, code: GradientCode, errors: Sequence[float]) -> None:
        super().__init__(code)
        self._errors = errors

    @property
    def error(self) -> float:
        """``err(F)`` for the number of messages added so far."""
        return self._errors[len(self._arrived)]

    def _record(self, message: int) -> None:
        """Nothing but the number counts."""


def missed_by_all(matrix: Array, arrived: int) -> float:
    """Return the mean number of partitions that none of so many uniformly random arrivals holds.

    No code has a smaller mean error: ``sum_j C(n - d_j, f) / C(n, f)``, ``d_j`` the number of holders of ``j``.

    Examples
    --------
    >>> missed_by_all(np.eye(4), 3)
    1.0
    """
    n = len(matrix)
    whole = math.comb(n, arrived)
    holders = np.count_nonzero(matrix, axis=0).tolist()
    return math.fsum(math.comb(n - d, arrived) / whole for d in holders)


def real_number(label: str, value: Any, low: float, high: float) -> float:
    """Return ``value`` as a float after checking its range, both ends included.

    Raises
    ------
    InputError
        If it is no real number or outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{label} must be a number, got {value!r}")
    if not low <= value <= high:
        raise InputError(f"{label} must be in {low}..{high}, got {value}")
    return float(value)


def same_size(name: str, n_workers: int, k: int) -> None:
    """Raise `InputError` unless there are as many partitions as workers."""
    if n_workers != k:
        raise InputError(f"k must equal n_workers={n_workers} for {name!r}, got {k}: group or split the partitions")


def nearest(target: int, sizes: Sequence[int], count: int = 4) -> str:
    """Name the sizes nearest to ``target``, in ascending order.

    Examples
    --------
    >>> nearest(10, [7, 11, 13, 21, 31], count=3)
    '7, 11, 13'
    """
    return ", ".join(map(str, sorted(sorted(sizes, key=lambda size: abs(size - target))[:count])))
