"""Decentralized schemes as their nodes see them: arithmetic on a node's state and its mail.

A node is told what concerns it, a `serverless_gc.wire.Turn`; topology and schedule stay with the driver. What it sends
is a function of its state alone, so that lost mail can be made again without computing a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Turn
from serverless_gc.wire.turn import Share

__all__ = [
    "LEAST_WEIGHT",
    "SCHEMES",
    "Average",
    "Layers",
    "LocalSteps",
    "Mail",
    "Push",
    "Scheme",
    "average_with_latest",
    "described",
    "get",
]

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]

LEAST_WEIGHT = 2.0**-20
"""A layer whose weight is smaller is not sent."""

_GRID = 2.0**40
"""Weights are multiples of its inverse: with up to 8192 nodes, sums and differences of them are exact."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What node ``src`` sent in its round ``round``."""

    src: int
    round: int
    arrays: Arrays


@runtime_checkable
class Scheme(Protocol):
    """What the nodes of a scheme do. Pure: equal arguments give equal bits."""

    def start(self, x: Array) -> Arrays:
        """State of a node before its first round, from its model, shape (d,)."""
        ...

    def step(self, turn: Turn, state: Arrays, mail: Sequence[Mail], gradient: Callable[[int, Array], Array]) -> Arrays:
        """State after a round, from the one before it and the mail taken since; ``gradient(t, x)`` draws data by t."""
        ...

    def share(self, state: Arrays, share: Share) -> Arrays:
        """Say what of a state goes to a node that gets this share."""
        ...

    def model(self, state: Arrays) -> Array:
        """Say what the node's model is, shape (d,)."""
        ...


@dataclass(frozen=True, slots=True)
class Push:
    """Shares of ``x`` and of a weight ``w`` travel together; the state is ``(x, w)`` before sharing."""

    debias: bool = True

    def start(self, x: Array) -> Arrays:
        """``x`` and weight one."""
        return x, np.ones(1)

    def step(self, turn: Turn, state: Arrays, mail: Sequence[Mail], gradient: Callable[[int, Array], Array]) -> Arrays:
        """Add up the shares, take the gradient at the de-biased sum, make a step."""
        shares = [Mail(turn.node, turn.k - 1, self.share(state, turn.kept)), *mail]
        shares.sort(key=lambda share: (share.round, share.src))  # one order of summation for all nodes
        x = sum((share.arrays[0] for share in shares[1:]), start=shares[0].arrays[0])
        w = sum((share.arrays[1] for share in shares[1:]), start=shares[0].arrays[1])
        for rate in turn.rates:
            x = x - rate * gradient(turn.k, self.model((x, w)))
        return x, w

    def share(self, state: Arrays, share: Share) -> Arrays:
        """Both parts of the state, times a weight."""
        if not isinstance(share, float):
            raise TypeError(f"a share of mass is a number, got {share!r}")
        return tuple(share * part for part in state)

    def model(self, state: Arrays) -> Array:
        """Where the node takes its gradients: ``x / w``, or ``x`` without de-biasing."""
        x, w = state
        z: Array = x / w if self.debias else x
        return z


@dataclass(frozen=True, slots=True)
class Average:
    """The plain mean of a node's model and of the newest ones it got; the state is the model."""

    def start(self, x: Array) -> Arrays:
        """``x``."""
        return (x,)

    def step(self, turn: Turn, state: Arrays, mail: Sequence[Mail], gradient: Callable[[int, Array], Array]) -> Arrays:
        """Average, then make a gradient step."""
        x = average_with_latest(turn.node, state[0], mail)
        for rate in turn.rates:
            x = x - rate * gradient(turn.k, x)
        return (x,)

    def share(self, state: Arrays, share: Share) -> Arrays:  # noqa: ARG002 - all of it, whatever the share
        """Give the model."""
        return state[:1]

    def model(self, state: Arrays) -> Array:
        """Give the model."""
        return state[0]


