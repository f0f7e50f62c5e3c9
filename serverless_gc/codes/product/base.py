"""What product and local-parity codes share: encoding and decoding by repairs of lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from serverless_gc.codes.base import Certificate, Code, check_message
from serverless_gc.codes.blocks import Output, as_row, as_rows, check_blocks, promoted, same_memory
from serverless_gc.codes.mds.parity import explicit_parity
from serverless_gc.codes.product.grids import Sides
from serverless_gc.codes.product.layout import Layout, Side, line_parity, tiled_layout
from serverless_gc.codes.product.peel import PeelTracker, Repair, Repairs, plan_repairs
from serverless_gc.codes.product.values import Check, Sweep
from serverless_gc.codes.received import (
    GUARD,
    TYPICAL,
    Received,
    accuracy_warning,
    default_tolerance,
    not_decodable,
    receive,
    refuse_inaccurate,
    refuse_mismatch,
    refuse_non_finite,
    solve_dtype,
    unit_roundoff,
    with_residual,
)
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["GridCode", "make_sides"]

_SLACK = 10.0
"""How far a mismatch of surplus messages may exceed the predicted error before it counts as a contradiction."""


def make_sides(sizes: Sides, parities: Sequence[ArrayLike] | None, seed: int) -> tuple[Side, Side]:
    """Make both directions of a grid, with the parity matrices given or the default ones.

    Raises
    ------
    InputError
        If a matrix given does not fit.
    """
    if parities is None:
        rows, columns = (Side(n, k, line_parity(n - k, k, seed)) for n, k in sizes)
    else:
        if len(parities) != 2:
            raise InputError(f"parities must be two matrices, one a direction, got {len(parities)}")
        try:
            given = zip(sizes, parities, strict=True)
            rows, columns = (Side(n, k, explicit_parity(matrix, n - k, k)) for (n, k), matrix in given)
        except InputError as error:
            raise InputError(f"parities, one matrix (n, k) a direction of grid {sizes}: {error}") from None
    return rows, columns


class GridCode(Code):
    """Blocks in one or several grids of one kind, with parity per row and per column, decoded by peeling.

    Subclasses choose the grids, in their constructor.
    """

    guard = GUARD

    def _lay_out(self, sides: tuple[Side, Side], tiles: int) -> None:
        """Set the structure: ``tiles`` grids of one kind, with the codes along the columns and along the rows."""
        self._sides = sides
        self._tiles = tiles
        self._layout, self._matrix = tiled_layout(sides, tiles, self.k)
        self._block_of = {cell: j for j, cell in enumerate(self._layout.sources)}
        self._empty = frozenset(self._layout.zeros)

    # -- structure -----------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Cells and lines; message ``i`` is cell ``i``."""
        return self._layout

    @property
    def grid(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """``((n1, k1), (n2, k2))``: ``n1`` rows of which ``k1`` hold data, ``n2`` columns of which ``k2`` do."""
        rows, columns = self._sides
        return (rows.n, rows.k), (columns.n, columns.k)

    @property
    def guaranteed_threshold(self) -> int:
        """Results of which every set decodes: ``n - (n1 - k1 + 1) (n2 - k2 + 1) + 1``.

        Fewer may do where padding leaves cells empty.
        """
        rows, columns = self._sides
        return self.n_workers - (rows.n - rows.k + 1) * (columns.n - columns.k + 1) + 1

    def _build_generator(self) -> FloatArray:
        return self._matrix

    def source_of(self, message: int) -> int | None:
        """Index of the source block that ``message`` carries unchanged, or None if it is a combination or padding."""
        check_message(message, self.n_workers)
        return self._block_of.get(message)

    # -- encoding ------------------------------------------------------------------------------------

    @cached_property
    def _parity_cells(self) -> tuple[int, ...]:
        return tuple(i for i in range(self.n_workers) if i not in self._block_of and i not in self._empty)

    @cached_property
    def _encoding(self) -> tuple[Repair, ...]:
        return plan_repairs(self._layout, self._layout.sources, self._parity_cells).steps

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Copy the source blocks and compute the parity line by line; see `Code.encode`.

        Where ``out[i]`` already is the block that message ``i`` carries nothing is copied.
        """
        ids = range(self.n_workers) if messages is None else messages
        for i in ids:
            check_message(i, self.n_workers)
        arrays, dtype = check_blocks(blocks, self.k)
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        sources = as_rows(blocks, arrays, dtype)
        rows = {cell: sources[j] for j, cell in enumerate(self._layout.sources)}
        copies: list[tuple[Array, Array]] = []
        first: dict[int, int] = {}  # a message asked for twice is computed once
        for row, i in enumerate(ids):
            block, target = self._block_of.get(i), output.array[row, ...]
            if block is not None:
                if not same_memory(target, arrays[block]):
                    copies.append((rows[i], as_row(target, dtype)))
            elif i in self._empty:
                target[...] = 0
            elif first.setdefault(i, row) == row:
                rows[i] = as_row(target, dtype)
        steps = self._encoding
        if messages is not None:
            steps = plan_repairs(self._layout, self._layout.sources, tuple(first)).steps
        Sweep(rows, steps, copies, np.dtype(np.finfo(dtype).dtype)).run()
        for row, i in enumerate(ids):
            if first.get(i, row) != row:
                output.array[row] = output.array[first[i]]
        return output.finish()

    # -- decoding ------------------------------------------------------------------------------------

    def tracker(self) -> PeelTracker:
        """Make a fresh tracker; its ``known()`` says which source blocks can be had so far."""
        return PeelTracker(self._layout)

    def known_blocks(self, messages: Iterable[int]) -> tuple[int, ...]:
        """Source blocks that these messages already determine."""
        tracker = self.tracker()
        for i in messages:
            tracker.add(i)
        return tracker.known()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Follows rounding errors as variances through the repairs. Further results shorten the chains of repairs.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block; names the cells that are stuck.
        """
        ids = sorted(set(messages))
        return self._certificate(ids, self._plan(ids), promoted(np.dtype(dtype)))

    def _plan(self, ids: Sequence[int]) -> Repairs:
        tracker = self.tracker()
        for i in ids:
            tracker.add(i)
        if not tracker.decodable:
            cells = tracker.stuck()
            shown = ", ".join(map(self._cell_name, cells[:10])) + (", ..." if len(cells) > 10 else "")
            hint = f"{len(cells)} cells of the grid are stuck: {shown}; one result among them frees at least a line"
            raise not_decodable(self.name, len(ids), tracker.missing(), hint)
        return plan_repairs(self._layout, ids, self._layout.sources)

    def _cell_name(self, cell: int) -> str:
        rows, columns = self._sides
        tile, place = divmod(cell, rows.n * columns.n)
        position = divmod(place, columns.n)
        return f"{position}" if self._tiles == 1 else f"{position} of tile {tile}"

    def _certificate(self, ids: Sequence[int], repairs: Repairs, dtype: np.dtype[Any]) -> Certificate:
        arrived = set(ids)
        used = arrived.intersection(self._layout.sources)
        if not repairs.steps:
            return Certificate("systematic", used=tuple(sorted(used)))
        for step in repairs.steps:
            used |= arrived.intersection(step.sources)
        predicted = TYPICAL * unit_roundoff(dtype) * math.sqrt(math.fsum(repairs.variances) / self.k)
        return Certificate(
            "peel",
            used=tuple(sorted(used)),
            amplification=math.sqrt(max(repairs.variances)),
            predicted_error=predicted,
            warning=accuracy_warning(predicted, dtype),
        )

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Repair the lost blocks line by line; see `Code.decode`.

        Only what the lost blocks depend on is computed. Surplus messages are compared with what the answer says they
        should be.

        Raises
        ------
        InputError
            Also if a message that reached a lost block holds NaN or infinity; names it.
        """
        got = receive(values, self.n_workers)
        repairs = self._plan(got.ids)
        certificate = self._certificate(got.ids, repairs, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        rows = {i: as_row(got.values[i], got.dtype) for i in got.ids}
        answer = output.rows(range(self.k))
        copies: list[tuple[Array, Array]] = []
        lost: list[Array] = []
        for j, cell in enumerate(self._layout.sources):
            if cell not in rows:
                rows[cell] = answer[j]
                lost.append(answer[j])
            elif not same_memory(got.values[cell], output.array[j, ...]):
                copies.append((rows[cell], answer[j]))
        surplus = len(self._empty.union(got.ids)) - len(self._empty) - self.k
        check = self._check(got, answer) if surplus > 0 else None
        residual = Sweep(rows, repairs.steps, copies, solve_dtype(got.dtype, certificate), check).run(scale)
        refuse_non_finite(got, lost, residual)
        limit = max(tolerance or 0.0, default_tolerance(got.dtype), _SLACK * certificate.predicted_error)
        refuse_mismatch(self.name, residual, limit, surplus)
        return output.finish(), with_residual(certificate, residual, surplus)

    def _check(self, got: Received, answer: Array | Sequence[Array]) -> Check:
        """Compare a random combination of the parity that arrived with that of the answer.

        It involves every message that another one can contradict.
        """
        parity = [i for i in got.ids if i not in self._block_of and i not in self._empty]
        weights = np.random.default_rng(0).standard_normal(len(parity))
        expected = -weights @ self._matrix[parity]
        length = float(np.hypot(np.linalg.norm(weights), np.linalg.norm(expected)))
        return Check(answer, expected / length, got.rows(parity, got.dtype), weights / length)

    # -- identity ------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the parity matrices of both directions included."""
        rows, columns = self._sides
        return {**super().manifest(), "parities": [rows.parity, columns.parity]}
