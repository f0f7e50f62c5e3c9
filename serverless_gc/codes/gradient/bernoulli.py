"""Bernoulli gradient codes: every worker holds each partition with the same probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from serverless_gc.codes.gradient.approximate import real_number
from serverless_gc.codes.gradient.drawn import DrawnCode
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["BernoulliCode", "RegularizedBernoulliCode"]

_USUAL_LOAD = 3


class BernoulliCode(DrawnCode):
    """Entries independent, 1 with probability ``load / k``.

    A worker may hold nothing, which still counts as an arrival, and a partition may be held by nobody: see
    `uncovered`. Never exact in general: stop on a count, or on the tracker's error.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    load
        Mean number of partitions of a worker, ``1 .. k``; the smaller of 3 and ``k`` if None.
    seed
        Seed of the draw.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If ``load`` is not in ``1 .. k``.

    References
    ----------
    Z. Charles, D. Papailiopoulos, J. Ellenberg, Approximate Gradient Coding via Sparse Random Graphs, 2017,
    arXiv:1711.06771.

    Examples
    --------
    >>> code = BernoulliCode(100, 100, load=5)
    >>> round(code.ensemble_one_step_error(80), 4), len(code.uncovered)
    (23.75, 1)
    """

    name = "bgc"

    def __init__(
        self, n_workers: int, k: int, *, load: float | None = None, seed: int = 0, wait: int | None = None
    ) -> None:
        super().__init__(n_workers, k, seed=seed, wait=wait)
        self.load = real_number("load", min(_USUAL_LOAD, self.k) if load is None else load, 1, self.k)

    def ensemble_one_step_error(self, arrived: int) -> float:
        """Mean one-step error over draws of the matrix (untrimmed) and arrivals: ``k (k - load) / (f load)``."""
        self._check_count("arrived", arrived)
        return self.k * (self.k - self.load) / (arrived * self.load) if arrived else float(self.k)

    def ensemble_bounds(self, arrived: int) -> tuple[float, float]:
        """Bounds of the mean optimal error over draws (untrimmed) and arrivals."""
        high = self.ensemble_one_step_error(arrived)
        return self.k * (1 - self.load / self.k) ** arrived, min(high, float(self.k))

    def _build_generator(self) -> FloatArray:
        rng = np.random.default_rng(self.seed)
        return (rng.random((self.n_workers, self.k)) < self.load / self.k).astype(np.float64)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that draw this code again."""
        return {"load": self.load, **super().params()}


class RegularizedBernoulliCode(BernoulliCode):
    """A Bernoulli code without overloaded workers or partitions.

    Rows, then columns, of more than ``2 * load`` entries keep ``load`` of them chosen at random: the error is then
    small with high probability even at a constant load.

    Parameters
    ----------
    n_workers, k, load, seed, wait
        As for `BernoulliCode`; ``load`` a whole number.

    Raises
    ------
    InputError
        If ``load`` is not a whole number in ``1 .. k``.

    References
    ----------
    As for `BernoulliCode`: arXiv:1711.06771.

    Examples
    --------
    >>> code = RegularizedBernoulliCode(100, 100, load=5)
    >>> bool(code.generator.sum(axis=1).max() <= 10)
    True
    """

    name = "rbgc"

    def __init__(
        self, n_workers: int, k: int, *, load: float | None = None, seed: int = 0, wait: int | None = None
    ) -> None:
        super().__init__(n_workers, k, load=load, seed=seed, wait=wait)
        if self.load != int(self.load):
            raise InputError(f"load must be a whole number for 'rbgc', got {self.load}: round it, or take 'bgc'")

    def _build_generator(self) -> FloatArray:
        matrix = super()._build_generator()
        rng = np.random.default_rng([self.seed, 1])
        for lines in (matrix, matrix.T):
            for line in lines:
                support = np.flatnonzero(line)
                if len(support) > 2 * self.load:
                    line[:] = 0.0
                    line[rng.choice(support, int(self.load), replace=False)] = 1.0
        return matrix
