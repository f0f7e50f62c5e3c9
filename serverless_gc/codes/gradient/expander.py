"""Expander code: the normalized adjacency matrix of a graph with a large spectral gap, for adversarial stragglers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import ApproximateCode, same_size
from serverless_gc.codes.gradient.drawn import pack_counts, unpack_counts
from serverless_gc.codes.gradient.regular_graphs import adjacency, named_graph, second_eigenvalue, spread_regular
from serverless_gc.codes.gradient.spectral import certified_error
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["ExpanderCode"]


class ExpanderCode(ApproximateCode):
    """Worker ``i`` averages the partitions of its neighbours in a ``load``-regular graph.

    The mean error is that of any code with this load; expansion limits the worst.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions, equal: the vertices of the graph.
    load
        Degree of the graph. For random graphs 3, or 4 where the number of vertices is odd, if None; otherwise the
        graph says it.
    graph
        ``"random"`` (the best of several draws), ``"paley"``, ``"margulis"`` (Gabber and Galil's), ``"petersen"``,
        ``"complete"``, ``"cycle"``, or a symmetric matrix of counts with equal row sums.
    seed
        Seed of the random draws.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If there is no such graph, ``load`` is not its degree, or it is disconnected or bipartite: then the bound on
        the error is empty.

    References
    ----------
    N. Raviv, I. Tamo, R. Tandon, A. G. Dimakis, Gradient Coding from Cyclic MDS Codes and Expander Graphs, 2017,
    arXiv:1707.03858. Their errors are not squared, ours are.

    Examples
    --------
    >>> code = ExpanderCode(10, 10, graph="petersen")
    >>> round(code.second_eigenvalue, 6), round(code.worst_error(2), 6)
    (2.0, 1.111111)
    >>> code.weights(range(8), "one-step").a.round(4).tolist()
    [1.25, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25, 0.0, 0.0]
    """

    name = "expander"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        load: int | None = None,
        graph: str | ArrayLike = "random",
        seed: int = 0,
        wait: int | None = None,
    ) -> None:
        super().__init__(n_workers, k, wait=wait)
        same_size(self.name, self.n_workers, self.k)
        self.seed = check_whole("seed", seed, 0)
        self._graph = graph if isinstance(graph, str) else np.asarray(graph).tolist()
        n = self.n_workers
        if n < 3:
            raise InputError(f"n_workers must be at least 3 for a connected graph that is not bipartite, got {n}")
        if isinstance(graph, str) and graph == "random":
            self.load = min(3 + n % 2, n - 1) if load is None else check_whole("load", load, 1, n - 1)
            self._adjacency = adjacency(spread_regular(n, self.load, self.seed), n)
        else:
            self._adjacency = named_graph(graph, n)
            self.load = int(self._adjacency[0].sum())
            if load is not None and load != self.load:
                raise InputError(f"load must be the degree of the graph, {self.load}, got {load}: leave it out")
        if self.second_eigenvalue > self.load * (1 - 1e-9):
            raise InputError(
                f"graph must be connected and not bipartite, its second eigenvalue equals its degree {self.load}: "
                f"take a larger load, or another graph or seed"
            )

    @cached_property
    def second_eigenvalue(self) -> float:
        """``max(|lambda_2|, |lambda_n|)`` of the graph."""
        return second_eigenvalue(self._adjacency)

    @property
    def adjacency(self) -> FloatArray:
        """Adjacency matrix, with multiplicities, shape ``(n_workers, n_workers)``."""
        return self._adjacency.copy()

    def worst_error(self, stragglers: int) -> float:
        """Bound of ``err(F)`` over all sets of so many stragglers: ``(lambda / d)**2 n s / (n - s)``."""
        self._check_count("stragglers", stragglers)
        if stragglers == self.n_workers:
            return float(self.k)
        return min(float(self.k), certified_error(self.second_eigenvalue / self.load, self.n_workers, stragglers))

    def _build_generator(self) -> FloatArray:
        return self._adjacency / self.load

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        seed = {"seed": self.seed} if self._graph == "random" else {}
        return {"load": self.load, "graph": self._graph, **seed, **super().params()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the graph itself included."""
        params = {key: value for key, value in self.params().items() if key != "graph"}
        graph = self._graph if isinstance(self._graph, str) else None
        return {**super().manifest(), "params": params, "graph": graph, "matrix": pack_counts(self._adjacency)}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ExpanderCode:
        """Rebuild the code from its manifest alone: the stored graph counts, nothing is drawn again."""
        n = manifest["n_workers"]
        code = cls(n, n, graph=unpack_counts(manifest["matrix"], (n, n)), **manifest["params"])
        code._graph = manifest["graph"] or code._graph
        return code

    def __repr__(self) -> str:
        shown = self._graph if isinstance(self._graph, str) else ...
        return f"ExpanderCode(n_workers={self.n_workers}, k={self.k}, load={self.load}, graph={shown!r})"
