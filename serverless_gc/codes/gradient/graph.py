"""Graph scheme: workers are the edges of a regular graph, partitions its vertices, and decoding is optimal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_message
from serverless_gc.codes.gradient.approximate import ApproximateCode
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.codes.gradient.graph_decode import GraphTracker, edge_weights
from serverless_gc.codes.gradient.graph_sizes import given_edges, graph_sizes, simple_graph
from serverless_gc.codes.gradient.regular_graphs import adjacency, edge_list, spread_regular
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["GraphCode"]


class GraphCode(ApproximateCode):
    """Worker ``e`` sends the sum of the partitions at the two ends of edge ``e`` of a ``load``-regular graph.

    Good against random and adversarial stragglers at once, and the best weights take time linear in the arrivals.

    Parameters
    ----------
    n_workers, k
        Number of edges and of vertices, ``n_workers = k * load / 2``. What is left out follows from the others; 15
        workers if all is.
    load
        Degree of the graph, at least 2: the number of workers that hold a partition. If None the first of 3, 4, 5, 6, 2
        for which there is a graph, unless ``k`` says it.
    graph
        ``"random"``, ``"petersen"``, ``"complete"``, ``"cycle"``, ``"paley"``, an adjacency matrix, or edges as an
        array of shape ``(n_workers, 2)``. Simple: no loops, no double edges.
    seed
        Seed of the random draws.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If no such graph exists, or it is not simple and regular of degree 2 or more.

    Notes
    -----
    The fast weights use a spanning tree, so they grow with the size of components: rounding is amplified 53 times at
    1,500 workers of degree 3, a tenth missing, where the minimum norm of ``method="lstsq"`` would amplify it 23 times.

    References
    ----------
    M. Glasgow, M. Wootters, Approximate Gradient Coding with Optimal Decoding, 2020, arXiv:2006.09638. Their machines
    are our workers, their blocks our partitions.

    Examples
    --------
    >>> code = GraphCode(15, graph="petersen")
    >>> code.k, code.load, round(code.worst_error(3), 4)
    (10, 3, 1.6667)
    >>> code.weights(range(2, 15)).error
    0.0
    """

    name = "graph"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        load: int | None = None,
        graph: str | ArrayLike = "random",
        seed: int = 0,
        wait: int | None = None,
    ) -> None:
        self.seed = check_whole("seed", seed, 0)
        if isinstance(graph, str):
            n, k, self.load = graph_sizes(n_workers, k, load, graph)
            edges = spread_regular(k, self.load, self.seed) if graph == "random" else edge_list(simple_graph(graph, k))
        else:
            edges, k = given_edges(graph)
            n, self.load = len(edges), int(np.count_nonzero(edges == 0))
            for label, value, actual in (("n_workers", n_workers, n), ("load", load, self.load)):
                if value is not None and value != actual:
                    raise InputError(f"{label} must be that of the graph, {actual}, got {value}: leave it out")
        super().__init__(n, k, wait=wait)
        self._graph = graph if isinstance(graph, str) else None
        self._edges = edges
        self._pairs = edges.tolist()

    @property
    def edges(self) -> Array:
        """The two partitions of each worker, shape ``(n_workers, 2)``."""
        return self._edges.copy()

    @cached_property
    def second_eigenvalue(self) -> float:
        """Second largest eigenvalue of the adjacency matrix (not in absolute value)."""
        with single_blas_thread():
            return float(np.linalg.eigvalsh(adjacency(self._edges, self.k))[-2])

    def worst_error(self, stragglers: int) -> float:
        """Bound of ``err(F)``: ``k (d + lambda_2) / (2 d) * p / (1 - p)``, ``p`` the share of stragglers."""
        self._check_count("stragglers", stragglers)
        if stragglers == self.n_workers:
            return float(self.k)
        half = (self.load + self.second_eigenvalue) / (2 * self.load)
        return min(float(self.k), self.k * half * stragglers / (self.n_workers - stragglers))

    def least_independent_error(self, p: float) -> float:
        """Error that no unbiased decoder beats when each worker is missing with probability ``p``: see the paper."""
        if not 0 <= p < 1:
            raise InputError(f"p must be in [0, 1), got {p}")
        return self.k * p**self.load / (1 - p**self.load)

    def tracker(self) -> GraphTracker:
        """Make a fresh tracker."""
        return GraphTracker(self, self._pairs)

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the two partitions that a message sums; see `GradientCode.row`."""
        check_message(message, self.n_messages)
        return tuple(self._pairs[message]), np.ones(2)

    def _build_generator(self) -> FloatArray:
        g = np.zeros((self.n_workers, self.k))
        np.put_along_axis(g, self._edges, 1.0, axis=1)
        return g

    # Nothing below touches the dense generator: graphs may have a hundred thousand edges.

    def _solve(self, arrived: Array) -> Weights:
        a, _ = edge_weights(self._edges[arrived], self.k)
        return self._weighted(arrived, a, "optimal")

    def _common_weight(self, n_arrived: int) -> float:
        return self.n_workers / (n_arrived * self.load) if n_arrived else 0.0

    def _weighted(self, arrived: Array, weights: Array, method: str) -> Weights:
        ends = self._edges[arrived]
        a = np.zeros(self.n_workers)
        a[arrived] = weights
        alpha = np.bincount(ends.ravel(), np.repeat(weights, 2), minlength=self.k)
        for array in (a, alpha):
            array.setflags(write=False)
        growth = float(np.abs(weights).sum()) * math.sqrt(2 / self.k)
        return Weights(a, alpha, float(((alpha - 1) ** 2).sum()), growth, method)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        if self._graph is None:
            return {"graph": self._pairs, **super().params()}
        seed = {"seed": self.seed} if self._graph == "random" else {}
        return {"load": self.load, "graph": self._graph, **seed, **super().params()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the edges included."""
        params = {key: value for key, value in self.params().items() if key != "graph"}
        edges = self._edges.astype(np.uint32)
        return {**super().manifest(), "params": params, "graph": self._graph, "edges": edges}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> GraphCode:
        """Rebuild the code from its manifest alone: the stored edges count, nothing is drawn again."""
        code = cls(graph=manifest["edges"].astype(np.int64), **manifest["params"])
        code._graph = manifest["graph"]
        return code

    def __repr__(self) -> str:
        shown = self._graph or ...
        return f"GraphCode(n_workers={self.n_workers}, k={self.k}, load={self.load}, graph={shown!r})"
