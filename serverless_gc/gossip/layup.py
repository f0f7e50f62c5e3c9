"""LayUp: layers travel separately to random peers, with sum weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.gossip.node import Arrays, Gradient, Mail
from serverless_gc.gossip.push_sum import start_of
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.topologies import LayerPeers
from serverless_gc.types import Array

__all__ = ["LEAST_WEIGHT", "LayUp"]

LEAST_WEIGHT = 2.0**-20
"""A layer whose weight is smaller is not sent."""

_GRID = 2.0**40
"""Weights are multiples of its inverse: with up to 8192 nodes, sums and differences of them are exact."""


class LayUp:
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
    node's state is stored: a PUT takes longer than the backward pass of a layer.

    Examples
    --------
    >>> kernel = LayUp(LayerPeers(2, layers=2), lambda node, k, x: 0 * x, np.zeros(3), lr=1.0)
    >>> [(peer, (layers, weights, x))] = kernel.send(0, 1, (np.array([1.0, 2.0, 3.0]), np.ones(2)))
    >>> peer, layers, weights, x
    (1, array([0, 1]), array([0.5, 0.5]), array([1., 2., 3.]))
    """

    def __init__(self, topology: LayerPeers, gradient: Gradient, x0: Array, lr: Rate) -> None:
        self.topology = topology
        self.gradient = gradient
        self.x0 = np.asarray(x0, dtype=np.float64)
        self.lr = as_schedule(lr)
        d, layers = self.x0.shape[-1], topology.layers
        if layers > d:
            raise InputError(f"layers must be at most the number of coordinates, {d}, got {layers}")
        self._blocks = [slice(part[0], part[-1] + 1) for part in np.array_split(range(d), layers)]

    def start(self, node: int) -> Arrays:
        """``x0`` and weight one for each layer."""
        return start_of(self.x0, node), np.ones(self.topology.layers)

    def step(self, node: int, k: int, state: Arrays, mail: Sequence[Mail]) -> Arrays:
        """Merge the layers that came, one after the other, then make a gradient step."""
        x, omega = state[0].copy(), state[1].copy()
        if k > 1:
            omega -= self.sent_weights(omega)
        for message in mail:
            layers, weights, parts = message.arrays
            position = 0
            for layer, weight in zip(layers.tolist(), weights, strict=True):
                block = self._blocks[layer]
                part = parts[position : position + block.stop - block.start]
                position += len(part)
                x[block] = (omega[layer] * x[block] + weight * part) / (omega[layer] + weight)
                omega[layer] += weight
        return x - self.lr(k - 1) * self.gradient(node, k, x), omega

    def send(self, node: int, k: int, state: Arrays) -> Sequence[tuple[int, Arrays]]:
        """Layers and half of their weights, by peer; a peer may get no layer, if all weights are too small."""
        x, omega = state
        sent = self.sent_weights(omega)
        chosen = self.topology.of_layers(node, k)
        mail: list[tuple[int, Arrays]] = []
        for peer in dict.fromkeys(chosen):
            layers = [ell for ell, j in enumerate(chosen) if j == peer and sent[ell]]
            parts = np.concatenate([x[:0], *(x[self._blocks[ell]] for ell in layers)])
            mail.append((peer, (np.array(layers, dtype=np.int64), sent[layers], parts)))
        return mail

    @staticmethod
    def sent_weights(omega: Array) -> Array:
        """Return the part of each weight that is sent: half, or nothing if it is small already.

        Examples
        --------
        >>> LayUp.sent_weights(np.array([1.0, 2.0**-20, 2.0**-21])).tolist() == [0.5, 2.0**-21, 0.0]
        True
        """
        sent: Array = np.where(omega >= LEAST_WEIGHT, np.floor(omega / 2 * _GRID) / _GRID, 0.0)
        return sent
