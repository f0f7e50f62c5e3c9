"""Decoding one arrival pattern of a polar code: choose the method and run it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.polar.inactivation import Inactivation, solve_pattern
from serverless_gc.codes.polar.layout import Layout
from serverless_gc.codes.polar.schedule import Averaging, Sequential, invert_hadamard, invert_plain, peel
from serverless_gc.codes.polar.trackers import Mode, name_rows
from serverless_gc.codes.program import ZERO, Program, Recorder
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["Plan", "Received", "mismatch", "plan_decode", "sample_columns"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run for one arrival pattern.

    Attributes
    ----------
    method
        ``"systematic"``, ``"copy"``, ``"sc"``, ``"peel"`` or ``"inactivation"``.
    program
        Row operations from messages to the lost blocks; None when nothing is lost.
    solution
        The dense part, for inactivation.
    scale
        Factor of the outputs.
    """

    method: str
    program: Program | None = None
    solution: Inactivation | None = None
    scale: float = 1.0

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array], dtype: np.dtype[np.generic]) -> None:
        """Write the lost blocks."""
        if self.program is None:
            return
        steps: list[Callable[[Sequence[Array], Array, slice], None]] = []
        if self.solution is not None and self.solution.unknowns:
            steps.append(self.solution.finish(dtype))
        if self.scale != 1.0:
            factor = np.array(self.scale, dtype=dtype)

            def rescale(rows: Sequence[Array], _checks: Array, _columns: slice) -> None:
                for row in rows:
                    np.multiply(row, factor, row)

            steps.append(rescale)

        def finish(rows: Sequence[Array], checks: Array, columns: slice) -> None:
            for step in steps:
                step(rows, checks, columns)

        with nullcontext() if self.solution is None else single_blas_thread():
            self.program.run(inputs, outputs, dtype, finish=finish if steps else None)


def plan_decode(layout: Layout, mode: Mode, present: int, lost: Sequence[int]) -> Plan | None:
    """Work out how to reconstruct the lost blocks; None if ``mode`` cannot.

    Parameters
    ----------
    layout
        The code.
    mode
        Which sets of results decode.
    present
        Mask of the positions that are known.
    lost
        Blocks that no message carries unchanged.
    """
    if not lost:
        return Plan("systematic" if layout.systematic else "copy")
    rows = name_rows(layout, present)
    scale = layout.group_length**-0.5 if layout.kernel == "hadamard" and not layout.systematic else 1.0
    if layout.recoverable(present) & layout.info_mask != layout.info_mask:
        if mode == "rank":
            solution = solve_pattern(layout, rows, present, lost)
            return None if solution is None else Plan("inactivation", solution.program, solution, scale)
        if mode == "sc" or layout.kernel == "hadamard":
            return None
    recorder = Recorder(layout.n_workers)
    method = "sc"
    if layout.recoverable(present) & layout.info_mask != layout.info_mask:
        method = "peel"
        arrived = [(j, r) for j, r in enumerate(rows) if r is not None and r != ZERO]
        u, x = peel(recorder, layout, arrived)
        decoded = x if layout.systematic else u
    elif layout.kernel == "hadamard":
        decoded = Averaging(recorder).complete(layout.tree, rows)
        if not layout.systematic:
            decoded = invert_hadamard(recorder, layout, decoded)
    else:
        decoded = Sequential(recorder).complete(layout.tree, rows)
        if not layout.systematic:
            decoded = invert_plain(recorder, layout, decoded)
    outputs = [row for row in (decoded[layout.info[t]] for t in lost) if row is not None]
    if len(outputs) < len(lost):
        return None
    return Plan(method, Program.build(recorder, outputs), None, scale)


class Received:
    """The arrived values as vectors of one type, and the rows to write.

    Parameters
    ----------
    values
        Message id to value.
    out
        Where to write, shape ``(k, ...)``, or None.
    k
        Number of source blocks.
    sources
        Message to the block it carries unchanged.

    Raises
    ------
    InputError
        If shapes differ or the values are not numeric.
    """

    __slots__ = ("_out", "_result", "direct", "dtype", "lost", "rows", "vectors")

    def __init__(self, values: Mapping[int, Array], out: Array | None, k: int, sources: Mapping[int, int]) -> None:
        arrays = {int(message): np.asarray(value) for message, value in values.items()}
        shape = _common_shape(arrays)
        self.dtype = _work_dtype(arrays, out)
        if arrays and out is not None and out.shape != (k, *shape):
            raise InputError(f"out must have shape {(k, *shape)}, got {out.shape}")
        self.vectors = {message: np.ascontiguousarray(a, dtype=self.dtype).reshape(-1) for message, a in arrays.items()}
        self._out = out
        usable = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        self._result: Array = out if usable and out is not None else np.empty((k, *shape), dtype=self.dtype)
        self.rows: Array = self._result.reshape(k, -1)
        self.direct: dict[int, int] = {}
        for message in self.vectors:
            block = sources.get(message)
            if block is not None:
                self.direct.setdefault(block, message)
        self.lost = [t for t in range(k) if t not in self.direct]

    def copy_direct(self) -> None:
        """Put blocks that arrived unchanged into place; one that is there already is not touched."""
        in_place = self._out is self._result
        for block, message in self.direct.items():
            vector, row = self.vectors[message], self.rows[block]
            if not (in_place and np.may_share_memory(vector, row)):
                np.copyto(row, vector)

    def inputs(self, n: int) -> list[Array | None]:
        """One vector a message, None where nothing arrived."""
        return [self.vectors.get(message) for message in range(n)]

    def result(self) -> Array:
        """Return the decoded blocks, in ``out`` if that was given."""
        if self._out is not None and self._out is not self._result:
            self._out[...] = self._result
            return self._out
        return self._result


def _common_shape(arrays: Mapping[int, Array]) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    first: int | None = None
    for message, a in arrays.items():
        if first is None:
            first, shape = message, a.shape
        elif a.shape != shape:
            raise InputError(
                f"all results must have one shape: message {first} has {shape}, message {message} {a.shape}"
            )
    return shape


def _work_dtype(arrays: Mapping[int, Array], out: Array | None) -> np.dtype[np.generic]:
    """Type to compute in: that of the values (integers and float16 in float64), or of a wider ``out``."""
    kinds = {a.dtype for a in arrays.values()}
    for kind in kinds:
        if kind.kind not in "biufc":
            raise InputError(f"results must be numeric, got dtype {kind}")
    dtype: np.dtype[np.generic] = np.result_type(*kinds) if kinds else np.dtype(np.float64)
    if dtype.kind not in "fc" or dtype.itemsize < 4:
        dtype = np.dtype(np.float64)
    if out is not None:
        if not np.can_cast(dtype, out.dtype, "same_kind"):
            raise InputError(f"out must hold {dtype} values, got dtype {out.dtype}")
        if np.can_cast(dtype, out.dtype, "safe"):
            dtype = out.dtype
    return dtype


def sample_columns(m: int, groups: int = 4, width: int = 8) -> Array:
    """Choose a few short runs of columns, evenly spread: enough to expose a wrong result, cheap to read."""
    if m <= groups * width:
        return np.arange(m)
    starts = np.linspace(0, m - width, groups).astype(np.intp)
    return (starts[:, None] + np.arange(width)).reshape(-1)


def mismatch(expected: Array, received: Array, scale: float = 0.0) -> float:
    """Return the difference of two stacks of rows, relative to their size or to that of entries of ``scale``."""
    size = max(float(np.linalg.norm(received)), scale * math.sqrt(received.size))
    difference = float(np.linalg.norm(expected - received))
    return difference / size if size else difference
