"""Topologies drawn anew in every round. Whoever knows the seed knows the edges: sender, receiver and driver agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.topologies.base import Digraph

__all__ = ["LayerPeers", "RandomOut"]


class RandomOut(Digraph):
    """Each node sends to ``d`` others, drawn uniformly in each round.

    Parameters
    ----------
    n
        Number of nodes.
    d
        Number of others, at most ``n - 1``.
    seed
        Of the draws.

    Raises
    ------
    InputError
        If ``d`` is out of range.

    Examples
    --------
    >>> topology = RandomOut(10, 3, seed=1)
    >>> len(topology.out(0, 5)), topology.out(0, 5) == topology.out(0, 5)
    (4, True)
    """

    def __init__(self, n: int, d: int, *, seed: int = 0) -> None:
        super().__init__(n)
        self.d = check_whole("d", d, 0)
        self.seed = check_seed(seed)
        if self.d >= n:
            raise InputError(f"d must be at most the number of other nodes, {n - 1}, got {d}")

    def peers(self, i: int, k: int) -> Iterable[int]:
        """``d`` others."""
        others = np.random.default_rng((self.seed, k, i)).choice(self.n - 1, self.d, replace=False).tolist()
        return [j + (j >= i) for j in others]


class LayerPeers(Digraph):
    """Each layer of a node's model goes to one other node, drawn uniformly in each round.

    For `serverless_gc.gossip.LayUp`. A node keeps half of every layer, hence half of its mass; the weights of the
    others count their layers.

    Parameters
    ----------
    n
        Number of nodes, at least 2.
    layers
        Number of layers.
    seed
        Of the draws.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> topology = LayerPeers(2, layers=3)
    >>> topology.of_layers(0, 7), topology.out(0, 7)
    ([1, 1, 1], [(0, 0.5), (1, 0.5)])
    """

    def __init__(self, n: int, layers: int, *, seed: int = 0) -> None:
        super().__init__(check_whole("n", n, 2))
        self.layers = check_whole("layers", layers, 1)
        self.seed = check_seed(seed)

    def of_layers(self, i: int, k: int) -> list[int]:
        """Return the node to which each layer of node ``i`` goes in round ``k``."""
        others: list[int] = np.random.default_rng((self.seed, k, i)).integers(self.n - 1, size=self.layers).tolist()
        return [j + (j >= i) for j in others]

    def peers(self, i: int, k: int) -> Iterable[int]:
        """Nodes that get a layer."""
        return self.of_layers(i, k)

    def out(self, i: int, k: int) -> Sequence[tuple[int, float]]:
        """Half to itself, and to the others by the number of their layers."""
        chosen = self.of_layers(i, k)
        return [(i, 0.5), *((j, 0.5 * chosen.count(j) / self.layers) for j in dict.fromkeys(chosen))]
