"""Decode programs: straight-line row operations, worked out once for an arrival pattern, run on any data.

A decoder that only adds and subtracts rows is first run on *names* of rows. The recorded operations are cut down to
what the wanted rows need, temporary rows are reused, and the rest runs in column tiles that fit the cache, each
operation writing straight into its destination. Allocating a fresh row for every operation instead is four to five
times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.codes.blocks import same_memory
from serverless_gc.types import Array

__all__ = ["ADD", "HALF", "NEG", "SUB", "ZERO", "Program", "Recorder", "Row", "Step"]

Row: TypeAlias = int
"""Name of a row: inputs first, then one name an operation; `ZERO` is the row of structural zeros."""

ZERO: Row = -1
ADD, SUB, NEG, HALF = range(4)

Step: TypeAlias = tuple[np.ufunc, int, int, int]
"""Function, first operand, second operand, destination."""

_Call: TypeAlias = tuple[Callable[[Array, Array, Array], object], int, int, int]

_TILE_BYTES = 16 << 20
"""Temporaries and checks of one tile: a good part of a last-level cache; in smaller tiles call overhead counts more."""
_TILE_MIN, _TILE_MAX = 2048, 16384


class Recorder:
    """Collects row operations; structural zeros cost nothing.

    Parameters
    ----------
    n_inputs
        Number of input rows, named ``0..n_inputs-1``.
    """

    __slots__ = ("n_inputs", "ops")

    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.ops: list[tuple[int, Row, Row]] = []

    def emit(self, kind: int, a: Row, b: Row) -> Row:
        """Record an operation as it is and return the name of its result."""
        self.ops.append((kind, a, b))
        return self.n_inputs + len(self.ops) - 1

    def add(self, a: Row, b: Row) -> Row:
        """Name of ``a + b``."""
        if a < 0:
            return b
        return a if b < 0 else self.emit(ADD, a, b)

    def sub(self, a: Row, b: Row) -> Row:
        """Name of ``a - b``."""
        if b < 0:
            return a
        if a == b:
            return ZERO
        return self.emit(NEG, b, b) if a < 0 else self.emit(SUB, a, b)

    def half(self, a: Row) -> Row:
        """Name of ``a / 2``."""
        return a if a < 0 else self.emit(HALF, a, a)


@dataclass(frozen=True, slots=True)
class Program:
    """Row operations in execution order, over inputs, outputs, temporaries and two constants, numbered in that order.

    Attributes
    ----------
    n_inputs, n_outputs, n_checks, n_temps
        Numbers of rows. The checks are rows for the caller's own use within a tile.
    steps
        ``(function, first operand, second operand, destination)``.
    copies
        ``(step, output, row)`` where an output is an input unchanged, or another output: copied before that step, the
        first that reads the input. It is then read from memory once for both.
    zeros
        Outputs and checks that are zero.
    used
        Inputs that enter any output or check, ascending.
    """

    n_inputs: int
    n_outputs: int
    n_checks: int
    n_temps: int
    steps: tuple[Step, ...]
    copies: tuple[tuple[int, int, int], ...]
    zeros: tuple[int, ...]
    used: tuple[int, ...]

    @classmethod
    def build(cls, recorder: Recorder, outputs: Sequence[Row], checks: Sequence[Row] = ()) -> Program:
        """Keep what the outputs and checks need, and give each temporary a reusable row."""
        ops, n_in = recorder.ops, recorder.n_inputs
        wanted = [*outputs, *checks]
        order = _schedule(ops, n_in, wanted)
        last: dict[Row, Row] = {}
        for row in order:
            _, a, b = ops[row - n_in]
            last[a] = last[b] = row
        used = {r for r in [*last, *wanted] if 0 <= r < n_in}
        place: dict[Row, int] = {}
        same: list[tuple[int, int]] = []
        zeros: list[int] = []
        for position, row in enumerate(wanted, n_in):
            if row == ZERO:
                zeros.append(position)
            elif row < n_in or row in place:
                same.append((position, place.get(row, row)))
            else:
                place[row] = position
        base = n_in + len(wanted)
        steps, n_temps = _allocate(ops, order, n_in, base, last, place)
        copies = _before_first_use(same, steps, n_in)
        return cls(n_in, len(outputs), len(checks), n_temps, tuple(steps), copies, tuple(zeros), tuple(sorted(used)))

    @classmethod
    def arranged(cls, sizes: tuple[int, int, int, int], steps: list[Step], same: list[tuple[int, int]]) -> Program:
        """Take steps in an order of the caller's, over rows that it has numbered.

        Parameters
        ----------
        sizes
            Numbers of inputs, outputs, checks and temporaries. All inputs are used.
        steps
            To run.
        same
            ``(output or check, input)`` for each that is an input unchanged.
        """
        return cls(*sizes, tuple(steps), _before_first_use(same, steps, sizes[0]), (), tuple(range(sizes[0])))

    def run(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        dtype: Any,
        *,
        finish: Callable[[Sequence[Array], Array, slice], None] | None = None,
        tile: int | None = None,
    ) -> None:
        """Run on vectors.

        Parameters
        ----------
        inputs
            One vector an input; None for inputs that are not used.
        outputs
            Vectors to write. They may not overlap inputs, except that an output that is an unchanged input may be
            that input itself.
        dtype
            Type of the temporaries: that of inputs and outputs.
        finish
            Called after each tile with the tile of the outputs, the checks ``(n_checks, width)`` and the columns.
        tile
            Columns at a time; chosen from the number of temporaries by default.
        """
        if not self.n_outputs:
            return
        m = len(outputs[0])
        width = min(m, tile or self._tile(np.dtype(dtype).itemsize))
        width = -(-m // max(-(-m // max(width, 1)), 1))  # as few tiles, but of one size
        scratch = np.empty((self.n_checks + self.n_temps, width), dtype=dtype)
        constants = [np.array(-1.0, dtype=dtype), np.array(0.5, dtype=dtype)]
        rows = [(i, v) for i, v in enumerate(inputs) if v is not None]
        first_check = self.n_outputs + self.n_inputs
        calls = self._calls(inputs, outputs)
        for start in range(0, m, max(width, 1)):
            stop = min(start + width, m)
            here = scratch[:, : stop - start]
            tiles = [here] * self.n_inputs
            for i, v in rows:
                tiles[i] = v[start:stop]
            tiles += [v[start:stop] for v in outputs]
            tiles += list(here)
            tiles += constants
            for function, a, b, d in calls:
                function(tiles[a], tiles[b], tiles[d])
            for d in self.zeros:
                tiles[d].fill(0)
            if finish is not None:
                finish(tiles[self.n_inputs : first_check], here[: self.n_checks], slice(start, stop))

    def _calls(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Sequence[_Call]:
        """Return the steps with those copies in between that are not of a row onto itself."""
        calls: list[_Call] = []
        done = 0
        for at, d, a in self.copies:
            source = inputs[a] if a < self.n_inputs else None
            target = outputs[d - self.n_inputs] if d < self.n_inputs + self.n_outputs else None
            if source is None or target is None or not same_memory(source, target):
                calls += self.steps[done:at]
                calls.append((_copy, a, a, d))
                done = at
        return [*calls, *self.steps[done:]] if calls else self.steps

    def _tile(self, itemsize: int) -> int:
        live = max(self.n_checks + self.n_temps, 1) * itemsize
        return int(min(max(_TILE_BYTES // live // 512 * 512, _TILE_MIN), _TILE_MAX))


def _copy(source: Array, _: Array, target: Array) -> None:
    np.copyto(target, source)


def _before_first_use(same: list[tuple[int, int]], steps: list[Step], n_in: int) -> tuple[tuple[int, int, int], ...]:
    """Return when to copy: what is no input, or never read, at the end."""
    if not same:
        return ()
    first: dict[int, int] = {}
    for at, (_, a, b, _) in enumerate(steps):
        first.setdefault(a, at)
        first.setdefault(b, at)
    end = len(steps)
    return tuple(sorted((first.get(a, end) if a < n_in else end, d, a) for d, a in same))


def _schedule(ops: list[tuple[int, Row, Row]], n_in: int, wanted: Sequence[Row]) -> list[Row]:
    """Order what the wanted rows need depth first: each result right before its use.

    That drops everything else and keeps two to four times fewer temporaries alive than the order of recording. Which
    operation derives a row, and so its rounding, does not change.
    """
    order: list[Row] = []
    done = bytearray(b"\x01" * n_in + bytes(len(ops)))
    for row in wanted:
        stack = [] if row < 0 or done[row] else [row]
        while stack:
            r = stack[-1]
            _, a, b = ops[r - n_in]
            if not done[a]:
                stack.append(a)
            elif not done[b]:
                stack.append(b)
            else:
                done[r] = 1
                order.append(r)
                stack.pop()
    return order


def _allocate(
    ops: list[tuple[int, Row, Row]],
    order: list[Row],
    n_in: int,
    base: int,
    last: dict[Row, Row],
    place: dict[Row, int],
) -> tuple[list[Step], int]:
    """Turn operations into steps, reusing the row of a temporary after its last use."""
    steps: list[Step] = []
    scaled: list[tuple[int, int]] = []
    free: list[int] = []
    fresh = base
    for row in order:
        kind, a, b = ops[row - n_in]
        pa = a if a < n_in else place[a]
        pb = b if b < n_in else place[b]
        if pa >= base and last[a] == row:
            free.append(pa)
        if pb >= base and b != a and last[b] == row:
            free.append(pb)
        d = place.get(row)
        if d is None:
            if free:
                d = free.pop()
            else:
                d = fresh
                fresh += 1
            place[row] = d
        if kind == ADD:
            steps.append((np.add, pa, pb, d))
        elif kind == SUB:
            steps.append((np.subtract, pa, pb, d))
        else:
            scaled.append((len(steps), kind))
            steps.append((np.multiply, pa, pa, d))
    for index, kind in scaled:  # the constants follow the last temporary
        function, pa, _, d = steps[index]
        steps[index] = (function, pa, fresh if kind == NEG else fresh + 1, d)
    return steps, fresh - base
