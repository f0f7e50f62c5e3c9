"""Compute the blocks that messages stand for, a group at a time, within bounded memory.

Dense coded blocks are made strip by strip: a strip holds the same entries of all ``k`` source blocks, small enough for
the cache, so the source is read once per group whatever the code does with it. Sparse ones are one sparse product each.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from serverless_gc.codes.base import Code
from serverless_gc.codes.support import Support
from serverless_gc.encode.dense import DenseSource, copy_tiled, oriented
from serverless_gc.encode.partition import Partition
from serverless_gc.types import Array
from serverless_gc.wire import Block

__all__ = ["BlockMaker", "DenseBlocks", "spans"]

_STRIP_BYTES = 2**24  # of all source and all coded blocks of one strip; measured flat from 8 to 32 MiB
_STRIP_LEAST = 2048  # entries of one block in a strip: below that NumPy's cost per call shows
_STRIP_MOST = 2**25  # bytes, however many blocks there are
_RUN = 8  # entries in a run when a strip is read against the memory order: a cache line


class BlockMaker(ABC):
    """Makes the blocks of some messages. Setting ``stop`` gives a running computation up."""

    def __init__(self, code: Code, partition: Partition, stop: threading.Event | None = None) -> None:
        self.code = code
        self.partition = partition
        self._stop = stop

    @abstractmethod
    def source_groups(self, blocks: Sequence[int], budget: int) -> Iterator[list[int]]:
        """Split ascending source blocks into groups whose own memory (not that of the source) is within budget."""

    @abstractmethod
    def coded_groups(self, messages: Sequence[int], budget: int) -> Iterator[list[int]]:
        """Split messages into groups whose blocks are within budget; at least one message a group."""

    @abstractmethod
    def sources(self, blocks: Sequence[int]) -> list[Block]:
        """Return source blocks as they are stored; views of the source where possible."""

    @abstractmethod
    def coded(self, messages: Sequence[int]) -> list[Block]:
        """Return coded blocks as they are stored."""

    def check(self) -> None:
        """Raise `CancelledError` if ``stop`` was set."""
        if self._stop is not None and self._stop.is_set():
            raise CancelledError("the encoding was given up")


def spans(items: Sequence[int], size: int) -> Iterator[list[int]]:
    """Split into runs of nearly equal length, none longer than ``size``."""
    n_groups = -(-len(items) // max(1, size))
    for i in range(n_groups):
        yield list(items[i * len(items) // n_groups : (i + 1) * len(items) // n_groups])


class DenseBlocks(BlockMaker):
    """Blocks of a dense source; ``dtype`` is the type they are stored in.

    Sums are always formed in the working type (float64 or complex128); a narrower stored type is rounded to once.
    """

    def __init__(
        self,
        source: DenseSource,
        code: Code,
        partition: Partition,
        axis: int,
        dtype: np.dtype[Any],
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(code, partition, stop)
        self._source = source
        self._axis = axis
        self.dtype = dtype
        self.shape = (partition.b, source.shape[1 - axis])
        self.stored = (partition.b, code.width(self.shape[1]))  # without columns that no message needs
        self.nbytes = self.stored[0] * self.stored[1] * dtype.itemsize
        self._aligned = (source.order == "C") == (axis == 0)
        whole = source.whole()
        self._whole = whole.T if axis == 1 and whole is not None else whole
        self._stages = False
        self._flat = np.empty(0, dtype=source.dtype)  # the entries in one stretch, when they are so in memory
        if self._whole is not None and self._whole.flags.c_contiguous and self._whole.dtype == source.dtype:
            self._flat = self._whole.reshape(-1)

    def _rows(self, lo: int, hi: int, start: int, stop: int) -> Array:
        return oriented(self._source, self._axis, lo, hi, start, stop)

    # -- source blocks -------------------------------------------------------------------------------

    def source_groups(self, blocks: Sequence[int], budget: int) -> Iterator[list[int]]:
        """See `BlockMaker.source_groups`. Views need no memory: one group, but for a padded last block."""
        if self._as_it_is(0):
            return spans(blocks, len(blocks))
        complete = set(blocks) >= set(range(self.partition.n_filled))
        fits = self.partition.k * self.nbytes <= budget and self.dtype == self._source.dtype
        self._stages = complete and fits and not self._aligned
        return spans(blocks, budget // self.nbytes)

    def _as_it_is(self, block: int) -> bool:
        """Whether the source holds this block just as it is stored, so that a view will do."""
        lo, hi = self.partition.range(block)
        if self._whole is None or self._whole.dtype != self.dtype or hi - lo < self.partition.b:
            return False
        return bool(self._whole[lo:hi].flags.c_contiguous)

    def sources(self, blocks: Sequence[int]) -> list[Block]:
        """See `BlockMaker.sources`. Neighbouring blocks are read in one pass."""
        if self._stages:  # copied against the memory order once, coded blocks are then made from the copy
            staged = self._copied(range(self.partition.k))
            staged.setflags(write=False)  # whoever gets the blocks must not spoil the sums to come
            self._flat, self._aligned, self._stages = staged.reshape(-1), True, False
            return [staged[j] for j in blocks]
        made: dict[int, Block] = {}
        to_copy = []
        for j in blocks:
            if self._as_it_is(j):
                made[j] = self._rows(*self.partition.range(j), 0, self.shape[1])
            else:
                to_copy.append(j)
        for run in _runs(to_copy):
            made.update(zip(run, self._copied(run), strict=True))
        return [made[j] for j in blocks]

    def _copied(self, run: Sequence[int]) -> Array:
        """Copy neighbouring blocks; the source is walked once, along its memory order."""
        b, width = self.shape
        lo, hi = self.partition.range(run[0])[0], self.partition.range(run[-1])[1]
        out = np.empty((len(run) * b, width), dtype=self.dtype)
        out[hi - lo :] = 0
        filled = out[: hi - lo]
        step = max(1, _STRIP_BYTES // (self.dtype.itemsize * max(1, width if self._aligned else hi - lo)))
        if self._aligned:
            for i in range(0, hi - lo, step):
                self.check()
                np.copyto(filled[i : i + step], self._rows(lo + i, min(lo + i + step, hi), 0, width))
        else:
            step = max(step, _RUN)
            for c in range(0, width, step):
                self.check()
                copy_tiled(filled[:, c : c + step], self._rows(lo, hi, c, min(c + step, width)))
        return out.reshape(len(run), b, width)

    # -- coded blocks --------------------------------------------------------------------------------

    def coded_groups(self, messages: Sequence[int], budget: int) -> Iterator[list[int]]:
        """See `BlockMaker.coded_groups`."""
        return spans(messages, budget // self.nbytes)

    def coded(self, messages: Sequence[int]) -> list[Block]:
        """See `BlockMaker.coded`."""
        if self.code.support is not None:
            return self._narrow(messages, self.code.support)
        g, (b, width) = len(messages), self.shape
        out = np.empty((g, b, width), dtype=self.dtype)
        flat = out.reshape(g, b * width)
        summed = self._summed()
        direct = self._aligned and out.dtype == summed
        scratch = np.empty(0 if direct else g * math.prod(self._strip(g)), dtype=summed)
        for i, i1, c, c1, blocks in self._strips(g):
            size = blocks.shape[1]
            if self.code.needs_whole_rows:  # rounded where it is written, if need be
                self.code.encode(blocks.reshape(-1, i1 - i, width), out[:, i:i1], messages=messages)
            elif direct:  # a strip along the memory order is one stretch of each block
                at = i * width + c
                self.code.encode(blocks, flat[:, at : at + size], messages=messages)
            else:
                strip = scratch[: g * size].reshape(g, size)
                self.code.encode(blocks, strip, messages=messages)
                out[:, i:i1, c:c1] = strip.reshape(g, i1 - i, c1 - c)
        return list(out)

    def _narrow(self, messages: Sequence[int], support: Support) -> list[Block]:
        """Return coded blocks of the columns that their messages need: strips are encoded whole, and then cut."""
        g, (b, width) = len(messages), self.shape
        columns = [support.columns(i, width) for i in messages]
        out = [np.empty((b, len(kept)), dtype=self.dtype) for kept in columns]
        scratch = np.empty((g, self._strip(g)[0], width), dtype=self._summed())
        for i, i1, _, _, blocks in self._strips(g):
            strip = self.code.encode(blocks.reshape(-1, i1 - i, width), scratch[:, : i1 - i], messages=messages)
            for made, kept, block in zip(strip, columns, out, strict=True):
                block[i:i1] = np.take(made, kept, axis=1)  # 3x faster than indexing
        return list(out)

    def _summed(self) -> np.dtype[Any]:
        """Return the type that sums are formed in."""
        return np.result_type(self._source.dtype, self.code.combination(0)[1])

    def _strips(self, n_coded: int) -> Iterator[tuple[int, int, int, int, Array]]:
        """Yield rows ``i..i1-1`` and entries ``c..c1-1`` of a strip, and these of all source blocks, ``(k, entries)``.

        The array is good until the next strip.
        """
        (b, width), k = self.shape, self.partition.k
        height, run = self._strip(n_coded)
        pieces = np.empty(k * height * run, dtype=self._source.dtype)
        for i in range(0, b, height):
            for c in range(0, width, run):
                self.check()
                i1, c1 = min(i + height, b), min(c + run, width)
                size = (i1 - i) * (c1 - c)
                yield i, i1, c, c1, self._gather(i, i1, c, c1, pieces[: k * size].reshape(k, size))

    def _strip(self, n_coded: int) -> tuple[int, int]:
        """Return rows and entries a row of one strip of a block."""
        b, width = self.shape
        entry = (self.partition.k + n_coded) * self._source.dtype.itemsize
        # Small blocks make small strips: what is held beside the blocks stays below one block for each core.
        most = min(_STRIP_BYTES, 7 * (os.cpu_count() or 1) * b * width * self._source.dtype.itemsize // 8)
        entries = max(min(_STRIP_LEAST, _STRIP_MOST // entry), most // entry, 1)
        if self.code.needs_whole_rows:
            return max(1, min(b, entries // width)), width
        if self._aligned:
            return (max(1, min(b, entries // width)), width) if entries >= width else (1, entries)
        run = min(width, max(_RUN, entries // b))
        return min(b, max(1, entries // run)), run

    def _gather(self, i0: int, i1: int, c0: int, c1: int, out: Array) -> Array:
        """Return the same entries of all source blocks, ``(k, entries)``: a view of the source, or in ``out``."""
        part, width = self.partition, self.shape[1]
        cube = out.reshape(part.k, i1 - i0, c1 - c0)
        start, size = i0 * width + c0, out.shape[1]
        if self._flat.size and (part.k - 1) * part.b * width + start + size <= self._flat.size:
            # Row j of the view starts one block after row j - 1 and the last one ends within the source (just checked).
            step = self._flat.itemsize
            return as_strided(self._flat[start:], (part.k, size), (part.b * width * step, step), writeable=False)
        if self._aligned and self._whole is not None:
            n_full = part.m // part.b
            full = self._whole[: n_full * part.b].reshape(n_full, part.b, width)  # splitting an axis is a view
            np.copyto(cube[:n_full], full[:, i0:i1, c0:c1])
            rest = range(n_full, part.k)
        elif not self._aligned and (i0, i1) == (0, part.b):
            table = out.reshape(part.k * part.b, c1 - c0)
            copy_tiled(table[: part.m], self._rows(0, part.m, c0, c1))
            table[part.m :] = 0
            return out
        else:
            rest = range(part.k)
        for j in rest:
            lo, hi = min(j * part.b + i0, part.m), min(j * part.b + i1, part.m)
            copy_tiled(cube[j, : hi - lo], self._rows(lo, hi, c0, c1))
            cube[j, hi - lo :] = 0
        return out


def _runs(blocks: Sequence[int]) -> Iterator[list[int]]:
    """Split ascending numbers into runs of consecutive ones."""
    run: list[int] = []
    for j in blocks:
        if run and j != run[-1] + 1:
            yield run
            run = []
        run.append(j)
    if run:
        yield run