class LocalSteps(Average):
    """Steps alone for a round, then an average; the state is the model and the number of samples seen."""

    __slots__ = ()

    def start(self, x: Array) -> Arrays:
        """``x`` and no samples."""
        return x, np.zeros(1, dtype=np.int64)

    def step(self, turn: Turn, state: Arrays, mail: Sequence[Mail], gradient: Callable[[int, Array], Array]) -> Arrays:
        """Average, then run the samples of the round."""
        x, t = average_with_latest(turn.node, state[0], mail), int(state[1][0])
        for rate in turn.rates:
            x = x - rate * gradient(t, x)
            t += 1
        return x, np.array([t], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Layers:
    """Blocks of coordinates travel separately; the state is ``(x, omega)``, a weight for each layer, before sending."""

    layers: int

    def start(self, x: Array) -> Arrays:
        """``x`` and weight one for each layer."""
        return x, np.ones(self.layers)

    def blocks(self, d: int) -> list[slice]:
        """Coordinates of each layer, sizes differing by one at most."""
        size, more = divmod(d, self.layers)
        ends = [(ell + 1) * size + min(ell + 1, more) for ell in range(self.layers)]
        return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]

    def step(self, turn: Turn, state: Arrays, mail: Sequence[Mail], gradient: Callable[[int, Array], Array]) -> Arrays:
        """Merge the layers that came, one after the other, then make a gradient step."""
        x, omega = state[0].copy(), state[1].copy()
        blocks = self.blocks(len(x))
        if turn.k > 1:
            omega -= self.sent_weights(omega)
        for message in mail:
            layers, weights, parts = message.arrays
            position = 0
            for layer, weight in zip(layers.tolist(), weights, strict=True):
                block = blocks[layer]
                part = parts[position : position + block.stop - block.start]
                position += len(part)
                x[block] = (omega[layer] * x[block] + weight * part) / (omega[layer] + weight)
                omega[layer] += weight
        for rate in turn.rates:
            x = x - rate * gradient(turn.k, x)
        return x, omega

    def share(self, state: Arrays, share: Share) -> Arrays:
        """Layers with half of their weights each; none if all weights are too small."""
        x, omega = state
        sent, blocks = self.sent_weights(omega), self.blocks(len(x))
        layers = [ell for ell in _layers(share) if sent[ell]]
        parts = np.concatenate([x[:0], *(x[blocks[ell]] for ell in layers)])
        return np.array(layers, dtype=np.int64), sent[layers], parts

    def model(self, state: Arrays) -> Array:
        """Give the first part of the state."""
        return state[0]

    @staticmethod
    def sent_weights(omega: Array) -> Array:
        """Return the part of each weight that is sent: half, or nothing if it is small already.

        Examples
        --------
        >>> Layers.sent_weights(np.array([1.0, 2.0**-20, 2.0**-21])).tolist() == [0.5, 2.0**-21, 0.0]
        True
        """
        sent: Array = np.where(omega >= LEAST_WEIGHT, np.floor(omega / 2 * _GRID) / _GRID, 0.0)
        return sent


def _layers(share: Share) -> Sequence[int]:
    if isinstance(share, float):
        raise TypeError(f"a share of layers lists them, got {share!r}")
    return share


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


SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "push": Push,
    "average": Average,
    "local-steps": LocalSteps,
    "layers": Layers,
}
"""Name -> class, for those that every worker knows."""


def described(scheme: Scheme) -> tuple[str, dict[str, Any]] | None:
    """Return name and parameters of a scheme that every worker knows; None for all else.

    Examples
    --------
    >>> described(Layers(3)), described(LocalSteps())
    (('layers', {'layers': 3}), ('local-steps', {}))
    """
    for name, known in SCHEMES.items():
        if type(scheme) is known:
            return name, asdict(scheme)  # type: ignore[call-overload]
    return None


def get(name: str, params: Mapping[str, Any]) -> Scheme:
    """Return a scheme by name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in SCHEMES:
        raise ValueError(f"this worker has no scheme {name!r}; it has {', '.join(sorted(SCHEMES))}")
    return SCHEMES[name](**params)
