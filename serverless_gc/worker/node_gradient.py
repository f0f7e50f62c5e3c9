"""Gradients of one node's loss: on all rows of its partitions, or on some drawn by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block
from serverless_gc.worker import kernels
from serverless_gc.worker.products import take_rows

__all__ = ["NodeGradient"]

Array = NDArray[Any]


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

    def __call__(self, t: int, x: Array) -> Array:
        """Return the gradient, flat like ``x``."""
        params, objective = self._params, self._params["objective"]
        parts, kept, scale = self._parts, list(range(len(self._parts))), params["scale"]
        if params["batch"]:
            parts, kept = self._drawn(t)
            scale *= self._ends[-1] / params["batch"]
        blocks = [*(block for part in parts for block in part), *self._function]
        about = {**objective, "parts": [objective["parts"][i] for i in kept]}
        found: Array = scale * kernels.gradient(blocks, x.reshape(params["shape"]), about) + params["l2"] * x
        self.slope = float(np.linalg.norm(found))
        return found

    def _drawn(self, t: int) -> tuple[list[Sequence[Block]], list[int]]:
        """Draw rows; return those of each partition that has some, and which partitions these are."""
        params, total = self._params, int(self._ends[-1])
        rows = np.random.default_rng((params["seed"], params["node"], t)).integers(total, size=params["batch"])
        owners = np.searchsorted(self._ends, rows, side="right")
        firsts = [0, *self._ends.tolist()]
        kept = np.unique(owners).tolist()
        return [[take_rows(a, rows[owners == i] - firsts[i]) for a in self._parts[i]] for i in kept], kept
