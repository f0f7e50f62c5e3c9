"""Codes whose worker ``i`` combines the partitions ``i, i + 1, ..., i + width - 1`` (mod ``n``): what they share."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.base import GradientCode, Weights
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers, require_square
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array

__all__ = ["Band", "BandCode", "CountTracker", "NullSpace"]

_WELL_ENOUGH = 1e-9
_ROUNDING = 4 * float(np.finfo(float).eps)
"""A structured solution is taken, without trying least squares, if no entry of ``alpha - 1`` exceeds the first, or the
second times the size of the terms that make up ``alpha``: least squares would round as much."""


_SOLVED = 1e-8
"""Largest entry, relative to the matrix, that counts as zero in a decomposition of it."""


class CountTracker(Tracker):
    """Decodable when enough messages arrived, whichever they are. ``O(1)`` per arrival."""

    __slots__ = ("_k", "_n", "_needed", "_seen")

    def __init__(self, n_messages: int, needed: int, k: int) -> None:
        self._n = n_messages
        self._needed = needed
        self._k = k
        self._seen: set[int] = set()

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._n)
        self._seen.add(message)
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether enough messages arrived."""
        return len(self._seen) >= self._needed

    def missing(self) -> tuple[int, ...]:
        """All partitions until enough messages arrived: before that, no weights count a single one exactly once."""
        return () if self.decodable else tuple(range(self._k))


class Band:
    """Coefficients of a circular band: entry ``[i, t]`` belongs to worker ``i`` and partition ``(i + t) mod n``.

    Parameters
    ----------
    coefficients
        Shape ``(n, width)``, or ``(n, width, fold)`` for codes that fold coordinates; ``width <= n``.
    """

    __slots__ = ("_by_partition", "_holders", "coefficients", "norms")

    def __init__(self, coefficients: Array) -> None:
        n, width = coefficients.shape[:2]
        self.coefficients = coefficients
        self._holders = (np.arange(n)[:, None] - np.arange(width)) % n
        self._by_partition = coefficients[self._holders, np.arange(width)]
        self.norms = np.linalg.norm(coefficients.reshape(n, -1), axis=1)
        for array in (coefficients, self._by_partition, self.norms):
            array.setflags(write=False)

    def held(self, worker: int) -> tuple[int, ...]:
        """Return the partitions of ``worker``, in the order of computation."""
        n, width = self.coefficients.shape[:2]
        return tuple((worker + t) % n for t in range(width))

    def dense(self) -> Array:
        """Return the matrix, shape ``(n, n)`` or ``(n, n, fold)``."""
        n, _, *fold = self.coefficients.shape
        matrix = np.zeros((n, n, *fold), self.coefficients.dtype)
        matrix[self._holders, np.arange(n)[:, None]] = self._by_partition
        return matrix

    def effective(self, a: Array) -> Array:
        """Return ``a @ B`` in ``O(n * width)``: shape ``(n,)``, or ``(n, fold, fold)`` for weights ``(n, fold)``."""
        gathered = a[self._holders]
        if a.ndim == 1:
            product: Array = np.einsum("jt,jt->j", gathered, self._by_partition)
            return product
        blocks: Array = np.einsum("jtu,jtv->juv", gathered, self._by_partition)
        return blocks

    def accurate(self, alpha: Array, amplification: float) -> bool:
        """Whether weights count every partition once, as well as least squares could."""
        rounding = _ROUNDING * amplification * math.sqrt(len(alpha))
        return bool(np.abs(alpha - 1).max() <= max(_WELL_ENOUGH, rounding))


