"""How fast a topology mixes."""

from __future__ import annotations

import numpy as np

from serverless_gc.topologies.base import Digraph

__all__ = ["distance_to_average", "is_doubly_stochastic", "second_singular_value"]


def second_singular_value(topology: Digraph, k: int = 0) -> float:
    """Second largest singular value of the mixing matrix of round ``k``: the smaller, the faster it averages.

    For a doubly stochastic matrix it is the factor by which one round shrinks the deviation from the mean, at least.

    Examples
    --------
    >>> from serverless_gc.topologies import Ring, StaticExponential
    >>> round(second_singular_value(StaticExponential(8)), 9), round(second_singular_value(Ring(6)), 9)
    (0.5, 0.666666667)
    """
    values = np.linalg.svd(topology.matrix(k), compute_uv=False)
    return float(values[1]) if len(values) > 1 else 0.0


def distance_to_average(topology: Digraph, rounds: int) -> float:
    """Largest absolute entry of ``A(rounds - 1) ... A(0) - 1/n``: zero if the rounds average exactly.

    Examples
    --------
    >>> from serverless_gc.topologies import OnePeerExponential
    >>> distance_to_average(OnePeerExponential(16), 4), round(distance_to_average(OnePeerExponential(6), 3), 3)
    (0.0, 0.083)
    """
    product = np.eye(topology.n)
    for k in range(rounds):
        product = topology.matrix(k) @ product
    return float(np.max(np.abs(product - 1.0 / topology.n)))


def is_doubly_stochastic(topology: Digraph, k: int = 0) -> bool:
    """Whether the weights that reach a node sum to one as well; then push-sum needs no de-biasing.

    Examples
    --------
    >>> from serverless_gc.topologies import FromAdjacency, Ring
    >>> is_doubly_stochastic(Ring(5)), is_doubly_stochastic(FromAdjacency([[0, 1], [0, 0]]))
    (True, False)
    """
    return bool(np.allclose(topology.matrix(k).sum(axis=1), 1.0, rtol=0, atol=1e-12))
