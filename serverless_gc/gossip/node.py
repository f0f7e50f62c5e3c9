"""What a node of a decentralized scheme does: pure functions over explicit state.

Rounds are counted from 1; the state before the first one is the start. A node takes a step from its state and its mail
to its next state, and what it sends is a function of that state alone. So whoever has the state can send the mail
again, to the last bit, without computing a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from serverless_gc.errors import InputError
from serverless_gc.types import Array, Topology

__all__ = ["Arrays", "Gradient", "Mail", "NodeKernel", "own_share", "synchronous"]

Arrays: TypeAlias = tuple[Array, ...]

Gradient: TypeAlias = Callable[[int, int, Array], Array]
"""``gradient(node, k, x)``: a gradient of the node's loss at ``x``; ``k`` seeds the draw of data."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What node ``src`` sent in its round ``round``."""

    src: int
    round: int
    arrays: Arrays


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


def own_share(topology: Topology, node: int, k: int) -> float:
    """Part of its mass that a node keeps after round ``k``: all of it at the start.

    Examples
    --------
    >>> from serverless_gc.topologies import Ring
    >>> own_share(Ring(2), 0, 0), own_share(Ring(2), 0, 1)
    (1.0, 0.5)
    """
    return 1.0 if k == 0 else sum(weight for j, weight in topology.out(node, k) if j == node)


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