class NullSpace:
    """All exact weights ``particular + basis @ x`` of a code, and those of them that leave out given workers.

    Parameters
    ----------
    particular
        Weights of least norm over all workers, shape ``(n,)`` or ``(n, fold)``.
    basis
        Orthonormal basis of the weights that give zero, shape ``(n, s)``.
    """

    __slots__ = ("basis", "particular")

    def __init__(self, particular: Array, basis: Array) -> None:
        self.particular = particular
        self.basis = basis

    @classmethod
    def of_rows(cls, matrix: Array, stragglers: int) -> NullSpace:
        """Decompose a square encoding matrix of rank ``n - stragglers``."""
        with single_blas_thread():
            u, values, vt = np.linalg.svd(matrix)
        rank = len(matrix) - stragglers
        left = u.conj()
        return cls(left[:, :rank] @ (vt[:rank].conj().sum(axis=1) / values[:rank]), left[:, rank:])

    def solves(self, matrix: Array) -> bool:
        """Whether these are weights of ``matrix``: the particular ones give all ones, the basis gives zero."""
        size = float(np.abs(matrix).max(initial=0.0))
        ones = np.abs(self.particular @ matrix - 1).max(initial=0.0)
        zeros = np.abs(self.basis.T @ matrix).max(initial=0.0)
        return bool(ones <= _SOLVED and zeros <= _SOLVED * size)

    def avoiding(self, lost: Array) -> Array:
        """Return exact weights that are zero at ``lost``: one small solve, unique if ``s`` workers are lost."""
        if not len(lost):
            return self.particular.copy()
        rows, right = self.basis[lost], -self.particular[lost]
        with single_blas_thread():
            if len(lost) == rows.shape[1]:
                x = np.linalg.solve(rows, right)
            else:
                x = np.linalg.lstsq(rows, right, rcond=None)[0]
            a: Array = self.particular + self.basis @ x
        a[lost] = 0
        return a


class BandCode(GradientCode):
    """A code whose matrix is a circular band of ``stragglers + 1``, and of which any ``n - stragglers`` rows decode.

    A subclass provides `_structured`, weights without a solve of the full size; they are verified here, and least
    squares tried where they are not good.
    """

    def __init__(self, n_workers: int, k: int, stragglers: int | None) -> None:
        super().__init__(n_workers, k)
        require_square(self.name, self.n_workers, self.k)
        self._stragglers = self._default() if stragglers is None else check_stragglers(stragglers, self.n_workers)
        self._band = Band(self._coefficients())

    def _default(self) -> int:
        """Stragglers tolerated if the caller does not say."""
        return a_tenth(self.n_workers)

    @abstractmethod
    def _coefficients(self) -> Array:
        """Make the band, shape ``(n_workers, stragglers + 1)``; called once."""

    @abstractmethod
    def _structured(self, lost: Array) -> Array:
        """Return weights of all workers, zero at the lost ones (at most ``stragglers``)."""

    def _build_generator(self) -> Array:
        return self._band.dense()

    @property
    def coefficients(self) -> Array:
        """Entry ``[i, t]`` is the coefficient of worker ``i`` for partition ``(i + t) mod n``; read-only."""
        return self._band.coefficients

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the worker's partitions, in circular order from its own, and their coefficients."""
        check_message(message, self.n_messages)
        return self._band.held(message), self._band.coefficients[message]

    def tracker(self) -> Tracker:
        """Make a fresh tracker that counts."""
        return CountTracker(self.n_messages, self.n_workers - self._stragglers, self.k)

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact."""
        return self._stragglers

    def _solve(self, arrived: Array) -> Weights:
        if len(arrived) < self.n_workers - self._stragglers:
            return self._least_squares(arrived)
        lost = np.setdiff1d(np.arange(self.n_workers), arrived, assume_unique=True)
        try:
            fast = self._completed(self._structured(lost))
        except np.linalg.LinAlgError:
            return self._least_squares(arrived)
        if self._band.accurate(fast.alpha, fast.amplification):
            return fast
        return min((self._least_squares(arrived), fast), key=lambda weights: weights.error)

    def _completed(self, a: Array) -> Weights:
        alpha = self._band.effective(a)
        miss = alpha - 1
        growth = float(np.abs(a) @ self._band.norms) / math.sqrt(self.k)
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, float(np.vdot(miss, miss).real), growth, "structured")
