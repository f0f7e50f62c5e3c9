"""What a worker can compute, by name.

A kernel takes the task's blocks, its operand and its parameters and returns one array. One that makes several
messages also comes as a stream that gives one after the other, so that a worker can publish the first before it works
on the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock
from serverless_gc.worker import curvature, losses
from serverless_gc.worker.products import multiply, multiply_transposed

__all__ = [
    "KERNELS",
    "STREAMS",
    "Kernel",
    "Stream",
    "get",
    "gradient_messages",
    "multiply",
    "multiply_transposed",
    "stream",
]

Array: TypeAlias = NDArray[Any]
Kernel: TypeAlias = Callable[[Sequence[Block], Array | None, Mapping[str, Any]], Array]


class Stream(Protocol):
    """A kernel that gives its messages one after the other, from the ``first`` wanted one on."""

    def __call__(
        self, blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
    ) -> Iterator[Array]:
        """Give the messages."""
        ...


def _need_operand(kernel: str, operand: Array | None) -> Array:
    if operand is None:
        raise ValueError(f"kernel {kernel!r} needs an operand, the task carries none")
    return operand


def _stacked(messages: Iterator[Array]) -> Array:
    """Return a single message as it is, several as a stack."""
    made = list(messages)
    return made[0] if len(made) == 1 else np.stack(made)


def matvec(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return the task's block times its operand; for several blocks the stack of their products."""
    return _stacked(matvec_messages(blocks, operand, params))


def matvec_messages(
    blocks: Sequence[Block],
    operand: Array | None,
    params: Mapping[str, Any],  # noqa: ARG001 - one signature for all streams
    first: int = 0,
) -> Iterator[Array]:
    """Yield the product of each block with the operand, from block ``first`` on."""
    operand = _need_operand("matvec", operand)
    if not blocks:
        raise ValueError("kernel 'matvec' needs a block, the task names none")
    for block in blocks[first:]:
        yield multiply(block, operand)


