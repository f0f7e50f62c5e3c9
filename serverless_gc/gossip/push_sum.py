"""Stochastic Gradient Push, and the averaging that it corrects."""

from __future__ import annotations

from serverless_gc.gossip.node import Gradient, SchemeKernel
from serverless_gc.optim.schedules import Rate
from serverless_gc.types import Array, Topology
from serverless_gc.worker import schemes

__all__ = ["PushSum", "RowAverage"]


class PushSum(SchemeKernel):
    """Stochastic Gradient Push: column-stochastic shares of ``x`` and of a weight ``w`` travel together.

    The state is ``(x, w)`` after the gradient step and before sharing. Gradients are taken at ``x / w``, which undoes
    the bias of an unbalanced graph. Mail may come late: what is in flight is part of the sums that stay constant.

    Parameters
    ----------
    topology
        Who sends how much to whom.
    gradient
        ``gradient(node, k, z)``.
    x0
        Start of every node, shape (d,), or of each node, shape (n, d).
    lr
        Step length, or a function of ``k - 1``.
    debias
        Whether gradients are taken at ``x / w``; at ``x`` otherwise. Without, and on a doubly stochastic topology, this
        is D-PSGD (Lian and others, "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017).

    Raises
    ------
    InputError
        If ``lr`` is a number that is not positive and finite.

    Notes
    -----
    Assran, Loizou, Ballas and Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.gossip import synchronous
    >>> from serverless_gc.topologies import FromAdjacency
    >>> lopsided = FromAdjacency([[0, 1], [0, 0]])  # node 1 keeps all it gets
    >>> kernel = PushSum(lopsided, lambda node, k, z: 0 * z, np.array([[1.0], [4.0]]), lr=1.0)
    >>> *_, last = synchronous(kernel, 2, 3)
    >>> [(float(kernel.model(state)[0]), float(state[1][0])) for state in last]
    [(1.0, 0.25), (2.714..., 1.75)]
    """

    def __init__(
        self, topology: Topology, gradient: Gradient | None, x0: Array, lr: Rate, *, debias: bool = True
    ) -> None:
        super().__init__(schemes.Push(debias=debias), topology, gradient, x0, lr)


class RowAverage(SchemeKernel):
    """The baseline with a bias: a node takes the plain mean of its model and of the newest ones it got.

    The rows of this mixing matrix sum to one, its columns do not: well-connected nodes count more, so an unbalanced
    graph agrees on a wrong value.

    Parameters
    ----------
    topology, gradient, x0, lr
        As for `PushSum`; the topology's weights do not matter.

    Raises
    ------
    InputError
        If ``lr`` is a number that is not positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.gossip import Mail
    >>> from serverless_gc.topologies import Ring
    >>> kernel = RowAverage(Ring(2), lambda node, k, x: 0 * x, np.zeros(1), lr=1.0)
    >>> kernel.step(0, 2, (np.array([1.0]),), [Mail(1, 1, (np.array([3.0]),))])
    (array([2.]),)
    """

    def __init__(self, topology: Topology, gradient: Gradient | None, x0: Array, lr: Rate) -> None:
        super().__init__(schemes.Average(), topology, gradient, x0, lr)
