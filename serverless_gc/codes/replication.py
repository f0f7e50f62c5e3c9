"""Replication: ``r`` copies of every block; the first copy to arrive counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, combine, copy_blocks, promoted, put
from serverless_gc.codes.received import (
    Received,
    default_tolerance,
    not_decodable,
    receive,
    refuse_mismatch,
    with_residual,
)
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["CopyTracker", "ReplicationCode"]


class CopyTracker(Tracker):
    """Decodable when a copy of every block arrived. ``O(1)`` per arrival."""

    __slots__ = ("_k", "_left", "_n", "_seen")

    def __init__(self, n: int, k: int) -> None:
        self._n = n
        self._k = k
        self._left = k
        self._seen = bytearray(k)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._n)
        block = message % self._k
        if not self._seen[block]:
            self._seen[block] = 1
            self._left -= 1
        return Verdict(self._left == 0, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether a copy of every block arrived."""
        return self._left == 0

    def missing(self) -> tuple[int, ...]:
        """Blocks of which no copy arrived."""
        return tuple(j for j, seen in enumerate(self._seen) if not seen)


class ReplicationCode(Code):
    """Worker ``j`` holds block ``j mod k``, so that the copies of a block are launched apart.

    Exact for any function of a block. Speculative re-execution is replication with a delay.

    Parameters
    ----------
    n_workers, k
        Number of workers and blocks; ``r = n_workers / k`` copies of each block.
    allow_uneven
        Accept ``n_workers`` that is no multiple of ``k``: some blocks then have one copy more than others.

    Raises
    ------
    InputError
        If ``n_workers`` is less than ``k``, or no multiple of it and ``allow_uneven`` is false.

    Examples
    --------
    >>> code = ReplicationCode(n_workers=4, k=2)
    >>> code.guaranteed_threshold, round(code.average_threshold, 4)
    (3, 2.3333)
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(j)) for j in (0, 2, 3)]
    [False, False, True]
    """

    name = "replication"

    def __init__(self, n_workers: int, k: int, *, allow_uneven: bool = False) -> None:
        super().__init__(n_workers, k)
        self.allow_uneven = bool(allow_uneven)
        if self.n_workers < self.k:
            raise InputError(f"n_workers must be at least k={self.k}, got {self.n_workers}: a block would be nowhere")
        if self.n_workers % self.k and not self.allow_uneven:
            raise InputError(
                f"n_workers must be a multiple of k={self.k}, got {self.n_workers}; "
                "allow_uneven=True gives some blocks one copy more"
            )

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes: ``n - r + 1``, ``r`` the fewest copies of a block."""
        return self.n_workers - self.n_workers // self.k + 1

    @property
    def average_threshold(self) -> float:
        """Mean number of results at the first decodable moment, all orders of arrival being equally likely."""
        n, k = self.n_workers, self.k
        r, extra = divmod(n, k)
        if extra == 0:
            log_beta = math.lgamma(1 / r) + math.lgamma(k + 1) - math.lgamma(1 / r + k + 1)
            return (n + 1) * (1 - math.exp(log_beta) / r)
        # With arrival times uniform on [0, 1] the mean number of results is (n + 1) times the mean completion
        # time, the integral of a polynomial of degree n in 1 - t: Gauss quadrature is exact.
        nodes, weights = np.polynomial.legendre.leggauss(n // 2 + 1)
        x = (nodes + 1) / 2
        on_time = (1 - x**r) ** (k - extra) * (1 - x ** (r + 1)) ** extra
        return (n + 1) * (1 - float(weights @ on_time) / 2)

    def _build_generator(self) -> FloatArray:
        g = np.zeros((self.n_workers, self.k))
        workers = np.arange(self.n_workers)
        g[workers, workers % self.k] = 1.0
        return g

    def source_of(self, message: int) -> int:
        """Index of the block that ``message`` carries."""
        check_message(message, self.n_workers)
        return message % self.k

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Copy blocks; see `Code.encode`."""
        ids = range(self.n_workers) if messages is None else messages
        return copy_blocks(blocks, self.k, [self.source_of(i) for i in ids], out)

    def tracker(self) -> CopyTracker:
        """Make a fresh tracker."""
        return CopyTracker(self.n_workers, self.k)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Return the certificate of a copy: exact, whatever the messages, if there is one for every block.

        Raises
        ------
        NotDecodableError
            If a block has no copy among the messages.
        """
        promoted(np.dtype(dtype))
        return Certificate("copy", used=tuple(self._first_copies(sorted(set(messages)))))

    def _first_copies(self, ids: Sequence[int]) -> list[int]:
        first: dict[int, int] = {}
        for i in ids:
            first.setdefault(self.source_of(i), i)
        if len(first) < self.k:
            missing = tuple(j for j in range(self.k) if j not in first)
            raise not_decodable(self.name, len(ids), missing, "wait for a copy of each, or compute them again")
        return [first[j] for j in range(self.k)]

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Take the copy with the lowest id of every block and compare the others with it; see `Code.decode`."""
        got = receive(values, self.n_workers)
        first = self._first_copies(got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        surplus = sorted(set(got.ids).difference(first))
        # Compared before anything is written: any one of the copies may lie where the answer goes.
        residual = max((self._mismatch(got, first[self.source_of(i)], i, scale) for i in surplus), default=0.0)
        refuse_mismatch(self.name, residual, max(tolerance or 0.0, default_tolerance(got.dtype)), len(surplus))
        for j, i in enumerate(first):
            put(output.array, j, got.values[i])
        return output.finish(), with_residual(Certificate("copy", used=tuple(first)), residual, len(surplus))

    def _mismatch(self, got: Received, chosen: int, message: int, scale: float) -> float:
        copies = got.rows([chosen, message], got.dtype)
        return combine(np.empty((0, 2)), copies, [], checks=np.array([[1.0, -1.0]]), scale=scale)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"allow_uneven": True} if self.allow_uneven else {}
