"""Soft BIBD: rows of equal weight that share nearly equal numbers of partitions, at any size."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import ApproximateCode
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.codes.gradient.drawn import DrawnCode
from serverless_gc.types import Array, FloatArray

__all__ = ["SoftBIBDCode"]


class SoftBIBDCode(DrawnCode):
    """A random matrix improved by exchanges until any two workers share about as many partitions.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    load
        Partitions of each worker, ``1 .. k``; the smaller of 3 and ``k`` if None.
    proposals
        Exchanges to try.
    seed
        Seed of start and exchanges.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If ``load`` is not in ``1 .. k`` or ``proposals`` is negative.

    References
    ----------
    A. Sakorikar, L. Wang, Soft BIBD and Product Gradient Codes, 2021, arXiv:2105.05231. Their random ensemble has the
    properties of a design in expectation; the exchanges are ours.

    Examples
    --------
    >>> code = SoftBIBDCode(7, 7, load=3)
    >>> code.imbalance, round(code.mean_bound(5), 6)
    (0.0, 0.571429)
    """

    name = "soft-bibd"
    load: int
    methods: ClassVar[tuple[str, ...]] = (*ApproximateCode.methods, "constant")

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        load: int | None = None,
        proposals: int = 20_000,
        seed: int = 0,
        wait: int | None = None,
    ) -> None:
        super().__init__(n_workers, k, seed=seed, wait=wait)
        self.load = min(3, self.k) if load is None else check_whole("load", load, 1, self.k)
        self.proposals = check_whole("proposals", proposals, 0)

    # -- how even it is ------------------------------------------------------------------------------

    @property
    def mean_intersection(self) -> float:
        """Partitions that two workers share, on average over all pairs."""
        return _mean_intersection(self.generator)

    @property
    def largest_intersection(self) -> int:
        """Partitions that two workers share at most."""
        shared = self.generator @ self.generator.T
        np.fill_diagonal(shared, 0.0)
        return int(shared.max())

    @property
    def imbalance(self) -> float:
        """Sum over pairs of workers of the squared deviation from the mean intersection; 0 for a design."""
        shared = (self.generator @ self.generator.T)[np.triu_indices(self.n_workers, 1)]
        return float(((shared - self.mean_intersection) ** 2).sum())

    # -- bounds --------------------------------------------------------------------------------------

    def mean_bound(self, arrived: int) -> float:
        """Bound of the mean error over uniformly random arrivals: the error of a design with this intersection."""
        return self._formula(arrived, self.mean_intersection)

    def worst_error(self, stragglers: int) -> float:
        """Bound of ``err(F)``: the smaller of that by the largest intersection and the spectral certificate."""
        known = super().worst_error(stragglers)
        pairwise = self._formula(self.n_workers - stragglers, self.largest_intersection)
        return pairwise if known is None else min(pairwise, known)

    def _formula(self, arrived: int, common: float) -> float:
        self._check_count("arrived", arrived)
        if not arrived:
            return float(self.k)
        return max(0.0, self.k - arrived * self.load**2 / (self.load + (arrived - 1) * common))

    # -- decoding ------------------------------------------------------------------------------------

    def _by_method(self, arrived: Array, method: str) -> Weights:
        """Return the weights; ``"constant"`` gives every arrival that of a design with this intersection."""
        if method != "constant":
            return super()._by_method(arrived, method)
        common = self.load / (self.load + self.mean_intersection * max(len(arrived) - 1, 0))
        return self._weighted(arrived, np.full(len(arrived), common), method)

    def _build_generator(self) -> FloatArray:
        rng = np.random.default_rng(self.seed)
        matrix = _even_start(self.n_workers, self.k, self.load, rng)
        _exchange(matrix, self.proposals, rng)
        return matrix

    def params(self) -> dict[str, Any]:
        """Keyword parameters that draw this code again."""
        return {"load": self.load, "proposals": self.proposals, **super().params()}


def _mean_intersection(matrix: FloatArray) -> float:
    n = len(matrix)
    columns = matrix.sum(axis=0)
    return float((columns**2).sum() - matrix.sum()) / (n * (n - 1)) if n > 1 else 0.0


def _even_start(n: int, k: int, load: int, rng: np.random.Generator) -> FloatArray:
    """Rows of equal weight, column weights as equal as possible: each row takes the columns with most room left."""
    most = -(-n * load // k)
    room = np.full(k, most)
    room[rng.permutation(k)[: most * k - n * load]] -= 1
    matrix = np.zeros((n, k))
    for row in matrix:
        chosen = np.lexsort((rng.random(k), -room))[:load]
        row[chosen] = 1.0
        room[chosen] -= 1
    return matrix


def _exchange(matrix: FloatArray, proposals: int, rng: np.random.Generator) -> None:
    """Exchange two entries of two rows, in place, where that does not make intersections less even."""
    n = len(matrix)
    if n < 2:
        return
    shared = matrix @ matrix.T
    mean = _mean_intersection(matrix)
    uneven = float(((shared[np.triu_indices(n, 1)] - mean) ** 2).sum())
    choices = rng.random((proposals, 4))
    for pick in choices:
        if uneven <= 1e-9:
            return
        a = int(pick[0] * n)
        b = (a + 1 + int(pick[1] * (n - 1))) % n
        only_a, only_b = np.flatnonzero(matrix[a] > matrix[b]), np.flatnonzero(matrix[b] > matrix[a])
        if not len(only_a):
            continue
        x, y = only_a[int(pick[2] * len(only_a))], only_b[int(pick[3] * len(only_b))]
        step = matrix[:, y] - matrix[:, x]
        step[[a, b]] = 0.0  # what the two rows share does not change
        change = 2 * float(step @ (shared[a] - shared[b] + step))
        if change <= 0:
            uneven += change
            matrix[a, x] = matrix[b, y] = 0.0
            matrix[a, y] = matrix[b, x] = 1.0
            shared[a] += step
            shared[:, a] += step
            shared[b] -= step
            shared[:, b] -= step
