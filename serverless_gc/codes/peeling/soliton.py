"""Degrees and source lists of LT symbols."""

from __future__ import annotations

import math

import numpy as np

from serverless_gc.codes.peeling.equations import pack
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["draw_symbols", "robust_soliton"]


def robust_soliton(k: int, c: float = 0.03, delta: float = 0.5) -> FloatArray:
    """Return the robust soliton distribution: entry ``d - 1`` is the probability that a symbol sums ``d`` sources.

    Parameters
    ----------
    k
        Number of source symbols.
    c
        More of it makes more symbols of degree one, and a heavier spike near ``sqrt(k)``.
    delta
        Bound of Luby's analysis on the probability of failure.

    Raises
    ------
    InputError
        If ``k < 1``, ``c <= 0`` or ``delta`` is not between 0 and 1.

    References
    ----------
    M. Luby, *LT codes*, FOCS 2002.

    Examples
    --------
    >>> robust_soliton(10, c=0.1).round(6)[:3]
    array([0.146577, 0.412007, 0.14922 ])
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if not 0 < c < math.inf:
        raise InputError(f"c must be positive, got {c}")
    if not 0 < delta < 1:
        raise InputError(f"delta must be between 0 and 1, got {delta}")
    degrees = np.arange(1, k + 1)
    ideal = np.empty(k)
    ideal[0] = 1 / k
    ideal[1:] = 1 / (degrees[1:] * (degrees[1:] - 1.0))
    expected = c * math.log(k / delta) * math.sqrt(k)
    spike = min(max(int(k / expected), 1), k)
    extra = np.zeros(k)
    extra[: spike - 1] = expected / (degrees[: spike - 1] * k)
    extra[spike - 1] = max(expected * math.log(expected / delta) / k, 0.0)
    total = ideal + extra
    mu: FloatArray = total / total.sum()
    return mu


def draw_symbols(k: int, n: int, mu: FloatArray, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw ``n`` symbols: a degree each from ``mu``, then so many distinct sources uniformly.

    Returns
    -------
    indptr, indices
        Sources of each symbol, ascending, as compressed rows.
    """
    degrees = rng.choice(k, size=n, p=mu) + 1
    lists: list[Array] = [np.empty(0, dtype=np.int64)] * n
    for d in np.unique(degrees).tolist():
        where = np.flatnonzero(degrees == d)
        for i, sources in zip(where.tolist(), _distinct(k, len(where), d, rng), strict=True):
            lists[i] = sources
    return pack(lists)


def _distinct(k: int, n: int, d: int, rng: np.random.Generator) -> Array:
    """Draw ``n`` rows of ``d`` distinct numbers below ``k``, ascending."""
    if 2 * d > k:
        chosen: Array = np.sort(rng.permuted(np.tile(np.arange(k), (n, 1)), axis=1)[:, :d], axis=1)
        return chosen
    # Repeated entries are drawn again until there are none. That treats all numbers alike: every set is as likely.
    rows = np.sort(rng.integers(k, size=(n, d)), axis=1)
    while True:
        again = np.zeros(rows.shape, dtype=bool)
        again[:, 1:] = rows[:, 1:] == rows[:, :-1]
        if not again.any():
            return rows
        rows[again] = rng.integers(k, size=np.count_nonzero(again))
        rows.sort(axis=1)
