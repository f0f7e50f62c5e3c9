"""Regular graphs with large spectral gaps: random ones, Paley's, Margulis', and a few small ones by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from serverless_gc.codes.base import check_dense
from serverless_gc.codes.gradient.approximate import nearest
from serverless_gc.codes.gradient.residues import is_prime, nonzero_squares
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = [
    "GRAPHS",
    "adjacency",
    "complete",
    "cycle",
    "edge_list",
    "margulis",
    "named_graph",
    "paley",
    "petersen",
    "random_regular",
    "second_eigenvalue",
    "spread_regular",
]

_RESTARTS = 200
_IDLE_PASSES = 30
_EIGEN_BUDGET = 3e9
"""Draws times cube of the vertices to spend on choosing a random graph: about a second."""


def random_regular(n: int, degree: int, rng: np.random.Generator) -> Array:
    """Draw a simple regular graph: stubs are paired at random, pairs that will not do are paired again.

    Parameters
    ----------
    n, degree
        Number of vertices and of neighbours of each; ``0 <= degree < n`` and ``n * degree`` even.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        Edges, shape ``(n * degree / 2, 2)``, each with the smaller vertex first, in ascending order.

    Raises
    ------
    InputError
        If there is no such graph.

    Examples
    --------
    >>> edges = random_regular(6, 3, np.random.default_rng(0))
    >>> np.bincount(edges.ravel()).tolist()
    [3, 3, 3, 3, 3, 3]
    """
    if not 0 <= degree < n or n * degree % 2:
        raise InputError(
            f"a {degree}-regular graph on {n} vertices does not exist: the degree must be less than the number of "
            f"vertices, and their product even; change one of them by 1"
        )
    if 2 * degree >= n:  # few pairs fit: leave edges out of the complete graph instead
        absent = adjacency(random_regular(n, n - 1 - degree, rng), n)
        return edge_list(complete(n) - absent)
    for _ in range(_RESTARTS):
        keys = _pair_stubs(n, degree, rng)
        if keys is not None:
            return np.stack(np.divmod(np.sort(keys), n), axis=1)
    raise InputError(f"no {degree}-regular graph on {n} vertices was found in {_RESTARTS} draws: take another seed")


def _pair_stubs(n: int, degree: int, rng: np.random.Generator) -> Array | None:
    stubs = np.repeat(np.arange(n), degree)
    keys = np.empty(0, np.int64)
    idle = 0
    while len(stubs) and idle < _IDLE_PASSES:
        rng.shuffle(stubs)
        low, high = np.minimum(stubs[::2], stubs[1::2]), np.maximum(stubs[::2], stubs[1::2])
        pairs = low * n + high
        good = np.zeros(len(pairs), bool)
        good[np.unique(pairs, return_index=True)[1]] = True
        good &= (low != high) & ~np.isin(pairs, keys)
        keys = np.concatenate([keys, pairs[good]])
        stubs = np.concatenate([low[~good], high[~good]])
        idle = 0 if good.any() else idle + 1
    return None if len(stubs) else keys


def spread_regular(n: int, degree: int, seed: int, tries: int = 20) -> Array:
    """Draw several random regular graphs and keep the one whose second eigenvalue is smallest.

    Parameters
    ----------
    n, degree
        As for `random_regular`.
    seed
        Draw ``t`` uses ``default_rng([seed, t])``.
    tries
        Draws to compare; fewer where the eigenvalues of large graphs would take long.

    Returns
    -------
    ndarray
        Edges, shape ``(n * degree / 2, 2)``.
    """
    draws = [np.random.default_rng([seed, t]) for t in range(max(1, min(tries, int(_EIGEN_BUDGET / n**3))))]
    if len(draws) == 1:
        return random_regular(n, degree, draws[0])
    graphs = [random_regular(n, degree, rng) for rng in draws]
    return min(graphs, key=lambda edges: second_eigenvalue(adjacency(edges, n)))


def second_eigenvalue(matrix: FloatArray) -> float:
    """Return ``max(|lambda_2|, |lambda_n|)`` of a symmetric matrix; the degree itself if disconnected or bipartite."""
    with single_blas_thread():
        return float(np.abs(np.linalg.eigvalsh(matrix)[:-1]).max(initial=0.0))


def adjacency(edges: Array, n: int) -> FloatArray:
    """Return the adjacency matrix of a list of edges."""
    check_dense(n, n)
    matrix = np.zeros((n, n))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = 1.0
    return matrix


def edge_list(matrix: Array) -> Array:
    """Return the edges of an adjacency matrix without loops, smaller vertex first, in ascending order."""
    return np.argwhere(np.triu(matrix))


def complete(n: int) -> FloatArray:
    """All pairs."""
    return np.ones((n, n)) - np.eye(n)


def cycle(n: int) -> FloatArray:
    """Each vertex with the next."""
    if n < 3:
        raise InputError(f"a cycle must have at least 3 vertices, got {n}")
    step = np.roll(np.eye(n), 1, axis=1)
    return step + step.T


def petersen(n: int = 10) -> FloatArray:
    """Pairs of five things, adjacent when disjoint: 10 vertices of degree 3, second eigenvalue 2."""
    if n != 10:
        raise InputError(f"the Petersen graph has 10 vertices, got {n}: take graph='random' for other sizes")
    pairs = [{i, j} for i in range(5) for j in range(i)]
    return np.array([[0.0 if a & b else 1.0 for b in pairs] for a in pairs])


def paley(n: int) -> FloatArray:
    """``i ~ j`` if ``i - j`` is a non-zero square modulo the prime ``n``, 1 modulo 4; degree ``(n - 1) / 2``.

    Examples
    --------
    >>> round(second_eigenvalue(paley(13)), 6), round((1 + 13**0.5) / 2, 6)
    (2.302776, 2.302776)
    """
    if not is_prime(n) or n % 4 != 1:
        sizes = [q for q in range(5, 2 * n + 20, 4) if is_prime(q)]
        raise InputError(
            f"a Paley graph must have a prime number of vertices, 1 modulo 4, got {n}: take one of "
            f"{nearest(n, sizes)}, or graph='random'"
        )
    squares = nonzero_squares(n)
    difference = np.subtract.outer(np.arange(n), np.arange(n)) % n
    return np.isin(difference, squares).astype(np.float64)


def margulis(n: int) -> FloatArray:
    """Margulis-Gabber-Galil graph on the ``m x m`` torus, ``n = m**2``: degree 8, second eigenvalue below ``5 sqrt 2``.

    Entries count the maps that lead from one vertex to another, so some are larger than one, and fixed points count
    once on the diagonal.

    Examples
    --------
    >>> round(second_eigenvalue(margulis(25)), 6)
    5.325385
    """
    m = math.isqrt(n)
    if m * m != n or m < 3:
        raise InputError(
            f"a Margulis-Gabber-Galil graph must have m**2 vertices, m >= 3, got {n}: take one of "
            f"{nearest(n, [q * q for q in range(3, m + 8)])}, or graph='random'"
        )
    check_dense(n, n)
    x, y = np.divmod(np.arange(n), m)
    matrix = np.zeros((n, n))
    for shift in (2 * y, -2 * y, 2 * y + 1, -2 * y - 1):
        np.add.at(matrix, (np.arange(n), (x + shift) % m * m + y), 1.0)
    for shift in (2 * x, -2 * x, 2 * x + 1, -2 * x - 1):
        np.add.at(matrix, (np.arange(n), x * m + (y + shift) % m), 1.0)
    return matrix


GRAPHS: dict[str, Callable[[int], FloatArray]] = {
    "complete": complete,
    "cycle": cycle,
    "margulis": margulis,
    "paley": paley,
    "petersen": petersen,
}
"""Adjacency matrices by name, made from the number of vertices."""


def named_graph(graph: Any, n: int) -> FloatArray:
    """Return the adjacency matrix of a graph given by name or as a matrix.

    Raises
    ------
    InputError
        If the name is unknown, or the matrix is not symmetric of non-negative whole numbers, of that size, with equal
        row sums.
    """
    if isinstance(graph, str):
        if graph not in GRAPHS:
            raise InputError(
                f"graph must be 'random', {', '.join(map(repr, GRAPHS))} or an adjacency matrix, got {graph!r}"
            )
        return GRAPHS[graph](n)
    matrix = np.asarray(graph)
    if matrix.shape != (n, n) or matrix.dtype.kind not in "biuf":
        raise InputError(f"graph must be an adjacency matrix of shape ({n}, {n}), got shape {matrix.shape}")
    matrix = matrix.astype(np.float64)
    if (matrix < 0).any() or (matrix % 1 != 0).any() or (matrix != matrix.T).any():
        raise InputError("graph must be a symmetric matrix of non-negative whole numbers")
    degrees = matrix.sum(axis=1)
    if (degrees != degrees[0]).any():
        raise InputError(
            f"graph must be regular: its degrees range from {degrees.min():.0f} to {degrees.max():.0f}; add or drop "
            "edges"
        )
    return matrix
