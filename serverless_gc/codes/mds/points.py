"""Generators of the classical MDS constructions, and the sizes up to which they can be solved.

References
----------
M. Fahim, V. Cadambe, *Numerically Stable Polynomially Coded Computing*, 2019 (arXiv 1903.08326; Chebyshev). A.
Ramamoorthy, L. Tang, *Numerically Stable Coded Matrix Computations via Circulant and Rotation Matrix Embeddings*,
2021 (arXiv 1910.06515; roots of unity). Z. Chen, J. Dongarra, *Condition Numbers of Gaussian Random Matrices*, 2005.
"""

from __future__ import annotations

import math

import numpy as np

from serverless_gc.codes.base import check_dense
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = [
    "chebyshev",
    "few_stragglers",
    "gaussian",
    "refuse_unstable",
    "roots_of_unity",
    "rotation_sizes",
    "vandermonde",
]

_WORST_CONDITION = 1e8
"""Half the digits of double precision."""

_FEW = 3
"""Stragglers up to which points on the circle or the Chebyshev points do at any size, most subsets being benign."""

_VANDERMONDE_MOST = 8


def gaussian(n: int, k: int, seed: int) -> FloatArray:
    """Return independent normal entries of variance ``1 / k``, shape ``(n, k)``.

    Median condition of ``k`` rows: 44 at ``(20, 16)``, 270 at ``(100, 80)``, 1300 at ``(500, 450)``.
    """
    return np.random.default_rng(seed).normal(size=(n, k)) / math.sqrt(k)


def vandermonde(n: int, k: int) -> FloatArray:
    """Return monomials at ``n`` equispaced points of ``[-1, 1]``, shape ``(n, k)``.

    Examples
    --------
    >>> vandermonde(3, 3).tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    points = np.linspace(-1, 1, n) if n > 1 else np.ones(1)
    return np.vander(points, k, increasing=True)


def chebyshev(n: int, k: int) -> FloatArray:
    """Return orthonormal Chebyshev polynomials at the Chebyshev points, shape ``(n, k)``: a partial DCT-II.

    Examples
    --------
    >>> G = chebyshev(5, 3)
    >>> bool(np.allclose(G.T @ G, np.eye(3)))
    True
    """
    check_dense(n, k)
    angles = math.pi * (np.arange(n) + 0.5) / n
    g: FloatArray = math.sqrt(2 / n) * np.cos(np.outer(angles, np.arange(k)))
    g[:, 0] /= math.sqrt(2)
    return g


def roots_of_unity(n: int, k: int) -> Array:
    """Return powers ``0 .. k-1`` of ``n`` of the ``q``-th roots of unity, ``q`` odd and at least ``n``; complex."""
    check_dense(n, k)
    q = n | 1
    points: Array = np.exp(2j * math.pi / q * np.outer(np.arange(n), np.arange(k)))
    return points


def few_stragglers(n: int | None, k: int | None) -> tuple[int, int]:
    """Complete sizes for a construction that is stable for a few stragglers only.

    Examples
    --------
    >>> few_stragglers(None, None), few_stragglers(100, None), few_stragglers(None, 12)
    ((16, 13), (100, 97), (15, 12))
    """
    if n is None:
        n = 16 if k is None else k + min(_FEW, -(-k // 3))
    return n, n - min(_FEW, n // 4) if k is None else k


def rotation_sizes(n: int | None, k: int | None) -> tuple[int, int]:
    """Complete sizes for pairs of blocks on the circle; an odd ``k`` is for the code to refuse.

    Examples
    --------
    >>> rotation_sizes(None, None), rotation_sizes(20, None), rotation_sizes(None, 12)
    ((16, 26), (20, 34), (8, 12))
    """
    n, pairs = few_stragglers(n, None if k is None else -(-k // 2))
    return n, 2 * pairs if k is None else k


def refuse_unstable(construction: str, generator: Array, *, allow: bool) -> None:
    """Raise `InputError` if neighbouring points leave a system that cannot be solved, unless ``allow``.

    Vandermonde systems are refused above ``k = 8``. Of the others the condition number is measured where ``k``
    consecutive workers answer, the worst pattern there is: refused above 1e8, unless at most three stragglers make
    that pattern a rare one. The certificate of a decode tells what a pattern really costs.

    Examples
    --------
    >>> refuse_unstable("chebyshev", chebyshev(20, 16), allow=False)
    >>> refuse_unstable("chebyshev", chebyshev(100, 80), allow=False)
    Traceback (most recent call last):
    serverless_gc.errors.InputError: chebyshev is not stable for n_workers=100, k=80: ...
    """
    n, k = generator.shape
    if allow:
        return
    if construction == "vandermonde":
        if k <= _VANDERMONDE_MOST:
            return
        why = f"at most k={_VANDERMONDE_MOST} blocks"
    else:
        if n - k <= _FEW:
            return
        with single_blas_thread():
            condition = float(np.linalg.cond(generator[:k]))
        if condition <= _WORST_CONDITION:
            return
        why = f"the first k workers alone give a condition number of {condition:.0e}, at most 1e8"
    raise InputError(
        f"{construction} is not stable for n_workers={n}, k={k}: {why}; use code 'mds' (random orthonormal parity), or "
        "allow_unstable=True"
    )
