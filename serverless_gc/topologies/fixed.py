"""Topologies that are known beforehand."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.topologies.base import Digraph

__all__ = [
    "Complete",
    "DirectedRing",
    "FromAdjacency",
    "Groups",
    "OnePeerExponential",
    "Ring",
    "StaticExponential",
]


@functools.cache
def _hops(n: int) -> tuple[int, ...]:
    """Powers of two below ``n``: ``floor(log2(n - 1)) + 1`` of them."""
    return tuple(2**power for power in range((n - 1).bit_length()))


class OnePeerExponential(Digraph):
    """Each node sends half of its mass ``2**(k mod L)`` nodes ahead.

    With ``n`` a power of two, ``log2(n)`` rounds average exactly (Assran, Loizou, Ballas and Rabbat, "Stochastic
    Gradient Push for Distributed Deep Learning", ICML 2019).

    Examples
    --------
    >>> [OnePeerExponential(8).out(0, k) for k in range(3)]
    [[(0, 0.5), (1, 0.5)], [(0, 0.5), (2, 0.5)], [(0, 0.5), (4, 0.5)]]
    """

    def peers(self, i: int, k: int) -> Iterable[int]:
        """One node, another one each round."""
        hops = _hops(self.n)
        return [(i + hops[k % len(hops)]) % self.n] if hops else []


class StaticExponential(Digraph):
    """Each node sends to the nodes 1, 2, 4, ... ahead, in every round.

    Examples
    --------
    >>> [j for j, weight in StaticExponential(8).out(6, 0)]
    [6, 7, 0, 2]
    """

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002 - the same in every round
        """Nodes at all powers of two."""
        return [(i + hop) % self.n for hop in _hops(self.n)]


class Ring(Digraph):
    """Each node sends to both neighbours.

    Examples
    --------
    >>> [j for j, weight in Ring(5).out(0, 0)]
    [0, 1, 4]
    """

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002
        """Successor and predecessor."""
        return [(i + 1) % self.n, (i - 1) % self.n]


class DirectedRing(Digraph):
    """Each node sends to its successor.

    Examples
    --------
    >>> DirectedRing(3).out(2, 0)
    [(2, 0.5), (0, 0.5)]
    """

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002
        """Only the successor."""
        return [(i + 1) % self.n]


class Complete(Digraph):
    """Each node sends to all: one round is an exact all-reduce.

    Examples
    --------
    >>> Complete(4).matrix(0).tolist() == [[0.25] * 4] * 4
    True
    """

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002
        """All nodes."""
        return range(self.n)


class FromAdjacency(Digraph):
    """A given graph.

    Parameters
    ----------
    adjacency
        Shape (n, n): node ``i`` sends to ``j`` where ``adjacency[i, j]`` is true. The diagonal does not matter.

    Raises
    ------
    InputError
        If it is not a square matrix.

    Examples
    --------
    >>> FromAdjacency([[0, 1], [0, 0]]).matrix(0)
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """

    def __init__(self, adjacency: ArrayLike) -> None:
        edges = np.asarray(adjacency, dtype=bool)
        if edges.ndim != 2 or edges.shape[0] != edges.shape[1]:
            raise InputError(f"adjacency must be a square matrix, got shape {edges.shape}")
        super().__init__(len(edges))
        self._peers = [np.flatnonzero(row).tolist() for row in edges]

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002
        """Nodes with an edge from ``i``."""
        return self._peers[i]


class Groups(Digraph):
    """Consecutive nodes in groups of ``size``; a group averages exactly and sends nothing outside.

    Parameters
    ----------
    n, size
        Number of nodes, and how many of them form a group.

    Raises
    ------
    InputError
        If ``size`` does not divide ``n``.

    Examples
    --------
    >>> Groups(6, 3).groups()
    [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, n: int, size: int) -> None:
        super().__init__(n)
        self.size = check_whole("size", size, 1)
        if n % self.size:
            raise InputError(f"size must divide the number of nodes, {n}, got {size}")

    def peers(self, i: int, k: int) -> Iterable[int]:  # noqa: ARG002
        """All of the node's group."""
        return self.groups()[i // self.size]

    def groups(self) -> Sequence[Sequence[int]]:
        """Consecutive nodes."""
        return [list(range(first, first + self.size)) for first in range(0, self.n, self.size)]
