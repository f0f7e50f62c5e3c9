"""Decodability of polar codes, one arrival at a time.

Three nested tests: sequential decoding, peeling, rank. Sets of positions are Python integers, so one AND or OR
handles all positions of a stage at once. Fewer than ``k`` results never suffice, so nothing is tested before the
``k``-th.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, TypeAlias

from serverless_gc.codes.base import DENSE_BYTES, Tracker, Verdict, check_message
from serverless_gc.codes.polar.layout import Layout
from serverless_gc.codes.polar.schedule import (
    Averaging,
    Rows,
    Sequential,
    invert_hadamard,
    invert_plain,
    peel,
)
from serverless_gc.codes.polar.unknowns import NullSpace, undetermined_positions
from serverless_gc.codes.program import ZERO, Recorder

__all__ = ["Mode", "PeelTracker", "RankTracker", "SequentialTracker", "make_tracker", "missing_blocks", "name_rows"]

_MOST_ENTRIES = 1 << 23
"""Of the codewords that vanish on all arrivals: tens of megabytes. Up to some thousand workers there are far fewer."""

Mode: TypeAlias = Literal["sc", "peel", "rank"]


def name_rows(layout: Layout, present: int) -> Rows:
    """Name the row at each position: the worker's number, `ZERO` if shortened, None if absent."""
    rows: Rows = [None] * layout.length
    for worker, bit in enumerate(layout.bits):
        if present & bit:
            rows[layout.offset + worker] = worker
    for position in range(layout.offset + layout.n_workers, layout.length):
        rows[position] = ZERO
    return rows


def missing_blocks(layout: Layout, present: int, mode: Mode) -> tuple[int, ...]:
    """Blocks that the decoder of ``mode`` cannot reconstruct from the present positions."""
    if mode == "rank":
        open_ = undetermined_positions(layout, present)
        return tuple(t for t, i in enumerate(layout.info) if open_[i])
    recorder = Recorder(layout.n_workers)
    rows = name_rows(layout, present)
    hadamard = layout.kernel == "hadamard"
    if mode == "peel" and not hadamard:
        arrived = [(j, r) for j, r in enumerate(rows) if r is not None and r != ZERO]
        u, x = peel(recorder, layout, arrived)
        rows = x if layout.systematic else u
    else:
        rows = (Averaging(recorder) if hadamard else Sequential(recorder)).complete(layout.tree, rows)
        if not layout.systematic:
            rows = (invert_hadamard if hadamard else invert_plain)(recorder, layout, rows)
    missing = tuple(t for t, i in enumerate(layout.info) if rows[i] is None)
    if missing or layout.recoverable(present) & layout.info_mask == layout.info_mask:
        return missing
    if mode == "peel" and not hadamard:
        return ()
    # Values found on the way up can, rarely, complete a codeword that strictly sequential decoding gives up on.
    return tuple(t for t, i in enumerate(layout.info) if not (layout.systematic and present >> i & 1))


class _PolarTracker(Tracker):
    """Counts arrivals and asks `_test` once there are enough of them."""

    __slots__ = ("_bits", "_k", "_layout", "_no", "_seen", "_still_needed", "_yes")

    mode: Mode

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bits = layout.bits
        self._seen = layout.known_mask
        self._still_needed = len(layout.info)
        self._no = Verdict(decodable=False, missing=self.missing)
        self._yes: Verdict | None = None

    def add(self, message: int) -> Verdict:
        if message < 0 or message >= len(self._bits):
            check_message(message, len(self._bits))
        bit = self._bits[message]
        if not self._seen & bit:
            self._seen |= bit
            self._still_needed -= 1
            if self._still_needed <= 0 and self._yes is None and self._test(message):
                self._yes = Verdict(decodable=True)
        return self._yes or self._no

    @abstractmethod
    def _test(self, message: int) -> bool:
        """Whether all that was seen, the new message included, suffices."""

    @property
    def decodable(self) -> bool:
        return self._yes is not None

    def missing(self) -> tuple[int, ...]:
        return () if self._yes else missing_blocks(self._layout, self._seen, self.mode)


class SequentialTracker(_PolarTracker):
    """Accepts what sequential decoding resolves."""

    __slots__ = ("_info",)

    mode = "sc"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._info = layout.info_mask

    def _test(self, message: int) -> bool:  # noqa: ARG002  # the test looks at the whole mask
        return self._layout.recoverable(self._seen) & self._info == self._info


class PeelTracker(_PolarTracker):
    """Accepts what peeling on the butterfly graph resolves (binary kernel)."""

    __slots__ = ("_dirty", "_info", "_known")

    mode = "peel"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._info = layout.info_mask
        # One mask a level of the graph, data side last, so that they line up with ``layout.stages``.
        self._known = [0] * len(layout.stages) + [((1 << layout.length) - 1) & ~self._info]
        self._known[0] |= self._seen
        self._dirty = (1 << len(layout.stages)) - 1

    def _test(self, message: int) -> bool:  # noqa: ARG002  # arrivals before the first test come in together
        known, stages = self._known, self._layout.stages
        known[0] |= self._seen
        if not stages:
            return known[0] & self._info == self._info
        last = len(stages) - 1
        dirty, self._dirty = self._dirty | 1, 0
        while dirty:
            s = (dirty & -dirty).bit_length() - 1
            dirty &= dirty - 1
            half, low = stages[s]
            x, u = known[s], known[s + 1]
            x0, u0 = x & low, u & low
            second = (((x | u) >> half) & low) | (x0 & u0)
            first = second & (x0 | u0)
            new_x = x | first | second << half
            new_u = u | first | second << half
            if new_x != x:
                known[s] = new_x
                if s:
                    dirty |= 1 << (s - 1)
            if new_u != u:
                known[s + 1] = new_u
                if s < last:
                    dirty |= 1 << (s + 1)
        return known[-1] & self._info == self._info


class RankTracker(_PolarTracker):
    """Accepts every set of results that determines the data.

    Most verdicts come cheap: what sequential decoding resolves has full rank, and a data index whose own codeword
    meets no arrival has been lost. In between, the codewords that vanish on all arrivals are worked out once and
    then shrunk arrival by arrival. Where so much is lost that this, or the decode, would fill the memory, more results
    are awaited.
    """

    __slots__ = ("_fits", "_info", "_null")

    mode = "rank"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._info = layout.info_mask
        self._null: NullSpace | None = None
        k = len(layout.info)
        self._fits = 8 * k * (layout.length - k) <= DENSE_BYTES  # what a decode adds to lost blocks, from frozen rows

    def _test(self, message: int) -> bool:
        layout, info = self._layout, self._info
        if self._null is not None:
            self._null.add(layout.offset + message)
        else:
            lost = info & ~layout.recoverable(self._seen)
            if not lost:
                return True
            if not self._fits or lost.bit_count() * layout.length > _MOST_ENTRIES:
                return False
            if layout.touched(self._seen) & info != info:
                return False
            self._null = NullSpace(layout, self._seen)
        return self._null.dimension == 0


def make_tracker(layout: Layout, mode: Mode) -> Tracker:
    """Make a tracker; on the Hadamard kernel peeling resolves exactly what sequential decoding does."""
    if mode == "rank":
        return RankTracker(layout)
    if mode == "peel" and layout.kernel == "binary":
        return PeelTracker(layout)
    return SequentialTracker(layout)
