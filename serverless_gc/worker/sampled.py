"""The kernel of stochastic trainings: gradients on mini-batches or local steps, as many as asked for or as time allows.

A task does units of work, each on one mini-batch: it takes the mean of their gradients at one point, or steps along
each. It tells how many samples it used, their loss, and what else is asked for; it may compress what it found, or keep
it to itself where it says nothing new.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock
from serverless_gc.wire.compress import Encodes
from serverless_gc.wire.compress import get as get_compressor
from serverless_gc.wire.sampled import Sampled
from serverless_gc.worker import losses
from serverless_gc.worker.functions import FunctionError, load
from serverless_gc.worker.node_gradient import Batch, NodeGradient
from serverless_gc.worker.products import multiply, multiply_transposed, squared

__all__ = ["sampled", "sampled_messages"]

Array: TypeAlias = NDArray[Any]


def sampled(blocks: Sequence[Block], operand: Array, params: Mapping[str, Any]) -> Array:
    """Do a task; return a packed `serverless_gc.wire.sampled.Sampled`.

    Parameters
    ----------
    blocks
        Those of `NodeGradient`, then the compressor if it is one of the user's, then the earlier model if there is a
        ``"threshold"``.
    operand
        The model.
    params
        Those of `NodeGradient`, with the task's ``"seed"``, and:

        ``units``
            How many mini-batches; with ``"stop_at"``, seconds since the epoch on this machine's clock, as many as begin
            before.
        ``lr``
            Step length: the task makes a step after each mini-batch and delivers the model. Without it, it delivers the
            mean of the gradients at the model given.
        ``extra``
            ``"sum_of_squares"`` of the rows' gradients, or ``"fisher"``, the sum of their outer products; or empty.
        ``threshold``
            The gradient is delivered only if its squared distance from that at the earlier model, on the same rows, is
            larger.
        ``compressor``
            Name and parameters, or the stamp of the user's. What a task of local steps sends is then the change of the
            model.
        ``pace``, ``slowdown``
            With ``"stop_at"``: seconds before the first unit, and how many times longer each takes, for experiments.
    """
    work = _Work(blocks, operand, params)
    for t in _units(params):
        work.add(t)
    return work.found().pack()


def sampled_messages(
    blocks: Sequence[Block], operand: Array, params: Mapping[str, Any], first: int = 0
) -> Iterator[Array]:
    """Yield the gradient of one mini-batch after the other, each a packed `serverless_gc.wire.sampled.Sampled`.

    Parameters are those of `sampled`, with ``"n_messages"`` for the number of mini-batches.
    """
    for t in range(first, params["n_messages"]):
        work = _Work(blocks, operand, params)
        work.add(t)
        yield work.found().pack()


def _units(params: Mapping[str, Any]) -> Iterator[int]:
    """Yield the numbers of the units of work until all are done or the time is over."""
    stop = params.get("stop_at")
    if stop is None:
        yield from range(params["units"])
        return
    time.sleep(max(0.0, min(params.get("pace", 0.0), stop - time.time())))
    t, slower = 0, params.get("slowdown", 1.0) - 1.0
    while time.time() < stop:
        begin = time.perf_counter()
        yield t
        time.sleep(slower * (time.perf_counter() - begin))
        t += 1


class _Work:
    """One task."""

    def __init__(self, blocks: Sequence[Block], operand: Array, params: Mapping[str, Any]) -> None:
        rest = list(blocks)
        self._params = params
        self._earlier = _dense(rest.pop()) if "threshold" in params else None
        self._compressor = _compressor(params.get("compressor"), rest)
        self._gradient = NodeGradient(rest, params)
        self._start = self._x = np.asarray(operand, dtype=np.float64).reshape(-1)
        self._mean = np.zeros(self._start.size)
        self._samples = 0
        self._loss: float | None = 0.0
        self._extra = np.zeros({"": 0, "fisher": self._x.size**2}.get(params.get("extra", ""), self._x.size))

    def add(self, t: int) -> None:
        """Do a unit."""
        batch = self._gradient.batch(t)
        found, value = self._gradient.on(batch, self._x), self._gradient.value
        rows = batch.rows
        self._samples += rows
        share = rows / self._samples
        self._mean += share * (found - self._mean)
        self._loss = None if value is None or self._loss is None else self._loss + share * (value - self._loss)
        if self._extra.size:
            self._extra += self._sums(batch, found)
        if "lr" in self._params:
            self._x = self._x - self._params["lr"] * found

    def found(self) -> Sampled:
        """Return what came of the units."""
        params, none = self._params, np.zeros(0)
        if self._earlier is not None and not self._changed(self._earlier):
            return Sampled(self._samples, self._loss if self._samples else None, None, none)
        body: Array | bytes = self._x if "lr" in params else self._mean
        if self._compressor is not None:
            sent = self._x - self._start if "lr" in params else self._mean
            if not np.isfinite(sent).all():
                raise FunctionError("the gradient holds NaN or Inf and cannot be compressed: try a smaller lr")
            body = self._compressor.encode(sent, params["seed"])
        return Sampled(self._samples, self._loss if self._samples else None, body, self._extra)

    def _changed(self, earlier: Array) -> bool:
        """Whether the gradient is worth sending."""
        before = np.zeros_like(self._mean)
        for t in range(self._params["units"]):
            before += (self._gradient(t, earlier.reshape(-1)) - before) / (t + 1)
        return bool(np.sum((self._mean - before) ** 2) > self._params["threshold"])

    def _sums(self, batch: Batch, mean: Array) -> Array:
        """Return sums over the rows of what their gradients give."""
        objective, sums = self._params["objective"], np.zeros(self._extra.shape)
        if self._params["extra"] == "fisher":
            single = self._gradient.one_by_one(batch, self._x)
            sums += (single.T @ single).reshape(-1)
        elif "function" in objective:
            sums += np.sum(self._gradient.one_by_one(batch, self._x) ** 2, axis=0)
        else:
            loss = losses.get(objective["loss"], **objective["loss_params"])
            rows, decay = batch.rows, self._params["l2"] * self._x
            w = self._x.reshape(self._params["shape"])
            for X, *columns in batch.parts:
                y, weight = [*columns, None][:2]
                residual = loss.residual(multiply(X, w), _dense(y), None if weight is None else _dense(weight))
                sums += multiply_transposed(squared(X), residual**2).reshape(-1)
            # Of the rows' gradients with their share of the regularizer; the sum of them is known.
            sums = (rows * batch.scale) ** 2 * sums + rows * decay * (2 * (mean - decay) + decay)
        return sums


def _dense(block: Block | None) -> Array:
    if block is None or isinstance(block, CsrBlock):
        raise ValueError("kernel 'sampled': labels, weights and models must be dense arrays")
    return block


def _compressor(named: Mapping[str, Any] | None, blocks: list[Block]) -> Encodes | None:
    """Return the compressor that a task names; one of the user's is taken off the blocks."""
    if named is None:
        return None
    if "digest" in named:
        own: Any = load(blocks.pop(), named)
        return own  # type: ignore[no-any-return]
    return get_compressor(named["name"], named["params"])
