"""The polar butterfly on stacked blocks, plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from serverless_gc.types import Array

__all__ = ["encode"]


def _transform(x: Array, upper: int) -> None:
    """Kronecker power of ``[[1, upper], [0, 1]]``, in place on the first axis."""
    half = 1
    while half < len(x):
        pairs = x.reshape(-1, 2, half, x.shape[1])
        if upper > 0:
            pairs[:, 0] += pairs[:, 1]
        else:
            pairs[:, 0] -= pairs[:, 1]
        half *= 2


def _hadamard(x: Array) -> None:
    """Orthonormal Hadamard transform, in place on the first axis."""
    half = 1
    while half < len(x):
        pairs = x.reshape(-1, 2, half, x.shape[1])
        first = pairs[:, 0].copy()
        pairs[:, 0] += pairs[:, 1]
        np.subtract(first, pairs[:, 1], out=pairs[:, 1])
        half *= 2
    x *= x.dtype.type(len(x) ** -0.5)


def encode(
    blocks: Array,
    positions: Sequence[int] | Array,
    length: int,
    out: Array,
    rows: Sequence[int] | Array,
    *,
    kernel: Literal["binary", "hadamard"],
    systematic: bool,
) -> None:
    """Encode blocks with a polar transform.

    Parameters
    ----------
    blocks
        Shape ``(k, L)``, floating or complex.
    positions
        Index of each block in ``0..length-1``.
    length
        Length of the transform, a power of two.
    out
        Receives the coded rows, shape ``(len(rows), L)``.
    rows
        Which of the ``length`` positions to write.
    kernel
        ``"binary"``: ``(u0 + u1, u1)``; ``"hadamard"``: ``(u0 + u1, u0 - u1) / sqrt(2)``.
    systematic
        Whether position ``positions[t]`` holds block ``t`` unchanged (bit by bit). The positions must then be
        closed under domination.
    """
    where = np.asarray(positions)
    x = np.zeros((length, blocks.shape[1]), dtype=blocks.dtype)
    x[where] = blocks
    if systematic:
        # A systematic Hadamard codeword is U P U^-1 v, U the power of [[1, -1], [0, 1]]: the binary one up to signs.
        sign = 1 if kernel == "binary" else -1
        _transform(x, -sign)
        frozen = np.ones(length, dtype=bool)
        frozen[where] = False
        x[frozen] = 0
        _transform(x, sign)
        x[where] = blocks
    elif kernel == "binary":
        _transform(x, 1)
    else:
        _hadamard(x)
    out[...] = x[np.asarray(rows)]
