"""What every topology is: the weights that leave a node, which sum to one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.types import FloatArray

__all__ = ["Digraph"]


class Digraph(ABC):
    """A directed graph on ``n`` nodes whose edges may change from round to round.

    A node shares uniformly among itself and the nodes it sends to, so every matrix is column-stochastic by
    construction.

    Parameters
    ----------
    n
        Number of nodes.

    Raises
    ------
    InputError
        If ``n`` is not a positive integer.
    """

    def __init__(self, n: int) -> None:
        self.n = check_whole("n", n, 1)

    @abstractmethod
    def peers(self, i: int, k: int) -> Iterable[int]:
        """Nodes that node ``i`` sends to in round ``k``; ``i`` itself and repeats do not count."""

    def out(self, i: int, k: int) -> Sequence[tuple[int, float]]:
        """Where the mass of node ``i`` goes in round ``k``: (node, weight), itself first; the weights sum to one."""
        targets = dict.fromkeys((i, *self.peers(i, k)))
        weight = 1.0 / len(targets)
        return [(j, weight) for j in targets]

    def groups(self) -> Sequence[Sequence[int]]:
        """Nodes that share one model; here each has its own."""
        return [[i] for i in range(self.n)]

    def matrix(self, k: int) -> FloatArray:
        """Mixing matrix of round ``k``, shape (n, n): ``A[j, i]`` is the share of ``i`` that ``j`` gets."""
        A = np.zeros((self.n, self.n))
        for i in range(self.n):
            for j, weight in self.out(i, k):
                A[j, i] += weight
        return A
