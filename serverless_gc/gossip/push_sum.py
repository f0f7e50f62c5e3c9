"""Stochastic Gradient Push, and the averaging that it corrects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serverless_gc.gossip.node import Arrays, Gradient, Mail, own_share
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, FloatArray, Topology

__all__ = ["PushSum", "RowAverage", "average_with_latest"]


class PushSum:
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
    >>> from serverless_gc.gossip import synchronous
    >>> from serverless_gc.topologies import FromAdjacency
    >>> lopsided = FromAdjacency([[0, 1], [0, 0]])  # node 1 keeps all it gets
    >>> kernel = PushSum(lopsided, lambda node, k, z: 0 * z, np.array([[1.0], [4.0]]), lr=1.0)
    >>> *_, last = synchronous(kernel, 2, 3)
    >>> [(float(kernel.model(state)[0]), float(state[1][0])) for state in last]
    [(1.0, 0.25), (2.714..., 1.75)]
    """

    def __init__(self, topology: Topology, gradient: Gradient, x0: Array, lr: Rate, *, debias: bool = True) -> None:
        self.topology = topology
        self.gradient = gradient
        self.x0 = np.asarray(x0, dtype=np.float64)
        self.lr = as_schedule(lr)
        self.debias = debias

    def start(self, node: int) -> Arrays:
        """``x0`` and weight one."""
        return start_of(self.x0, node), np.ones(1)

    def step(self, node: int, k: int, state: Arrays, mail: Sequence[Mail]) -> Arrays:
        """Add up the shares, take the gradient at the de-biased sum, make a step."""
        keep = own_share(self.topology, node, k - 1)
        shares = [Mail(node, k - 1, (keep * state[0], keep * state[1])), *mail]
        shares.sort(key=lambda share: (share.round, share.src))  # one order of summation for all nodes
        x = sum((share.arrays[0] for share in shares[1:]), start=shares[0].arrays[0])
        w = sum((share.arrays[1] for share in shares[1:]), start=shares[0].arrays[1])
        return x - self.lr(k - 1) * self.gradient(node, k, self.model((x, w))), w

    def send(self, node: int, k: int, state: Arrays) -> Sequence[tuple[int, Arrays]]:
        """Shares of ``x`` and ``w`` for the out-neighbours."""
        x, w = state
        return [(j, (weight * x, weight * w)) for j, weight in self.topology.out(node, k) if j != node]

    def model(self, state: Arrays) -> Array:
        """Where the node takes its gradients: ``x / w``, or ``x`` without de-biasing."""
        x, w = state
        z: Array = x / w if self.debias else x
        return z


class RowAverage:
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
    >>> from serverless_gc.topologies import Ring
    >>> kernel = RowAverage(Ring(2), lambda node, k, x: 0 * x, np.zeros(1), lr=1.0)
    >>> kernel.step(0, 2, (np.array([1.0]),), [Mail(1, 1, (np.array([3.0]),))])
    (array([2.]),)
    """

    def __init__(self, topology: Topology, gradient: Gradient, x0: Array, lr: Rate) -> None:
        self.topology = topology
        self.gradient = gradient
        self.x0 = np.asarray(x0, dtype=np.float64)
        self.lr = as_schedule(lr)

    def start(self, node: int) -> Arrays:
        """``x0``."""
        return (start_of(self.x0, node),)

    def step(self, node: int, k: int, state: Arrays, mail: Sequence[Mail]) -> Arrays:
        """Average, then make a gradient step."""
        x = average_with_latest(node, state[0], mail)
        return (x - self.lr(k - 1) * self.gradient(node, k, x),)

    def send(self, node: int, k: int, state: Arrays) -> Sequence[tuple[int, Arrays]]:
        """Send the model to all out-neighbours."""
        return [(j, state) for j, _ in self.topology.out(node, k) if j != node]


def start_of(x0: FloatArray, node: int) -> FloatArray:
    """Return the start of a node: its row, or the one start of all."""
    return x0[node] if x0.ndim == 2 else x0


def average_with_latest(node: int, x: Array, mail: Sequence[Mail]) -> Array:
    """Mean of a node's model and the newest model of each sender, in the order of the nodes.

    Examples
    --------
    >>> average_with_latest(0, np.array([1.0]), [Mail(1, 4, (np.array([9.0]),)), Mail(1, 5, (np.array([3.0]),))])
    array([2.])
    """
    models = {message.src: message.arrays[0] for message in sorted(mail, key=lambda m: m.round)} | {node: x}
    mean: Array = np.mean([models[j] for j in sorted(models)], axis=0)
    return mean
