"""Points on which polynomials are evaluated, and the bases that go with them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.base import check_dense
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = [
    "OVERSAMPLING",
    "barycentric",
    "chebyshev_points",
    "chebyshev_rows",
    "check_points",
    "lagrange_basis",
    "merge_points",
    "oversampled",
]

OVERSAMPLING = 1.3
"""Workers to launch for each result needed: with just enough results the error has a very long tail."""

_SAME = 8 * float(np.finfo(np.float64).eps)
"""Points nearer than this are one point computed in two ways."""


def chebyshev_points(n: int) -> FloatArray:
    """Return ``cos(pi (i + 1/2) / n)``, the roots of the Chebyshev polynomial of degree ``n``, descending.

    Examples
    --------
    >>> chebyshev_points(2).round(8)
    array([ 0.70710678, -0.70710678])
    """
    # As a sine of what is symmetric around 0: points come in exact pairs, and the middle one is 0.
    points: FloatArray = np.sin(np.pi * (n - 1 - 2 * np.arange(n)) / (2 * n))
    return points


def check_points(label: str, given: ArrayLike, n: int) -> FloatArray:
    """Return the points a caller gave.

    Raises
    ------
    InputError
        If they are not ``n`` finite real numbers, all different.
    """
    points = np.asarray(given)
    if points.shape != (n,) or points.dtype.kind not in "biuf" or not np.isfinite(points).all():
        raise InputError(f"{label} must be {n} finite real numbers, got {points.dtype} of shape {points.shape}")
    points = points.astype(np.float64)
    ordered = np.sort(points)
    if n > 1 and (np.diff(ordered) <= _SAME * np.abs(ordered).max()).any():
        raise InputError(f"{label} must all be different, got {ordered.tolist()}")
    return points


def merge_points(points: FloatArray, onto: FloatArray) -> FloatArray:
    """Return the points, those that equal one of ``onto`` up to rounding replaced by it."""
    check_dense(len(points), len(onto))
    gaps = np.abs(points[:, None] - onto)
    nearest = np.argmin(gaps, axis=1)
    scale = max(np.abs(points).max(initial=0.0), np.abs(onto).max(initial=0.0))
    same = gaps[np.arange(len(points)), nearest] <= _SAME * scale
    return np.where(same, onto[nearest], points)


def lagrange_basis(nodes: FloatArray, points: FloatArray) -> FloatArray:
    """Return the matrix of ``ell_j(points[i])``: the polynomials that are 1 at one of the nodes and 0 at the others.

    By the product formula, whose entries are accurate one by one, and exactly 0 and 1 where a point is a node.

    Examples
    --------
    >>> lagrange_basis(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    array([[-1.,  2.],
           [-0.,  1.]])
    """
    k = len(nodes)
    check_dense(len(points) * k, k)
    others = ~np.eye(k, dtype=bool)
    spacing = np.where(others, nodes[:, None] - nodes, 1.0)
    offsets = np.where(others, (points[:, None] - nodes)[:, None, :], 1.0)
    basis: FloatArray = np.prod(offsets / spacing, axis=2)
    return basis


def chebyshev_rows(points: FloatArray, terms: int, low: float = -1.0, high: float = 1.0) -> FloatArray:
    """Return ``T_d(x)`` for each point, ``d < terms``, with ``x`` the point mapped from ``[low, high]`` to [-1, 1].

    Examples
    --------
    >>> chebyshev_rows(np.array([0.5, 1.0]), 3).round(12)
    array([[ 1. ,  0.5, -0.5],
           [ 1. ,  1. ,  1. ]])
    """
    x = (2 * points - low - high) / (high - low) if high > low else np.zeros_like(points)
    rows: FloatArray = np.cos(np.arange(terms) * np.arccos(np.clip(x, -1.0, 1.0))[:, None])
    return rows


def barycentric(nodes: FloatArray, signs: FloatArray, points: FloatArray) -> FloatArray:
    """Return the matrix of ``b_j(points[i])``, Berrut's rational functions: ``signs[j] / (z - nodes[j])``, normalized.

    Exactly 0 and 1 where a point is a node.
    """
    gaps = points[:, None] - nodes
    hit = gaps == 0
    terms = signs / np.where(hit, 1.0, gaps)
    basis: FloatArray = terms / terms.sum(axis=1, keepdims=True)
    at_node = hit.any(axis=1)
    basis[at_node] = hit[at_node]
    return basis


def oversampled(degree: int, most: int = 10) -> Callable[[int | None, int | None], tuple[int, int]]:
    """Make the rule for sizes of codes that interpolate: 1.3 workers for each of ``(k - 1) degree + 1`` results.

    With just enough results interpolation has a very long tail of errors, and it needs ``k`` to be small.

    Examples
    --------
    >>> complete = oversampled(2)
    >>> complete(16, None), complete(None, 5), complete(100, None)
    ((16, 6), (12, 5), (100, 10))
    """

    def complete(n_workers: int | None, k: int | None) -> tuple[int, int]:
        if n_workers is None:
            n_workers = 16 if k is None else math.ceil(OVERSAMPLING * ((k - 1) * degree + 1))
        if k is None:
            k = max(1, min(most, int((n_workers / OVERSAMPLING - 1) // degree) + 1))
        return n_workers, k

    return complete
