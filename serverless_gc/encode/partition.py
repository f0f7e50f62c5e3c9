"""Cutting ``m`` rows into ``k`` blocks of one height, and putting decoded blocks together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["Partition"]


@dataclass(frozen=True, slots=True)
class Partition:
    """``m`` rows in ``k`` blocks of ``b = ceil(m / k)`` rows, in row order.

    The last rows are padded with zeros up to ``k * b``. Trailing blocks may be all padding: ``m = 10, k = 6`` gives
    ``b = 2`` and an empty block 5; ``m < k`` gives ``b = 1`` and ``k - m`` empty blocks.

    Parameters
    ----------
    m
        Number of rows, at least 1.
    k
        Number of blocks, at least 1.

    Raises
    ------
    InputError
        If ``m`` or ``k`` is not a positive integer.

    Examples
    --------
    >>> part = Partition(10, 4)
    >>> part.b, part.n_padding, part.range(3)
    (3, 2, (9, 10))
    >>> part.join(np.arange(12).reshape(4, 3))
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    m: int
    k: int

    def __post_init__(self) -> None:
        for label, value in (("m", self.m), ("k", self.k)):
            check_whole(label, value, 1)

    @property
    def b(self) -> int:
        """Rows of one block."""
        return -(-self.m // self.k)

    @property
    def n_padding(self) -> int:
        """Zero rows added at the end."""
        return self.k * self.b - self.m

    @property
    def n_filled(self) -> int:
        """Number of blocks that hold at least one row; the others are all padding."""
        return -(-self.m // self.b)

    def range(self, block: int) -> tuple[int, int]:
        """Return the half-open range of rows in ``block``, clipped to ``m``; empty when the block is all padding.

        Raises
        ------
        InputError
            If there is no such block.
        """
        if not 0 <= block < self.k:
            raise InputError(f"block must be in 0..{self.k - 1}, got {block}")
        return min(block * self.b, self.m), min((block + 1) * self.b, self.m)

    def split(self, values: Array) -> Array:
        """Cut ``(m, ...)`` into ``(k, b, ...)``: a view when nothing is padded and the layout allows it.

        Raises
        ------
        InputError
            If the first axis is not ``m`` long.
        """
        if values.ndim == 0 or values.shape[0] != self.m:
            raise InputError(f"expected {self.m} rows, got an array of shape {values.shape}")
        tail = values.shape[1:]
        if self.n_padding == 0:
            return values.reshape(self.k, self.b, *tail)
        padded = np.zeros((self.k * self.b, *tail), dtype=values.dtype)
        padded[: self.m] = values
        return padded.reshape(self.k, self.b, *tail)

    def join(self, blocks: Sequence[Array] | Array) -> Array:
        """Put ``(k, b, ...)`` together as ``(m, ...)`` and drop the padding.

        A view when ``blocks`` is one array whose first two axes are contiguous in memory, else a copy.

        Raises
        ------
        InputError
            If the shape does not start with ``(k, b)``.
        """
        stacked = blocks if isinstance(blocks, np.ndarray) else np.stack([np.asarray(x) for x in blocks])
        if stacked.shape[:2] != (self.k, self.b):
            raise InputError(f"expected blocks of shape ({self.k}, {self.b}, ...), got {stacked.shape}")
        return stacked.reshape(self.k * self.b, *stacked.shape[2:])[: self.m]
