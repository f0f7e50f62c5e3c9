"""Which graphs the graph scheme can use: numbers of edges and vertices that go together, and checks of given graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import nearest
from serverless_gc.codes.gradient.regular_graphs import edge_list, named_graph
from serverless_gc.codes.gradient.residues import is_prime
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["given_edges", "graph_sizes", "simple_graph"]

_USUAL_WORKERS = 15
_DEGREES = (3, 4, 5, 6, 2)
"""Degrees to try, in this order, where none is asked for."""


_EDGES: dict[str, Callable[[int], int]] = {
    "complete": lambda k: k * (k - 1) // 2,
    "cycle": lambda k: k,
    "paley": lambda k: k * (k - 1) // 4 if is_prime(k) and k % 4 == 1 else 0,
    "petersen": lambda k: 15 if k == 10 else 0,
}
"""Edges of the simple graphs that have a name, by their vertices; 0 where there is no such graph."""


def graph_sizes(n: int | None, k: int | None, load: int | None, graph: str) -> tuple[int, int, int]:
    """Complete the numbers of edges and vertices, and the degree.

    Raises
    ------
    InputError
        If there is no such graph; names sizes that exist.

    Examples
    --------
    >>> graph_sizes(20, None, None, "random"), graph_sizes(None, 6, None, "complete")
    ((20, 10, 4), (15, 6, 5))
    """
    n = None if n is None else check_whole("n_workers", n, 3)
    k = None if k is None else check_whole("k", k, 3)
    load = None if load is None else check_whole("load", load, 2)
    if graph != "random":
        return _named_sizes(n, k, load, graph)
    if k is not None:
        return _from_vertices(n, k, load)
    if n is None:
        n = _USUAL_WORKERS if load is None else load * (load + 1)
    degrees = _DEGREES if load is None else (load,)
    for degree in degrees:
        if 2 * n % degree == 0 and 2 * n // degree > degree:
            return n, 2 * n // degree, degree
    most = n + max(degrees) * (max(degrees) + 1)
    fits = [m for m in range(3, most) if any(2 * m % d == 0 and 2 * m // d > d for d in degrees)]
    raise InputError(
        f"n_workers must be k * load / 2 with k > load={degrees[0]}, got {n}: take one of {nearest(n, fits)}, or "
        "another load"
    )


def _from_vertices(n: int | None, k: int, load: int | None) -> tuple[int, int, int]:
    if load is None:
        load = min(3 + k % 2, k - 1) if n is None else 2 * n // k
    if k * load % 2 or not 2 <= load < k or n not in {None, k * load // 2}:
        raise InputError(
            f"n_workers must be k * load / 2 with 2 <= load < k and k * load even, got n_workers={n}, k={k}, "
            f"load={load}: leave out one of the three"
        )
    return k * load // 2, k, load


def _named_sizes(n: int | None, k: int | None, load: int | None, graph: str) -> tuple[int, int, int]:
    if k is None:
        wanted = _USUAL_WORKERS if n is None else n
        if graph not in _EDGES:
            simple = ", ".join(map(repr, _EDGES))
            raise InputError(f"graph must be 'random', {simple}, a matrix or a list of edges, got {graph!r}")
        edges = {v: _EDGES[graph](v) for v in range(3, wanted + 11)}
        fits = [v for v, count in edges.items() if count == wanted]
        if not fits:
            near = nearest(wanted, sorted(set(edges.values()) - {0}))
            raise InputError(
                f"n_workers must be the number of edges of a {graph!r} graph, got {wanted}: take one of {near}, or k"
            )
        k = fits[0]
    matrix = simple_graph(graph, k)
    sizes = {"n_workers": (n, int(matrix.sum()) // 2), "load": (load, int(matrix[0].sum()))}
    for label, (value, actual) in sizes.items():
        if value not in {None, actual}:
            raise InputError(f"{label} must be that of the {graph!r} graph on {k} vertices, {actual}, got {value}")
    return sizes["n_workers"][1], k, sizes["load"][1]


def simple_graph(graph: Any, k: int) -> FloatArray:
    """Return the adjacency matrix of a simple graph of degree 2 or more, given by name or as a matrix.

    Raises
    ------
    InputError
        If there is none, or it has loops, double edges or too small a degree.
    """
    matrix = named_graph(graph, k)
    if matrix.max() > 1 or np.trace(matrix):
        raise InputError("graph must be simple: loops and double edges join no two partitions; drop them")
    if matrix[0].sum() < 2:
        raise InputError(f"graph must have degree at least 2, got {matrix[0].sum():.0f}: add edges")
    return matrix


def given_edges(graph: ArrayLike) -> tuple[Array, int]:
    """Check a matrix or a list of edges; return the edges, in the order given, and the number of vertices.

    Raises
    ------
    InputError
        If it is neither, or not a simple regular graph of degree 2 or more.
    """
    given = np.asarray(graph)
    if given.ndim != 2 or not len(given) or given.dtype.kind not in "biuf":
        raise InputError(
            f"graph must be an adjacency matrix or edges of shape (n_workers, 2), got {given.dtype} of shape "
            f"{given.shape}"
        )
    if given.shape[1] != 2:
        return edge_list(simple_graph(given, len(given))), len(given)
    if given.dtype.kind not in "iu" or given.min() < 0:
        raise InputError("graph must name the ends of its edges by numbers from 0")
    edges = given.astype(np.int64)
    k = int(edges.max()) + 1
    low, high = edges.min(axis=1), edges.max(axis=1)
    if (low == high).any() or len(np.unique(low * k + high)) < len(edges):
        raise InputError("graph must be simple: it has a loop or the same edge twice; drop it")
    degrees = np.bincount(edges.ravel(), minlength=k)
    if (degrees != degrees[0]).any() or degrees[0] < 2:
        raise InputError(f"graph must be regular of degree at least 2, its degrees are {sorted(set(degrees.tolist()))}")
    return edges, k
