"""Optimal decoding on a graph: workers are edges, partitions vertices. Linear time, and a running error by union-find.

An edge carries the sum of its two ends. In a connected component with an odd cycle all vertices can be counted exactly
once. In a bipartite one both sides get the same total, so the larger side is counted less and the smaller one more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serverless_gc.codes.gradient.approximate import ApproximateCode, ErrorTracker
from serverless_gc.types import Array, FloatArray

__all__ = ["GraphTracker", "edge_weights"]


def edge_weights(edges: Array, n_vertices: int) -> tuple[FloatArray, FloatArray]:
    """Find edge weights whose sums at the vertices are as near to one as possible.

    Parameters
    ----------
    edges
        Ends of the edges that arrived, shape ``(f, 2)``.
    n_vertices
        Number of vertices.

    Returns
    -------
    a, alpha
        Weights of the edges, shape ``(f,)``, and their sums at the vertices, shape ``(n_vertices,)``.

    Examples
    --------
    >>> a, alpha = edge_weights(np.array([[0, 1], [0, 2], [0, 3]]), 5)
    >>> a.tolist(), alpha.tolist()
    ([0.5, 0.5, 0.5], [1.5, 0.5, 0.5, 0.5, 0.0])
    """
    first, neighbours, via = _incidence(edges, n_vertices)
    side = [-1] * n_vertices
    up, above = [-1] * n_vertices, [-1] * n_vertices  # edge to the parent, and the parent
    weight, alpha, rest = [0.0] * len(edges), [0.0] * n_vertices, [0.0] * n_vertices
    for root in range(n_vertices):
        if side[root] >= 0 or first[root] == first[root + 1]:
            continue
        side[root] = 0
        order, odd = [root], -1
        for v in order:
            for at in range(first[v], first[v + 1]):
                u = neighbours[at]
                if side[u] < 0:
                    side[u], up[u], above[u] = 1 - side[v], via[at], v
                    order.append(u)
                elif side[u] == side[v]:
                    odd = via[at]
        # Left minus right: sums over the two sides differ by twice the weight of an edge within one side, alone.
        lean = len(order) - 2 * sum(side[v] for v in order)
        for v in order:
            alpha[v] = rest[v] = 1.0 if odd >= 0 else 1.0 + (2 * side[v] - 1) * lean / len(order)
        if odd >= 0:
            p, q = edges[odd].tolist()
            weight[odd] = lean / 2 if side[p] == 0 else -lean / 2
            rest[p] -= weight[odd]
            rest[q] -= weight[odd]
        for v in order[:0:-1]:  # leaves first, the root comes out right by itself
            weight[up[v]] = rest[v]
            rest[above[v]] -= rest[v]
    return np.array(weight, dtype=np.float64), np.array(alpha, dtype=np.float64)


def _incidence(edges: Array, n_vertices: int) -> tuple[list[int], list[int], list[int]]:
    """Where each vertex's neighbours begin, the neighbours, and the edges that lead there."""
    ends = edges.T.ravel()
    order = np.argsort(ends, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n_vertices))])
    neighbours = edges[:, ::-1].T.ravel()[order]
    return first.tolist(), neighbours.tolist(), (order % max(len(edges), 1)).tolist()


class GraphTracker(ErrorTracker):
    """Running error by union-find with parity: per component the sizes of its sides, until an odd cycle closes.

    Near constant time per arrival.
    """

    __slots__ = ("_edges", "_error", "_flip", "_odd", "_parent", "_sides", "_uneven")

    def __init__(self, code: ApproximateCode, edges: Sequence[Sequence[int]]) -> None:
        super().__init__(code)
        k = code.k
        self._edges = edges
        self._parent = list(range(k))
        self._flip = bytearray(k)  # whether a vertex is on the other side than its parent
        self._sides = [(1, 0)] * k
        self._odd = bytearray(k)
        self._error = float(k)
        self._uneven = k

    @property
    def error(self) -> float:
        """``err(F)``: over components without odd cycle, the squared difference of their sides by their size."""
        return self._error if self._uneven else 0.0

    def _record(self, message: int) -> None:
        p, q = self._edges[message]
        (a, flip_a), (b, flip_b) = self._find(p), self._find(q)
        if a == b:
            if flip_a == flip_b and not self._odd[a]:
                self._take_out(a)
                self._odd[a] = 1
            return
        if sum(self._sides[a]) < sum(self._sides[b]):
            a, b = b, a
        self._take_out(a)
        self._take_out(b)
        left, right = self._sides[b]
        flip = 1 ^ flip_a ^ flip_b
        if flip:
            left, right = right, left
        self._parent[b], self._flip[b] = a, flip
        self._sides[a] = (self._sides[a][0] + left, self._sides[a][1] + right)
        self._odd[a] |= self._odd[b]
        self._put_in(a)

    def _find(self, vertex: int) -> tuple[int, int]:
        """Return the root of a vertex and whether it is on the other side; shortens the path."""
        path = []
        root = vertex
        while self._parent[root] != root:
            path.append(root)
            root = self._parent[root]
        flip = 0
        for v in reversed(path):
            flip ^= self._flip[v]
            self._parent[v], self._flip[v] = root, flip
        return root, flip

    def _share(self, root: int) -> float:
        left, right = self._sides[root]
        return 0.0 if self._odd[root] else (left - right) ** 2 / (left + right)

    def _take_out(self, root: int) -> None:
        share = self._share(root)
        self._error -= share
        self._uneven -= share > 0

    def _put_in(self, root: int) -> None:
        share = self._share(root)
        self._error += share
        self._uneven += share > 0
