"""Ignoring stragglers: no redundancy, what did not arrive counts as zero. The baseline of all gradient codes."""

from __future__ import annotations

import numpy as np

from serverless_gc.codes.gradient.approximate import ApproximateCode, CountedErrors, same_size
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.types import Array, FloatArray

__all__ = ["IgnoreStragglersCode"]


class IgnoreStragglersCode(ApproximateCode):
    """Worker ``i`` holds partition ``i`` alone; the answer is the sum of those that arrived.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions, equal.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``.

    Examples
    --------
    >>> code = IgnoreStragglersCode(10, 10)
    >>> code.awaited, code.worst_error(2), round(code.one_step_error(8), 4)
    (9, 2.0, 2.5)
    """

    name = "ignore-stragglers"

    def __init__(self, n_workers: int, k: int, *, wait: int | None = None) -> None:
        super().__init__(n_workers, k, wait=wait)
        same_size(self.name, self.n_workers, self.k)

    def _build_generator(self) -> FloatArray:
        return np.eye(self.k)

    def expected_error(self, arrived: int) -> float:
        """One for every partition that is missing."""
        self._check_count("arrived", arrived)
        return float(self.n_workers - arrived)

    def worst_error(self, stragglers: int) -> float:
        """One for every partition that is missing."""
        return self.expected_error(self.n_workers - stragglers)

    def tracker(self) -> CountedErrors:
        """Make a fresh tracker."""
        return CountedErrors(self, [float(self.k - f) for f in range(self.k + 1)])

    def _solve(self, arrived: Array) -> Weights:
        return self._weighted(arrived, np.ones(len(arrived)), "optimal")
