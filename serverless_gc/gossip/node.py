"""What a node of a decentralized scheme does: pure functions over explicit state.

Rounds are counted from 1; the state before the first one is the start. A node takes a step from its state and its mail
to its next state, and what it sends is a function of that state alone. So whoever has the state can send the mail
again, to the last bit, without computing a gradient. The arithmetic is in `serverless_gc.worker.schemes`, for it runs
where the nodes do; what is here knows topology and schedule and tells each node what concerns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, Topology
from serverless_gc.wire.turn import Share, Turn
from serverless_gc.worker.schemes import Mail, Scheme

__all__ = ["Arrays", "Gradient", "Mail", "NodeKernel", "SchemeKernel", "own_share", "synchronous"]

Arrays: TypeAlias = tuple[Array, ...]

Gradient: TypeAlias = Callable[[int, int, Array], Array]
"""``gradient(node, k, x)``: a gradient of the node's loss at ``x``; ``k`` seeds the draw of data."""


class NodeKernel(Protocol):
    """A scheme, as its nodes see it."""

    def start(self, node: int) -> Arrays:
        """State of a node before its first round."""
        ...

    def step(self, node: int, k: int, state: Arrays, mail: Sequence[Mail]) -> Arrays:
        """State after round ``k``, from the state after round ``k - 1`` and the mail taken since."""
        ...

    def send(self, node: int, k: int, state: Arrays) -> Sequence[tuple[int, Arrays]]:
        """Say what goes to which other node after round ``k``; every destination once."""
        ...


class SchemeKernel:
    """A scheme on a topology, with a schedule of step lengths.

    Parameters
    ----------
    scheme
        What nodes do: one of `serverless_gc.worker.schemes`, or one of your own with the methods of its ``Scheme``.
    topology
        Who sends how much to whom.
    gradient
        ``gradient(node, k, x)``; None if workers compute it, `serverless_gc.minimize_decentralized`.
    x0
        Start of every node, shape (d,), or of each node, shape (n, d).
    lr
        Step length, or a function of ``k - 1``.

    Raises
    ------
    InputError
        If ``lr`` is a number that is not positive and finite.

    Examples
    --------
    >>> from serverless_gc.topologies import Ring
    >>> from serverless_gc.worker.schemes import Average
    >>> kernel = SchemeKernel(Average(), Ring(3), lambda node, k, x: x, np.ones(1), lr=0.5)
    >>> kernel.turn(0, 2)
    Turn(node=0, k=2, kept=0.333..., rates=(0.5,), out=((1, 0.333...), (2, 0.333...)), mail=(), prefix='')
    >>> kernel.step(0, 1, kernel.start(0), [])
    (array([0.5]),)
    """

    def __init__(self, scheme: Scheme, topology: Topology, gradient: Gradient | None, x0: Array, lr: Rate) -> None:
        self.scheme = scheme
        self.topology = topology
        self.gradient = gradient
        self.x0 = np.asarray(x0, dtype=np.float64)
        self.lr = as_schedule(lr)

    def start(self, node: int) -> Arrays:
        """State of a node before its first round."""
        return self.scheme.start(self.first_model(node))

    def step(self, node: int, k: int, state: Arrays, mail: Sequence[Mail]) -> Arrays:
        """State after round ``k``.

        Raises
        ------
        InputError
            If the kernel has no gradient.
        """
        if self.gradient is None:
            raise InputError("this kernel has no gradient: its rounds are for workers, see minimize_decentralized")
        return self.scheme.step(self.turn(node, k), state, mail, partial(self.gradient, node))

    def send(self, node: int, k: int, state: Arrays) -> Sequence[tuple[int, Arrays]]:
        """Say what goes to which other node after round ``k``."""
        return [(j, self.scheme.share(state, share)) for j, share in self.routes(node, k)]

    def model(self, state: Arrays) -> Array:
        """Return the node's model, shape (d,)."""
        return self.scheme.model(state)

    def first_model(self, node: int) -> Array:
        """Return the model with which a node begins: its row of ``x0``, or the one of all."""
        return self.x0[node] if self.x0.ndim == 2 else self.x0

    def turn(self, node: int, k: int) -> Turn:
        """Return what a node must be told of round ``k``, but for its mail."""
        return Turn(node, k, own_share(self.topology, node, k - 1), self.rates(k), self.routes(node, k))

    def rates(self, k: int) -> tuple[float, ...]:
        """Return the length of each gradient step in round ``k``."""
        return (float(self.lr(k - 1)),)

    def routes(self, node: int, k: int) -> tuple[tuple[int, Share], ...]:
        """Return (receiver, share) of each other node that mail goes to after round ``k``."""
        return tuple((int(j), float(weight)) for j, weight in self.topology.out(node, k) if j != node)


def own_share(topology: Topology, node: int, k: int) -> float:
    """Part of its mass that a node keeps after round ``k``: all of it at the start.

    Examples
    --------
    >>> from serverless_gc.topologies import Ring
    >>> own_share(Ring(2), 0, 0), own_share(Ring(2), 0, 1)
    (1.0, 0.5)
    """
    return 1.0 if k == 0 else float(sum(weight for j, weight in topology.out(node, k) if j == node))


def synchronous(kernel: NodeKernel, n: int, rounds: int) -> Iterator[list[Arrays]]:
    """Run ``n`` nodes round by round in memory, all mail arriving in the next round.

    Yields
    ------
    list of states
        After each round, one state per node.

    Raises
    ------
    InputError
        If ``n`` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.gossip import PushSum
    >>> from serverless_gc.topologies import Complete
    >>> kernel = PushSum(Complete(2), lambda node, k, x: x - node, np.zeros(1), lr=0.5)
    >>> [[float(x[0]) for x, w in states] for states in synchronous(kernel, 2, 2)]
    [[0.0, 0.5], [0.125, 0.625]]
    """
    if n < 1:
        raise InputError(f"n must be at least 1, got {n}")
    states = [kernel.start(i) for i in range(n)]
    inboxes: list[list[Mail]] = [[] for _ in range(n)]
    for k in range(1, rounds + 1):
        states = [kernel.step(i, k, states[i], inboxes[i]) for i in range(n)]
        inboxes = [[] for _ in range(n)]
        for i in range(n):
            for j, arrays in kernel.send(i, k, states[i]):
                inboxes[j].append(Mail(i, k, arrays))
        yield states
