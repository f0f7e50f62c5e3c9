"""Coded blocks of a sparse source: one sparse product each, stored as compressed rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from serverless_gc.codes.base import Code
from serverless_gc.encode.blocks import BlockMaker
from serverless_gc.encode.partition import Partition
from serverless_gc.encode.sparse import SparseSource
from serverless_gc.types import Array
from serverless_gc.wire import Block, CsrBlock

__all__ = ["SparseBlocks"]


class SparseBlocks(BlockMaker):
    """Blocks of a sparse source in compressed rows; ``dtype`` is the type of the stored values.

    Message ``i`` is ``S_i @ X`` with ``S_i[r, j * b + r] = G[i, j]``: its cost and its size follow the stored values
    of the blocks it combines. Entries that cancel exactly stay stored as zeros.
    """

    def __init__(
        self,
        source: SparseSource,
        code: Code,
        partition: Partition,
        axis: int,
        dtype: np.dtype[Any],
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(code, partition, stop)
        whole = source.csr(axis)
        self.dtype = dtype
        self._whole = whole
        # The padding is rows without entries: the row pointer goes on, nothing is copied.
        self._indptr = np.concatenate(
            [whole.indptr, np.full(partition.n_padding, whole.indptr[-1], whole.indptr.dtype)]
        )
        self._table = sp.csr_array(
            (whole.data, whole.indices, self._indptr), shape=(partition.k * partition.b, whole.shape[1])
        )

    def source_groups(self, blocks: Sequence[int], budget: int) -> Iterator[list[int]]:
        """See `BlockMaker.source_groups`."""
        return self._groups(blocks, [self._upper_bytes(np.array([j])) for j in blocks], budget)

    def coded_groups(self, messages: Sequence[int], budget: int) -> Iterator[list[int]]:
        """See `BlockMaker.coded_groups`."""
        return self._groups(messages, [self._upper_bytes(self.code.combination(i)[0]) for i in messages], budget)

    def _upper_bytes(self, blocks: Array) -> int:
        """Bytes of a message at most: no two of its entries share a place."""
        starts = self._indptr[:: self.partition.b]
        nnz = int(np.diff(starts)[blocks].sum())
        return nnz * (self.dtype.itemsize + self._whole.indices.itemsize) + self.partition.b * self._indptr.itemsize

    @staticmethod
    def _groups(items: Sequence[int], sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
        group: list[int] = []
        total = 0
        for item, size in zip(items, sizes, strict=True):
            if group and total + size > budget:
                yield group
                group, total = [], 0
            group.append(item)
            total += size
        if group:
            yield group

    def sources(self, blocks: Sequence[int]) -> list[Block]:
        """See `BlockMaker.sources`."""
        made: list[Block] = []
        b = self.partition.b
        for j in blocks:
            indptr = self._indptr[j * b : (j + 1) * b + 1]
            start, stop = int(indptr[0]), int(indptr[-1])
            data = self._whole.data[start:stop].astype(self.dtype, copy=False)
            made.append(CsrBlock(data, self._whole.indices[start:stop], indptr - indptr[0], (b, self._whole.shape[1])))
        return made

    def coded(self, messages: Sequence[int]) -> list[Block]:
        """See `BlockMaker.coded`."""
        made: list[Block] = []
        for i in messages:
            self.check()
            product = self._selector(*self.code.combination(i)) @ self._table
            data = product.data.astype(self.dtype, copy=False)
            made.append(CsrBlock(data, product.indices, product.indptr, (self.partition.b, self._whole.shape[1])))
        return made

    def _selector(self, blocks: Array, coefficients: Array) -> Any:
        """Return the sparse matrix that adds up the blocks of one message, shape ``(b, k * b)``."""
        b = self.partition.b
        indices = (blocks.astype(np.int64) * b + np.arange(b)[:, None]).ravel()
        indptr = np.arange(b + 1) * blocks.size
        return sp.csr_array((np.tile(coefficients, b), indices, indptr), shape=(b, self.partition.k * b))
