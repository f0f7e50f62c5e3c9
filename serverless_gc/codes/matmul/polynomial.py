"""Polynomial and entangled polynomial codes: optimal thresholds, and accurate for few blocks only.

References
----------
Q. Yu, M. A. Maddah-Ali, A. S. Avestimehr, Polynomial Codes: an Optimal Design for High-Dimensional Coded Matrix
Multiplication, 2017, and Straggler Mitigation in Distributed Matrix Multiplication: Fundamental Limits and Optimal
Coding (entangled polynomial codes), 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_dense
from serverless_gc.codes.lagrange.interpolation import Interpolation
from serverless_gc.codes.lagrange.points import chebyshev_points, check_points
from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.sizes import complete_grid
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["ComplexPolynomialCode", "EntangledCode", "PolynomialCode", "monomial_code"]

MOST_RESULTS = 9
"""Largest threshold at which monomials on Chebyshev points are usable."""


def monomial_code(
    label: str, points: Array, split: Split, *, total: bool = False
) -> tuple[Operand, Operand, Interpolation]:
    """Make the operands and the products of the (entangled) polynomial code on these points.

    Block ``A[s, a]`` has the factor ``x**(s + r a)`` and ``B[s, b]`` the factor ``x**(r - 1 - s + r p b)``, with ``r``
    the inner number of blocks: then ``C[a, b]`` is the coefficient of ``x**(r - 1 + r a + r p b)``.
    """
    p, q, r = split.p, split.q, split.inner
    s = np.arange(r)[:, None]
    left = (s + r * np.arange(p)).reshape(-1)
    right = (r - 1 - s + r * p * np.arange(q)).reshape(-1)
    wanted = (r - 1 + r * np.arange(p)[:, None] + r * p * np.arange(q)).reshape(-1)
    check_dense(len(points), p * q * r + r - 1)
    powers = points[:, None] ** np.arange(p * q * r + r - 1)
    # At the point 0 only the constant coefficient is left; of a polynomial of degree 0 there is nothing else.
    constant = np.flatnonzero((np.abs(powers[:, 1:]) == 0).all(axis=1)) if wanted[0] == 0 and not total else ()
    products = Interpolation(
        label,
        powers,
        np.eye(powers.shape[1])[wanted],
        k=r if total else p * q,
        total=total,
        copies=dict.fromkeys(map(int, constant), 0),
        # An answer is one coefficient of a sum of many: messages are larger than it by the norm of a row.
        growth=max(1.0, float(np.linalg.norm(powers)) / math.sqrt(len(points))),
    )
    return Operand.shared(powers[:, left]), Operand.shared(powers[:, right]), products


class EntangledCode(MatmulCode):
    """Entangled polynomial code: any ``p q r + r - 1`` results decode, the inner dimension being cut into ``r``.

    Workers evaluate one polynomial in real points. The default Chebyshev points are the best real ones, and even on
    them the accuracy is gone beyond a threshold of 9.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks of the answer.
    p, q
        Numbers of column blocks of ``A`` and of ``B``, ``k = p * q``.
    inner
        Number of row blocks of both; by default 2, or 1 where 2 would need too many results.
    points
        ``n_workers`` different real numbers; Chebyshev points by default.
    allow_unstable
        Accept a larger threshold.

    Raises
    ------
    InputError
        If ``k != p * q``, ``n_workers`` is less than the threshold, the threshold is above 9 (unless allowed), or
        points are not finite, not as many or not different.

    Examples
    --------
    >>> EntangledCode(n_workers=12, p=2, q=2, inner=2).guaranteed_threshold
    9
    """

    name = "entangled"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        p: int | None = None,
        q: int | None = None,
        inner: int | None = None,
        points: ArrayLike | None = None,
        allow_unstable: bool = False,
    ) -> None:
        n, p, q, r = _entangled_sizes(n_workers, k, p, q, inner)
        self.threshold = p * q * r + r - 1
        self.allow_unstable = bool(allow_unstable)
        _check_threshold(n, self.threshold, MOST_RESULTS, self.allow_unstable)
        self.points = chebyshev_points(n) if points is None else check_points("points", points, n)
        self._given = points is not None
        split = Split(p, q, r)
        super().__init__(n, split, *monomial_code(self.name, self.points, split))

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        optional = {"points": self.points.tolist()} if self._given else {}
        if self.allow_unstable:
            optional["allow_unstable"] = True
        return {**super().params(), "inner": self.split.inner, **optional}


class PolynomialCode(MatmulCode):
    """Polynomial code: any ``p q`` results decode; worker ``i`` multiplies the operands' polynomials at a point.

    Parameters
    ----------
    n_workers, k, p, q, points, allow_unstable
        As for `EntangledCode`; ``p q`` of at most 8 unless allowed.

    Raises
    ------
    InputError
        As for `EntangledCode`.

    Examples
    --------
    >>> code = PolynomialCode(5, p=2, q=2, points=[-2, -1, 0, 1, 2])
    >>> At, Bt = code.encode_left(np.array([1.0, 2.0])), code.encode_right(np.array([3.0, 5.0]))
    >>> sent = {i: At[code.operands(i)[0]] * Bt[code.operands(i)[1]] for i in range(5)}
    >>> [float(x) for x in sent.values()]
    [-69.0, -8.0, 3.0, 24.0, 115.0]
    >>> del sent[1]
    >>> code.decode(sent)[0].round(9)
    array([ 3.,  5.,  6., 10.])
    """

    name = "polynomial"
    most: ClassVar[int | None] = 8

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        p: int | None = None,
        q: int | None = None,
        points: ArrayLike | None = None,
        allow_unstable: bool = False,
    ) -> None:
        n, p, q = complete_grid(n_workers, k, p, q, most=self.most)
        self.allow_unstable = bool(allow_unstable)
        _check_threshold(n, p * q, self.most, self.allow_unstable)
        self.points = self._default_points(n) if points is None else self._check_points(points, n)
        self._given = points is not None
        split = Split(p, q)
        super().__init__(n, split, *monomial_code(self.name, self.points, split))

    @staticmethod
    def _default_points(n: int) -> Array:
        return chebyshev_points(n)

    @staticmethod
    def _check_points(points: ArrayLike, n: int) -> Array:
        return check_points("points", points, n)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        optional: dict[str, Any] = {"points": self.points.tolist()} if self._given else {}
        if self.allow_unstable:
            optional["allow_unstable"] = True
        return {**super().params(), **optional}


class ComplexPolynomialCode(PolynomialCode):
    """Polynomial code on the complex roots of unity: workers compute with complex numbers, at four times the work.

    Far better conditioned than real points, for up to about 100 blocks. The answer of real operands is complex with
    an imaginary part of rounding errors.

    Parameters
    ----------
    n_workers, k, p, q
        As for `PolynomialCode`, without a limit.

    Raises
    ------
    InputError
        If ``k != p * q`` or ``k > n_workers``.

    Examples
    --------
    >>> code = ComplexPolynomialCode(8, p=2, q=3)
    >>> At, Bt = code.encode_left(np.array([1.0, 2.0])), code.encode_right(np.array([3.0, 5.0, 7.0]))
    >>> code.decode({i: At[code.operands(i)[0]] * Bt[code.operands(i)[1]] for i in range(1, 7)})[0].real.round(9)
    array([ 3.,  5.,  7.,  6., 10., 14.])
    """

    name = "polynomial-complex"
    most = None

    def __init__(
        self, n_workers: int | None = None, k: int | None = None, *, p: int | None = None, q: int | None = None
    ) -> None:
        super().__init__(n_workers, k, p=p, q=q)

    @staticmethod
    def _default_points(n: int) -> Array:
        roots: Array = np.exp(2j * np.pi * np.arange(n) / n)
        return roots

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ComplexPolynomialCode:
        """Rebuild the code from its manifest alone."""
        return cls(manifest["n_workers"], manifest["k"], **manifest["params"])


def _entangled_sizes(
    n_workers: int | None, k: int | None, p: int | None, q: int | None, inner: int | None
) -> tuple[int, int, int, int]:
    """Complete sizes; an inner split that the caller did not ask for is given up where it does not fit."""
    r = 2 if inner is None else check_whole("inner", inner, 1)
    most = max(1, (MOST_RESULTS + 1 - r) // r)
    n, p, q = complete_grid(n_workers, k, p, q, needed=lambda cells: cells * r + r - 1, most=most)
    if inner is None and p * q * r + r - 1 > min(n, MOST_RESULTS):
        return *complete_grid(n_workers, k, p, q), 1
    return n, p, q, r


def _check_threshold(n: int, threshold: int, most: int | None, allow_unstable: bool) -> None:
    if n < threshold:
        raise InputError(f"n_workers must be at least {threshold}, the number of results needed, got {n}")
    if most is not None and threshold > most and not allow_unstable:
        raise InputError(
            f"p, q give a threshold of {threshold} results, at most {most} keep their accuracy with real polynomials; "
            "use 'khatri-rao', fewer blocks, or allow_unstable=True"
        )
