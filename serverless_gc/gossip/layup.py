"""LayUp: layers travel separately to random peers, with sum weights."""

from __future__ import annotations

from serverless_gc.errors import InputError
from serverless_gc.gossip.node import Gradient, SchemeKernel
from serverless_gc.optim.schedules import Rate
from serverless_gc.topologies import LayerPeers
from serverless_gc.types import Array
from serverless_gc.wire.turn import Share
from serverless_gc.worker import schemes
from serverless_gc.worker.schemes import LEAST_WEIGHT

__all__ = ["LEAST_WEIGHT", "LayUp"]


class LayUp(SchemeKernel):
    """Each layer, a block of coordinates, goes with half of its weight to a random peer, which merges it by weight.

    The state is ``(x, omega)`` after the gradient step, ``omega`` with one weight for each layer, before sending. Per
    layer the weights of all nodes and of the mail in flight always sum to ``n``, exactly: half a weight is rounded to a
    grid, and the node keeps the exact rest. With one layer this is GoSGD.

    Parameters
    ----------
    topology
        Which layer goes where; it also says how many layers there are.
    gradient
        ``gradient(node, k, x)``.
    x0
        Start of every node, shape (d,), or of each node, shape (n, d).
    lr
        Step length, or a function of ``k - 1``.

    Raises
    ------
    InputError
        If there are more layers than coordinates, or ``lr`` is a number that is not positive and finite.

    Notes
    -----
    Fokam, Nazeer, König, Kappel and Subramoney, "LayUp: Asynchronous decentralized gradient descent with LAYer-wise
    UPdates". The weights are our reconstruction. A node's layers for the same peer travel in one object, once the
    node's state is stored: a PUT takes longer than the backward pass of a layer. A peer whose layers all have too small
    a weight gets mail without layers.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LayUp(LayerPeers(2, layers=2), lambda node, k, x: 0 * x, np.zeros(3), lr=1.0)
    >>> [(peer, (layers, weights, x))] = kernel.send(0, 1, (np.array([1.0, 2.0, 3.0]), np.ones(2)))
    >>> peer, layers, weights, x
    (1, array([0, 1]), array([0.5, 0.5]), array([1., 2., 3.]))
    """

    def __init__(self, topology: LayerPeers, gradient: Gradient | None, x0: Array, lr: Rate) -> None:
        self.layers = schemes.Layers(topology.layers)
        super().__init__(self.layers, topology, gradient, x0, lr)
        self._peers = topology
        d = self.x0.shape[-1]
        if topology.layers > d:
            raise InputError(f"layers must be at most the number of coordinates, {d}, got {topology.layers}")

    def routes(self, node: int, k: int) -> tuple[tuple[int, Share], ...]:
        """Return (receiver, its layers) of each other node that mail goes to after round ``k``."""
        chosen = self._peers.of_layers(node, k)
        return tuple((peer, tuple(ell for ell, j in enumerate(chosen) if j == peer)) for peer in dict.fromkeys(chosen))

    def sent_weights(self, omega: Array) -> Array:
        """Return the part of each weight that is sent: half, or nothing if it is small already."""
        return self.layers.sent_weights(omega)
