"""Gradients of one node's loss: on all rows of its partitions, or on some drawn by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block
from serverless_gc.worker import kernels
from serverless_gc.worker.products import take_rows

__all__ = ["Batch", "NodeGradient"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a node's partitions.

    Attributes
    ----------
    parts
        ``X``, labels and row weights of the rows of each partition that has some.
    kept
        Which partitions these are.
    scale
        What a sum over these rows is multiplied by.
    """

    parts: Sequence[Sequence[Block]]
    kept: Sequence[int]
    scale: float

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(X.shape[0] for X, *_ in self.parts)


class NodeGradient:
    """``gradient(t, x)`` of a node's loss at its model ``x``, a vector; ``t`` numbers the draw of rows.

    Parameters
    ----------
    blocks
        ``X``, labels and row weights of each of the node's partitions, then the loss if it is a function.
    params
        ``"node"``; ``"shape"`` of the model; ``"objective"``, parameters of the kernel ``"gradient"`` for all the
        partitions; ``"scale"`` of the sum over all rows, ``"l2"``; ``"batch"``, how many rows are drawn with
        replacement, 0 for all; ``"seed"`` of the draws.

    Attributes
    ----------
    slope
        Norm of the last gradient.
    value
        The loss where the last gradient was taken; None if the objective does not ask for it, or the function does not
        tell.

    Examples
    --------
    >>> plain = {"labelled": True, "weighted": False, "parts": [[0, 0, 2]]}
    >>> params = {"node": 0, "shape": [1], "objective": plain, "scale": 0.5, "l2": 0.0, "batch": 0, "seed": 0}
    >>> gradient = NodeGradient([np.array([[1.0], [2.0]]), np.array([1.0, 0.0])], params)
    >>> gradient(0, np.array([1.0])), gradient.slope
    (array([2.]), 2.0)
    """

    def __init__(self, blocks: Sequence[Block], params: Mapping[str, Any]) -> None:
        self._params = params
        objective = params["objective"]
        own = len(blocks) - ("function" in objective)
        per_part = 1 + objective["labelled"] + objective["weighted"]
        self._function = list(blocks[own:])
        self._parts = [blocks[i : i + per_part] for i in range(0, own, per_part)]
        self._ends = np.cumsum([X.shape[0] for X, *_ in self._parts])
        self.slope = 0.0
        self.value: float | None = None

    def __call__(self, t: int, x: Array) -> Array:
        """Return the gradient, flat like ``x``."""
        return self.on(self.batch(t), x)

    def on(self, batch: Batch, x: Array) -> Array:
        """Return the gradient on some rows, flat like ``x``."""
        params, objective = self._params, self._params["objective"]
        blocks = [*(block for part in batch.parts for block in part), *self._function]
        about = {**objective, "parts": [objective["parts"][i] for i in batch.kept]}
        total = kernels.gradient(blocks, x.reshape(params["shape"]), about)
        if objective.get("value"):
            value = batch.scale * float(total[-1]) + 0.5 * params["l2"] * float(x @ x)
            self.value = None if np.isnan(total[-1]) else value
            total = total[:-1]
        found: Array = batch.scale * total + params["l2"] * x
        self.slope = float(np.linalg.norm(found))
        return found

    def one_by_one(self, batch: Batch, x: Array) -> Array:
        """Return the gradient of each row, ``(rows, x.size)``; their mean is that of the batch."""
        params, objective = self._params, self._params["objective"]
        rows: list[list[Block]] = []
        owners = []
        for number, part in zip(batch.kept, batch.parts, strict=True):
            for i in range(part[0].shape[0]):
                rows.append([take_rows(block, np.array([i])) for block in part])
                owners.append(objective["parts"][number])
        blocks = [*(block for row in rows for block in row), *self._function]
        about = {**objective, "parts": owners, "value": False, "messages": [[i, [i], [1.0]] for i in range(len(rows))]}
        single = kernels.gradient_messages(blocks, x.reshape(params["shape"]), about)
        found: Array = len(rows) * batch.scale * np.stack(list(single)) + params["l2"] * x
        return found

    def batch(self, t: int) -> Batch:
        """Return the rows of draw ``t``."""
        params, total = self._params, int(self._ends[-1])
        if not params["batch"]:
            return Batch(self._parts, range(len(self._parts)), params["scale"])
        rows = np.random.default_rng((params["seed"], params["node"], t)).integers(total, size=params["batch"])
        owners = np.searchsorted(self._ends, rows, side="right")
        firsts = [0, *self._ends.tolist()]
        kept = np.unique(owners).tolist()
        parts = [[take_rows(a, rows[owners == i] - firsts[i]) for a in self._parts[i]] for i in kept]
        return Batch(parts, kept, params["scale"] * total / params["batch"])
