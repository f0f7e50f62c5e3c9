"""Inactivation decoding: sequential decoding where it works, one small dense system for the rest.

Every set of results whose rank is ``k`` decodes. Data leaves that sequential decoding cannot resolve are set to
zero for the time being; what the frozen leaves then show is the linear trace of the true values. With ``x0`` the
rows so decoded, ``c`` the frozen rows, ``C`` and ``E`` how both depend on the unresolved leaves ``s``: ``E s = -c``
and ``x = x0 + C s``, that is ``x = x0 - (C E+) c``, one small matrix product on top of the row program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.polar.layout import Layout
from serverless_gc.codes.polar.schedule import Sequential, invert_hadamard, invert_plain
from serverless_gc.codes.polar.unknowns import Expansion, rank_and_kernel
from serverless_gc.codes.program import Program, Recorder, Row
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array, FloatArray

__all__ = ["Inactivation", "solve_pattern"]


@dataclass(frozen=True, slots=True)
class Inactivation:
    """A worked-out decode of one arrival pattern.

    Attributes
    ----------
    program
        Row operations; its outputs are still off by ``correction @ checks``.
    correction
        Shape ``(n_outputs, n_checks)``.
    unknowns
        Number of inactivated leaves.
    condition
        Condition number of the system solved for them; 1.0 when there were none.
    """

    program: Program
    correction: FloatArray
    unknowns: int
    condition: float

    def finish(self, dtype: np.dtype[np.generic]) -> Callable[[Sequence[Array], Array, slice], None]:
        """Make the per-tile correction for `Program.run`."""
        real = np.float32 if dtype in {np.dtype(np.float32), np.dtype(np.complex64)} else np.float64
        matrix = self.correction.astype(real)
        touched = np.flatnonzero(matrix.any(axis=1)).tolist()
        matrix = np.ascontiguousarray(matrix[touched])

        def correct(outputs: Sequence[Array], checks: Array, _: slice) -> None:
            shift = (matrix @ np.ascontiguousarray(checks).view(real)).view(dtype)
            for j, row in zip(touched, shift, strict=True):
                np.subtract(outputs[j], row, outputs[j])

        return correct


def _signs(indices: Sequence[int]) -> FloatArray:
    return np.array([-1.0 if i.bit_count() & 1 else 1.0 for i in indices])


def _unmix(layout: Layout, codeword: FloatArray) -> FloatArray:
    """Input of the plain transform for a codeword given as a matrix of coefficients."""
    u = codeword.copy()
    for half, _ in layout.stages:
        pairs = u.reshape(-1, 2, half, u.shape[1])
        if layout.kernel == "binary":
            pairs[:, 0] -= pairs[:, 1]
        else:
            pairs[:, 0], pairs[:, 1] = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
    return u


def solve_pattern(layout: Layout, rows: list[Row | None], present: int, lost: Sequence[int]) -> Inactivation | None:
    """Work out the decode of one arrival pattern.

    Parameters
    ----------
    layout
        The code.
    rows
        Name of the input row at each position; None where nothing arrived.
    present
        Mask of the positions that are known.
    lost
        Blocks to reconstruct.

    Returns
    -------
    Inactivation or None
        None when the arrivals do not determine the data.
    """
    expansion = Expansion(layout, present, modular=False)
    exact = expansion if expansion.exact else Expansion(layout, present, modular=True)
    if rank_and_kernel(exact.equations)[0] < exact.symbols:
        return None
    signed = layout.kernel == "hadamard"
    recorder = Recorder(layout.n_workers)
    walker = Sequential(recorder, signed=signed, inactivate=True)
    x = walker.complete(layout.tree, rows)
    values = expansion.values
    if signed:
        values = values * _signs(range(layout.length))[:, None]
    if not layout.systematic:
        x = invert_hadamard(recorder, layout, x) if signed else invert_plain(recorder, layout, x)
        values = _unmix(layout, values)
    wanted = [layout.info[t] for t in lost]
    outputs = [row for row in (x[i] for i in wanted) if row is not None]
    checks = walker.equations
    program = Program.build(recorder, outputs, checks)
    equations = expansion.equations
    if signed:
        equations = equations * _signs(expansion.checks)[:, None]
    if not exact.symbols:
        return Inactivation(program, np.zeros((len(outputs), len(checks))), 0, 1.0)
    with single_blas_thread():
        left, sizes, right = np.linalg.svd(equations, full_matrices=False)
        correction = (values[wanted] @ (right.T / sizes)) @ left.T
    return Inactivation(program, correction, exact.symbols, float(sizes[0] / sizes[-1]))
