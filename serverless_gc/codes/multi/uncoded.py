"""Uncoded multi-message: every block on several workers, each beginning with another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, CodeKind
from serverless_gc.codes.multi.order import check_load
from serverless_gc.codes.replication import CopyTracker
from serverless_gc.codes.uncoded import UncodedCode
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["UncodedMultiMessage"]


class UncodedMultiMessage(Code):
    """Worker ``i`` computes blocks ``i, i+1, ..., i+r-1`` (mod ``k``) in this order and sends each as it is done.

    Exact for any function of a block, without any arithmetic on the driver: the best default where messages are cheap.
    Message ``j`` is block ``j``, whoever computed it, so each block is stored once.

    Parameters
    ----------
    n_workers, k
        Number of workers and of blocks, which must be equal.
    r
        Blocks for each worker; 3 by default, or ``k`` if that is less.

    Raises
    ------
    InputError
        If ``n_workers`` differs from ``k``, or ``r`` is not in ``1..k``.

    Notes
    -----
    E. Ozfatura, S. Ulukus, D. Gunduz, "Straggler-aware Distributed Learning: Communication-Computation Latency
    Trade-off" (2020). In cyclic order each block is first at exactly one worker, second at exactly one other, and so
    on; an order in which two workers begin with the same block wastes messages.

    Examples
    --------
    >>> code = UncodedMultiMessage(4, 4, r=2)
    >>> [code.placement(worker) for worker in range(4)]
    [(0, 1), (1, 2), (2, 3), (3, 0)]
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(block)) for block in (1, 2, 3, 0)]
    [False, False, False, True]
    """

    name = "uc-mmc"
    kind: ClassVar[CodeKind] = "multi-message"
    publish = 1

    def __init__(self, n_workers: int, k: int, *, r: int | None = None) -> None:
        super().__init__(n_workers, k)
        if self.n_workers != self.k:
            raise InputError(f"n_workers must equal k={k} for uncoded multi-message, got {n_workers}")
        self.r = min(3, self.k) if r is None else check_load(r, self.k)
        self._blocks = UncodedCode(self.k, self.k)

    def placement(self, worker: int) -> tuple[int, ...]:
        """Blocks that ``worker`` computes, in the order it computes them."""
        super().placement(worker)
        return tuple((worker + place) % self.k for place in range(self.r))

    @property
    def guaranteed_threshold(self) -> int:
        """Finished workers after which every set decodes: ``r`` workers hold a block, one of them is needed."""
        return self.n_workers - self.r + 1

    def _build_generator(self) -> FloatArray:
        return np.eye(self.k)

    def source_of(self, message: int) -> int:
        """Index of the block that ``message`` is: its own."""
        return self._blocks.source_of(message)

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Copy blocks; see `Code.encode`."""
        return self._blocks.encode(blocks, out, messages=messages)

    def tracker(self) -> CopyTracker:
        """Make a fresh tracker: a bitmap and a counter."""
        return self._blocks.tracker()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Return the certificate of a copy; see `ReplicationCode.certify`."""
        return self._blocks.certify(messages, dtype)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Put the blocks in order; see `Code.decode`."""
        return self._blocks.decode(values, out=out, tolerance=tolerance, scale=scale)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"r": self.r}
