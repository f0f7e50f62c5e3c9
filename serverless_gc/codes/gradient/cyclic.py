"""Cyclic repetition: every worker combines ``s + 1`` consecutive partitions; any ``n - s`` workers suffice."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.gradient.band import BandCode, NullSpace
from serverless_gc.codes.gradient.coefficients import CoefficientCode, best_draw
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["CyclicRepetitionCode", "annihilated_rows"]

_SOLVED_TOGETHER = 2**22


class CyclicRepetitionCode(BandCode, CoefficientCode):
    """Worker ``i`` combines partitions ``i ... i + s`` (mod ``n``) with coefficients from a random null space.

    For any number of workers, at the least load that tolerates ``s`` arbitrary stragglers. A decoding vector costs a
    solve of size ``s``, from a null space that is computed once, at the first decode.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; they are equal.
    stragglers
        Tolerated stragglers ``s``, less than ``n_workers``; a tenth of the workers by default.
    seed
        Of the random matrix. Entries are heavy-tailed, so the best of 20 draws is kept.
    coefficients
        Use these instead of drawing: shape ``(n_workers, s + 1)``, entry ``[i, t]`` for partition ``(i + t) mod n``.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, ``stragglers`` is out of range, or the coefficients are not of that shape,
        or do not make a matrix of rank ``n - s`` with all ones in the span of its rows.

    References
    ----------
    R. Tandon, Q. Lei, A. G. Dimakis, N. Karampatziakis, "Gradient Coding: Avoiding Stragglers in Distributed
    Learning", ICML 2017, arXiv:1612.03301.

    Examples
    --------
    >>> import numpy as np
    >>> code = CyclicRepetitionCode(3, 3, stragglers=1, coefficients=[[0.5, 1], [1, -1], [1, 0.5]])
    >>> code.generator
    array([[ 0.5,  1. ,  0. ],
           [ 0. ,  1. , -1. ],
           [ 0.5,  0. ,  1. ]])
    >>> [code.weights(arrived).a.round(12).tolist() for arrived in ([0, 1], [0, 2], [1, 2])]
    [[2.0, -1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]
    """

    name = "cyclic"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        stragglers: int | None = None,
        seed: int = 0,
        coefficients: ArrayLike | None = None,
    ) -> None:
        self._note(seed, coefficients)
        super().__init__(n_workers, k, stragglers)
        if self._given is not None and not self._null_space.solves(self._band.dense()):
            raise InputError(
                f"coefficients must make a matrix of rank n_workers - stragglers = {n_workers - self._stragglers} with "
                "all ones in the span of its rows"
            )

    def _coefficients(self) -> Array:
        shape = (self.n_workers, self._stragglers + 1)
        if self._given is None:
            return best_draw(self.n_workers, self._stragglers, self._seed, annihilated_rows)
        if self._given.shape != shape or not np.isfinite(self._given).all():
            raise InputError(
                f"coefficients must be finite, of shape (n_workers, stragglers + 1) = {shape}, got shape "
                f"{self._given.shape}"
            )
        return self._given

    @cached_property
    def _null_space(self) -> NullSpace:
        return NullSpace.of_rows(self._band.dense(), self._stragglers)

    def _structured(self, lost: Array) -> Array:
        return self._null_space.avoiding(lost)

    def decodable_sets(self, arrived: int) -> int:
        """How many of the sets of so many arrivals determine the gradient: all or none."""
        return math.comb(self.n_workers, arrived) if arrived >= self.n_workers - self._stragglers else 0


def annihilated_rows(h: FloatArray) -> FloatArray:
    """Return the circular band, with leading ones, whose rows a matrix annihilates.

    Parameters
    ----------
    h
        Shape ``(s, n)``, any ``s`` of its columns independent.

    Returns
    -------
    array
        Shape ``(n, s + 1)``: row ``i`` times columns ``i ... i + s`` (mod ``n``) of ``h`` is zero.

    Examples
    --------
    >>> annihilated_rows(np.array([[1.0, 2.0, -3.0]])).round(12).tolist()
    [[1.0, -0.5], [1.0, 0.666666666667], [1.0, 3.0]]
    """
    s, n = h.shape
    rows = np.ones((n, s + 1))
    together = max(1, _SOLVED_TOGETHER // max(1, s * s))
    for first in range(0, n if s else 0, together):
        i = np.arange(first, min(n, first + together))
        columns = (i[:, None] + 1 + np.arange(s)) % n
        systems = h[:, columns].transpose(1, 0, 2)
        with single_blas_thread():
            rows[i, 1:] = -np.linalg.solve(systems, h[:, i].T[:, :, None])[:, :, 0]
    return rows