def normal(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return ``block.T @ (block @ operand)`` of the task's block (conjugated), or for several the stack of them."""
    return _stacked(normal_messages(blocks, operand, params))


def normal_messages(
    blocks: Sequence[Block],
    operand: Array | None,
    params: Mapping[str, Any],  # noqa: ARG001 - one signature for all streams
    first: int = 0,
) -> Iterator[Array]:
    """Yield ``block.T @ (block @ operand)`` of each block, from block ``first`` on."""
    operand = _need_operand("normal", operand)
    if not blocks:
        raise ValueError("kernel 'normal' needs a block, the task names none")
    for block in blocks[first:]:
        yield multiply_transposed(block, multiply(block, operand))


def sketch(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return the message of `sketch_messages`, or for several blocks the stack of them."""
    return _stacked(sketch_messages(blocks, operand, params))


def sketch_messages(
    blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Yield each block, from block ``first`` on, with its columns added up in ``params["rows"]`` buckets.

    The operand has two columns: the bucket of each column of the block, and what it is multiplied by.
    """
    operand = _need_operand("sketch", operand)
    buckets, factors = operand[:, 0].astype(np.int64), operand[:, 1]
    for block in blocks[first:]:
        yield curvature.sketched_columns(block, buckets, factors, int(params["rows"]))


def coordinates(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return ``u = block @ operand``, padded with zeros to ``params["size"]`` entries, then ``block.T @ u``."""
    operand = _need_operand("coordinates", operand)
    if len(blocks) != 1:
        raise ValueError(f"kernel 'coordinates' takes one block, the task names {len(blocks)}")
    u = multiply(blocks[0], operand)
    padding = np.zeros(int(params.get("size", len(u))) - len(u), u.dtype)
    return np.concatenate([u, padding, multiply_transposed(blocks[0], u)])


def matmul(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:  # noqa: ARG001 - one signature for all kernels
    """Return the product of the task's two blocks; the second one must be dense."""
    if len(blocks) != 2:
        raise ValueError(f"kernel 'matmul' takes two blocks, the task names {len(blocks)}")
    left, right = blocks
    if isinstance(right, CsrBlock):
        raise ValueError("kernel 'matmul' needs a dense second block, got a sparse one")  # noqa: TRY004 - like all kernels
    return multiply(left, right)


def gradient(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return the message of `gradient_messages`, or for several their stack."""
    return _stacked(gradient_messages(blocks, operand, params))


def gradient_messages(
    blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Yield combinations of the gradients of the task's data parts at ``operand``, in order, from the ``first`` on.

    The gradient of a part is a sum over its rows, flattened; it is computed when a message first needs it, and once.
    ``blocks`` is ``X``, labels and row weights of each part, then the function if there is one, then messages of other
    workers. Parameters:

    ``loss``, ``loss_params``
        Name and parameters of a built-in loss, or
    ``function``
        the stamp of the function in the last block, see `serverless_gc.worker.functions`.
    ``labelled``, ``weighted``
        Whether parts have labels (they do by default) and row weights (by default they have none).
    ``parts``
        ``[id, first row, end]`` of each part, for messages about it.
    ``messages``
        ``[id, [number of a part in the task, ...], [coefficient, ...]]`` of each message; by default one message, the
        sum of all parts.
    ``added``
        What the messages of other workers are multiplied by before they are added to each of this worker's.
    ``complex``
        Whether coefficients are complex: each number is then a pair.
    ``fold``
        ``m > 1``: coefficients are lists of ``m`` numbers, and entry ``v`` of a message is the sum over its parts ``i``
        and over ``u < m`` of ``coefficient[i][u] * gradient_i[v * m + u]``, gradients padded with zeros.
    ``alike``
        Whether all parts of a message have the same coefficient, which is then given once; they are summed first.
    ``value``
        Whether the loss itself goes along, as one more entry behind the gradient. ``"if-given"``: NaN where the
        function does not tell it.
    ``measure``
        Kernel ``"curvature"``: what is computed of a part instead of its gradient, or where it says ``behind``, behind
        its gradient, flattened likewise, see `serverless_gc.worker.curvature.measured`; ``size`` is its length. Not for
        functions.
    ``dtype``
        Of the messages, float64 by default; sums are formed in double precision.
    """
    added = params.get("added", ())
    own = len(blocks) - len(added)
    parts = _Parts(blocks[:own], _need_operand("gradient", operand), params)
    fold = int(params.get("fold", 1))
    sent = np.dtype(params.get("dtype", np.float64))
    work = np.result_type(sent, np.float64)
    everything = [[0, list(range(len(parts))), np.ones(len(parts)).tolist()]]
    messages = params.get("messages", everything)[first:]
    last = {i: number for number, (_, support, _) in enumerate(messages) for i in support}
    for number, (message, support, given) in enumerate(messages):
        factors = np.array(given, float)
        if params.get("complex"):
            factors = factors[..., 0] + 1j * factors[..., 1] if len(support) else factors
        alike = bool(params.get("alike"))
        if len(factors) != (1 if alike else len(support)):
            raise ValueError(f"message {message} combines {len(support)} parts with {len(factors)} coefficients")
        total = np.zeros(parts.size if alike else -(-parts.size // fold), work)
        for i, factor in zip(support, [None] * len(support) if alike else factors, strict=True):
            flat = parts.flat(i, message)
            total += flat if factor is None else _weighted(flat, factor, fold)
            if last[i] == number:
                parts.forget(i)
        if alike:
            total = _weighted(total, factors[0], fold)
        for factor, other in zip(added, blocks[own:], strict=True):
            if isinstance(other, CsrBlock) or other.shape != total.shape:
                raise ValueError(f"a message of shape {other.shape} cannot be added to one of shape {total.shape}")
            total += factor * other
        yield total.astype(sent, copy=False)


def _weighted(flat: Array, factor: Array, fold: int) -> Array:
    """Multiply a gradient by its coefficient, or fold it with its coefficients."""
    if fold == 1:
        return factor * flat
    padded = np.zeros((-(-len(flat) // fold), fold), flat.dtype)
    padded.reshape(-1)[: len(flat)] = flat
    folded: Array = padded @ factor
    return folded


class _Parts:
    """The task's parts of the data, and their gradients as far as they are computed and needed."""

    def __init__(self, blocks: Sequence[Block], w: Array, params: Mapping[str, Any]) -> None:
        self._w = w
        self._params = params
        self._value = bool(params.get("value"))
        self._labelled = bool(params.get("labelled", True))
        self._known: dict[int, Array] = {}
        stamp = params.get("function")
        self._loss: Any = None
        if stamp is None:
            self._loss = losses.get(params.get("loss", "squared"), **params.get("loss_params", {}))
        else:
            from serverless_gc.worker import functions  # loads pickle, which built-in losses never need

            *blocks, function = blocks
            self._loss = functions.load(function, stamp)
        per_part = 1 + self._labelled + bool(params.get("weighted"))
        if len(blocks) % per_part:
            raise ValueError(f"kernel 'gradient' takes {per_part} blocks for each part, the task names {len(blocks)}")
        self._parts = [blocks[i : i + per_part] for i in range(0, len(blocks), per_part)]
        if any(isinstance(a, CsrBlock) for _, *labels in self._parts for a in labels):
            raise ValueError("kernel 'gradient': labels and weights must be dense arrays")
        self._measure: Mapping[str, Any] = params.get("measure", {})
        self._slopes = not self._measure or self._measure["behind"]
        self.size = (w.size + self._value if self._slopes else 0) + int(self._measure.get("size", 0))

    def __len__(self) -> int:
        return len(self._parts)

    def flat(self, i: int, message: int) -> Array:
        """Return what is wanted of a part as one vector: gradient, curvature, loss."""
        if i not in self._known:
            self._known[i] = np.concatenate(self._computed(i, message), axis=None)
        return self._known[i]

    def forget(self, i: int) -> None:
        """Make room: no further message needs this part."""
        self._known.pop(i, None)

    def _computed(self, i: int, message: int) -> list[Any]:
        X, *rest = self._parts[i]
        y = rest.pop(0) if self._labelled else None
        if not isinstance(self._loss, losses.Loss):
            from serverless_gc.worker import functions

            number, first, end = self._params.get("parts", [[i, 0, X.shape[0]]] * (i + 1))[i]
            where = f"partition {number} (rows {first}..{end - 1}) for message {message}"
            asked = self._params.get("value") is True
            value, slopes = functions.call(self._loss, [X, y, *rest], self._w, where, value=asked)
            return [slopes, value] if self._value else [slopes]
        weight: Any = rest[0] if rest else None
        labels: Any = y
        z = multiply(X, self._w)
        found: list[Any] = []
        if self._slopes:
            found.append(multiply_transposed(X, self._loss.residual(z, labels, weight)))
        if self._measure:
            _, place, _ = self._params["parts"][i]
            found.append(curvature.measured(self._measure, X, labels, weight, z, self._loss, place))
        if self._value:
            found.append(self._loss.value(z, labels, weight))
        return found


def node_gradient(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Return draw ``params["draw"]`` of the gradient of a node's loss, see `serverless_gc.worker.node_gradient`."""
    from serverless_gc.worker.node_gradient import NodeGradient

    return NodeGradient(blocks, params)(params["draw"], _need_operand("node-gradient", operand))


def sampled(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:
    """Do a task of a stochastic training, see `serverless_gc.worker.sampled`."""
    from serverless_gc.worker import sampled as stochastic

    return stochastic.sampled(blocks, _need_operand("sampled", operand), params)


def sampled_messages(
    blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Yield what such a task finds on one mini-batch after the other."""
    from serverless_gc.worker import sampled as stochastic

    return stochastic.sampled_messages(blocks, _need_operand("sampled", operand), params, first)


def noop(blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any]) -> Array:  # noqa: ARG001 - one signature for all kernels
    """Return ``params["size"]`` zeros, for measuring everything but the work.

    It stays for ``params["hold"]`` seconds, at most 1: a busy environment makes the next call start another.
    """
    time.sleep(min(1.0, params.get("hold", 0.0)))
    return np.zeros(int(params.get("size", 0)))


KERNELS: Mapping[str, Kernel] = {
    "matvec": matvec,
    "normal": normal,
    "coordinates": coordinates,
    "curvature": gradient,
    "gradient": gradient,
    "matmul": matmul,
    "node-gradient": node_gradient,
    "sampled": sampled,
    "sketch": sketch,
    "noop": noop,
}
"""Name -> function."""

STREAMS: Mapping[str, Stream] = {
    "curvature": gradient_messages,
    "gradient": gradient_messages,
    "matvec": matvec_messages,
    "normal": normal_messages,
    "sampled": sampled_messages,
    "sketch": sketch_messages,
}
"""Name -> function, for kernels that can give one message after the other."""


def get(name: str) -> Kernel:
    """Return a kernel by name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in KERNELS:
        raise ValueError(f"this worker has no kernel {name!r}; it has {', '.join(sorted(KERNELS))}")
    return KERNELS[name]


def stream(
    name: str, blocks: Sequence[Block], operand: Array | None, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Give the messages of a kernel one after the other; of one that has no stream, its whole result as one.

    Raises
    ------
    ValueError
        If there is no such kernel, or it refuses the blocks or the operand; when the first message is asked for.

    Examples
    --------
    >>> list(stream("matvec", [np.eye(2), np.ones((1, 2))], np.array([1.0, 2.0]), {}))
    [array([1., 2.]), array([3.])]
    """
    if name in STREAMS:
        yield from STREAMS[name](blocks, operand, params, first)
    else:
        yield get(name)(blocks, operand, params)
