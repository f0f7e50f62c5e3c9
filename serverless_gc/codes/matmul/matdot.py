"""MatDot codes: the inner dimension is cut, each worker returns a product of full size, few results are needed.

References
----------
M. Fahim, H. Jeong, F. Haddadpour, S. Dutta, V. Cadambe, P. Grover, On the Optimal Recovery Threshold of Coded Matrix
Multiplication, 2017. M. Fahim, V. R. Cadambe, Numerically Stable Polynomially Coded Computing (OrthoMatDot), 2019.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.lagrange.interpolation import Interpolation
from serverless_gc.codes.lagrange.points import OVERSAMPLING, chebyshev_points, chebyshev_rows, check_points
from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.polynomial import monomial_code
from serverless_gc.codes.matmul.sizes import DEFAULT_WORKERS
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["MatDotCode", "OrthoMatDotCode"]


class MatDotCode(MatmulCode):
    """MatDot code: any ``2 k - 1`` results decode, the inner dimension being cut into ``k``.

    Rows of ``A`` and of ``B`` are cut into ``k`` blocks; wanted is the sum of the ``A[j].T @ B[j]``, and it is one
    weighted sum of results. Monomials as here are for exact arithmetic and few blocks: see `OrthoMatDotCode`.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks of the inner dimension, ``n_workers >= 2 k - 1``.
    points
        ``n_workers`` different real numbers; Chebyshev points by default.
    allow_unstable
        Accept more than 5 blocks.

    Raises
    ------
    InputError
        If ``n_workers < 2 k - 1``, there are too many blocks (unless allowed), or points are not finite, not as many
        or not different.

    Examples
    --------
    >>> code = MatDotCode(4, 2, points=[-1, 0, 1, 2])
    >>> At, Bt = code.encode_left(np.array([1.0, 2.0])), code.encode_right(np.array([3.0, 5.0]))
    >>> sent = {i: At[code.operands(i)[0]] * Bt[code.operands(i)[1]] for i in range(4)}
    >>> [float(x) for x in sent.values()]
    [-2.0, 5.0, 24.0, 55.0]
    >>> del sent[1]
    >>> round(float(code.decode(sent)[0]), 9)
    13.0
    """

    name = "matdot"
    most: ClassVar[int] = 5

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        points: ArrayLike | None = None,
        allow_unstable: bool = False,
    ) -> None:
        n, blocks = self._sizes(n_workers, k)
        self.allow_unstable = bool(allow_unstable)
        if blocks > self.most and not self.allow_unstable:
            raise InputError(
                f"k must be at most {self.most} for {self.name!r} to be accurate, got {blocks}; use fewer blocks, "
                "another code, or allow_unstable=True"
            )
        self.threshold = 2 * blocks - 1
        if n < self.threshold:
            raise InputError(f"n_workers must be at least 2 k - 1 = {self.threshold}, got {n}")
        self.points = chebyshev_points(n) if points is None else check_points("points", points, n)
        self._given = points is not None
        split = Split(1, 1, blocks)
        super().__init__(n, split, *self._operands(split))

    @classmethod
    def _sizes(cls, n_workers: int | None, k: int | None) -> tuple[int, int]:
        if k is not None:
            k = check_whole("k", k, 1)
        if n_workers is None:
            n_workers = DEFAULT_WORKERS if k is None else math.ceil(OVERSAMPLING * (2 * k - 1))
        n = check_whole("n_workers", n_workers, 1)
        return n, max(1, min(cls.most, int((n / OVERSAMPLING + 1) // 2))) if k is None else k

    def _operands(self, split: Split) -> tuple[Operand, Operand, Interpolation]:
        """Block ``A[j]`` has the factor ``x**j``, ``B[j]`` the factor ``x**(k - 1 - j)``."""
        return monomial_code(self.name, self.points, split, total=True)

    @property
    def target(self) -> Literal["blocks", "sum"]:
        """The sum of the products of the blocks is wanted."""
        return "sum"

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        optional: dict[str, Any] = {"points": self.points.tolist()} if self._given else {}
        return {**optional, **({"allow_unstable": True} if self.allow_unstable else {})}


class OrthoMatDotCode(MatDotCode):
    """MatDot code in an orthonormal basis: the same threshold, accurate for up to 10 blocks.

    Both operands are combined by orthonormal Chebyshev polynomials, ``sum_j A[j] Th_j(x)`` and ``sum_j B[j] Th_j(x)``:
    the mean over all ``x`` of their product is the answer, and Gauss quadrature of what the workers interpolate is
    exact.

    Parameters
    ----------
    n_workers, k, points, allow_unstable
        As for `MatDotCode`, for up to 10 blocks. Points must be in [-1, 1].

    Raises
    ------
    InputError
        As for `MatDotCode`, and if a point is not in [-1, 1].

    Examples
    --------
    >>> code = OrthoMatDotCode(5, 2)
    >>> At, Bt = code.encode_left(np.array([1.0, 2.0])), code.encode_right(np.array([3.0, 5.0]))
    >>> round(float(code.decode({i: At[code.operands(i)[0]] * Bt[code.operands(i)[1]] for i in (0, 2, 3)})[0]), 9)
    13.0
    """

    name = "ortho-matdot"
    most = 10

    def _operands(self, split: Split) -> tuple[Operand, Operand, Interpolation]:
        outside = self.points[np.abs(self.points) > 1]
        if outside.size:
            raise InputError(f"points must be in [-1, 1], got {outside.tolist()}")
        k = split.inner
        rows = chebyshev_rows(self.points, 2 * k - 1)
        basis: Array = rows[:, :k] * np.where(np.arange(k), math.sqrt(2), 1.0)
        # The mean of a polynomial is its coefficient of T_0, all others having the mean 0.
        mean = np.eye(1, 2 * k - 1)
        # A message sums k**2 products of blocks, the answer k; towards the ends the basis is up to twice its mean.
        products = Interpolation(self.name, rows, mean, k=k, total=True, growth=2 * math.sqrt(k))
        return Operand.shared(basis), Operand.shared(basis), products
