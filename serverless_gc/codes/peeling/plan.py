"""A peeling decode worked out for one arrival pattern, run round by round or operation by operation.

Rounds of sparse products cost next to nothing to prepare, and have little overhead where rows are short. Row operations
read the messages where they are, which pays for long rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from serverless_gc.codes.blocks import same_memory
from serverless_gc.codes.peeling.elimination import eliminations
from serverless_gc.codes.peeling.equations import Equations, gather
from serverless_gc.codes.peeling.residual import Residual
from serverless_gc.codes.peeling.schedule import Schedule
from serverless_gc.codes.peeling.sums import LONG, gathered, write_columns
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array, FloatArray

__all__ = ["PeelPlan", "plan_peel"]

_SHARED = 16.0
"""Margin of the mean square errors that a dense solve leads to; without it they were up to 5 times too small."""

_RANK = 1e-10
"""Ratio of singular values below which a system is singular as far as double precision can tell."""


@dataclass(frozen=True, slots=True)
class PeelPlan:
    """What to compute, and how large its errors will be.

    Attributes
    ----------
    messages
        Message each row starts from, -1 for zero.
    bounds
        Round ``r`` is the rows ``bounds[r]:bounds[r + 1]``.
    indptr, operands
        Row ``t`` subtracts the rows ``operands[indptr[t]:indptr[t + 1]]``, all of earlier rounds.
    peeled, rows
        Wanted variables that were peeled, and the row of each.
    solved
        Wanted variables that the dense solve gives.
    solution
        Shape ``(len(solved), n_open)``: their values from the last ``n_open`` rows.
    unknowns
        Size of the dense system.
    condition
        Its condition number; 1.0 without one.
    noise, own
        Mean square error of each wanted variable that rounding of the messages, and of the decoder, leads to; in units
        of the square of the unit roundoff of either.
    """

    messages: Array
    bounds: tuple[int, ...]
    indptr: Array
    operands: Array
    peeled: Array
    rows: Array
    solved: Array
    solution: FloatArray
    unknowns: int
    condition: float
    noise: FloatArray
    own: FloatArray

    @property
    def used(self) -> list[int]:
        """Messages that enter the answer, ascending."""
        return sorted(set(self.messages[self.messages >= 0].tolist()))

    def run(
        self,
        values: Mapping[int, Array],
        targets: Array | Sequence[Array],
        dtype: np.dtype[np.generic],
        carried: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Compute the wanted variables, and copy others.

        Parameters
        ----------
        values
            Message id to its value, as a row of real numbers.
        targets
            One row a variable; those of wanted and carried variables are written. They may be the memory of messages
            that carry them: a tile is read before it is written.
        dtype
            In which the sums are taken.
        carried
            Variables to copy, and the message that carries each.
        """
        solution = self.solution.astype(dtype, copy=False)
        if len(targets[0]) >= LONG and self._runs_as_program([targets[0], *values.values()], dtype):
            with single_blas_thread():
                self._run_program(values, targets, solution, carried)
            return
        for variable, message in carried.items():
            if not same_memory(targets[variable], values[message]):
                targets[variable][...] = values[message]
        if len(self.messages):
            with single_blas_thread():
                self._run_sparse(values, targets, solution)

    def _runs_as_program(self, rows: Sequence[Array], dtype: np.dtype[np.generic]) -> bool:
        if not len(self.peeled) or any(row.dtype != dtype for row in rows):
            return False
        # A sum of nothing is zero: checks of a single variable say so.
        return not ((self.messages < 0) & (np.diff(self.indptr) == 0)).any()

    def _run_sparse(self, values: Mapping[int, Array], targets: Array | Sequence[Array], solution: Array) -> None:
        """Round by round, each one sparse product."""
        dtype = solution.dtype
        zeros = np.zeros(len(targets[0]), dtype)
        sources = [zeros if i < 0 else values[i] for i in self.messages.tolist()]
        rounds = [(first, last, self._matrix(first, last, dtype)) for first, last in pairwise(self.bounds[1:])]
        for columns, tile in gathered(sources, dtype):
            for first, last, matrix in rounds:
                tile[first:last] -= matrix @ tile
            write_columns(targets, self.peeled, columns, tile[self.rows])
            if len(self.solved):
                write_columns(targets, self.solved, columns, solution @ tile[len(tile) - solution.shape[1] :])

    def _matrix(self, first: int, last: int, dtype: np.dtype[Any]) -> sp.csr_array:
        """Return what rows ``first:last`` subtract."""
        start, stop = self.indptr[first], self.indptr[last]
        return sp.csr_array(
            (np.ones(stop - start, dtype), self.operands[start:stop], self.indptr[first : last + 1] - start),
            shape=(last - first, len(self.messages)),
        )

    def _run_program(
        self,
        values: Mapping[int, Array],
        targets: Array | Sequence[Array],
        solution: Array,
        carried: Mapping[int, int],
    ) -> None:
        """Operation by operation, straight from the messages to the targets; what is copied, when it is first read."""
        ids = sorted(values)
        n_open = solution.shape[1] if len(self.solved) else 0
        program, width = eliminations(
            self.messages, self.indptr, self.operands, self.rows, n_open, ids, list(carried.values())
        )

        def solve(_: Sequence[Array], checks: Array, columns: slice) -> None:
            write_columns(targets, self.solved, columns, solution @ checks)

        written = [targets[v] for v in [*self.peeled.tolist(), *carried]]
        finish = solve if len(self.solved) else None
        program.run([values[i] for i in ids], written, solution.dtype, finish=finish, tile=width // solution.itemsize)


def plan_peel(
    equations: Equations, schedule: Schedule, wanted: Sequence[int], residual: Residual | None = None
) -> PeelPlan:
    """Work out how to compute the wanted variables.

    Parameters
    ----------
    equations
        Of the code.
    schedule
        What peeling determines.
    wanted
        Variables to compute.
    residual
        What is left for a dense solve, of full rank, if any wanted variable is among it.
    """
    order = _Steps.of(equations, schedule, residual).needed_for(wanted)
    noise, own = order.variances(equations)
    variables = np.asarray(wanted, dtype=np.int64)
    rows = order.place[variables]
    peeled, solved = rows >= 0, rows < 0
    solution, condition = np.zeros((0, 0)), 1.0
    errors = np.empty((2, len(variables)))
    errors[:, peeled] = noise[rows[peeled]], own[rows[peeled]]
    if residual is not None:
        inverse, condition = _pseudo_inverse(residual)
        solution = inverse[np.searchsorted(residual.unknowns, variables[solved])]
        first = len(noise) - len(residual.equations)
        # Errors of rows that share operands are not independent, and the product rounds.
        weights = _SHARED * np.square(solution)
        errors[:, solved] = weights @ noise[first:], weights @ own[first:]
    starts = np.where(order.equations < equations.n_messages, order.equations, -1)
    return PeelPlan(
        starts,
        order.bounds,
        order.indptr,
        order.indices,
        variables[peeled],
        rows[peeled],
        variables[solved],
        solution,
        0 if residual is None else len(residual.unknowns),
        condition,
        errors[0],
        errors[1],
    )


def _pseudo_inverse(residual: Residual) -> tuple[FloatArray, float]:
    """Return it with the condition number, infinite if double precision cannot tell the system from a singular one."""
    with single_blas_thread():
        u, sizes, vt = np.linalg.svd(residual.matrix, full_matrices=False)
        if sizes[-1] <= _RANK * sizes[0]:
            return np.zeros(residual.matrix.T.shape), np.inf
        return (vt.T / sizes) @ u.T, float(sizes[0] / sizes[-1])


@dataclass(frozen=True, slots=True)
class _Steps:
    """Rows in order of execution: row ``t`` is its equation's message less the rows ``indices[indptr[t]:...]``."""

    equations: Array
    bounds: tuple[int, ...]
    indptr: Array
    indices: Array
    place: Array
    """Row of each variable, -1 where none determines it."""
    n_open: int
    """Rows at the end that determine nothing by themselves: what the dense solve starts from."""

    @classmethod
    def of(cls, equations: Equations, schedule: Schedule, residual: Residual | None) -> _Steps:
        place = np.full(equations.n_variables, -1, dtype=np.int64)
        place[schedule.variables] = np.arange(len(schedule.variables))
        rows, bounds = schedule.equations, schedule.bounds
        n_open = 0 if residual is None else len(residual.equations)
        if residual is not None:
            rows = np.concatenate([rows, residual.equations])
            bounds = (*bounds, len(rows))
        where, counts = gather(equations.indptr, rows)
        members = equations.indices[where]
        owner = np.repeat(np.arange(len(rows)), counts)
        row = place[members]
        kept = (row >= 0) & (row != owner)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[kept], minlength=len(rows)))])
        return cls(rows, bounds, indptr, row[kept], place, n_open)

    def needed_for(self, wanted: Sequence[int]) -> _Steps:
        """Leave out the rows that no wanted variable depends on."""
        needed = np.zeros(len(self.equations), dtype=bool)
        rows = self.place[np.asarray(wanted, dtype=np.int64)]
        needed[rows[rows >= 0]] = True
        needed[len(needed) - self.n_open :] = True
        for first, last in reversed(list(zip(self.bounds[1:], self.bounds[2:], strict=False))):
            where, _ = gather(self.indptr, first + np.flatnonzero(needed[first:last]))
            needed[self.indices[where]] = True
        if needed.all():
            return self
        moved = np.concatenate([[0], np.cumsum(needed)])
        where, counts = gather(self.indptr, np.flatnonzero(needed))
        place = np.where((self.place >= 0) & needed[self.place], moved[self.place], -1)
        bounds = tuple(dict.fromkeys(moved[list(self.bounds)].tolist()))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return _Steps(self.equations[needed], bounds, indptr, moved[self.indices[where]], place, self.n_open)

    def variances(self, equations: Equations) -> tuple[FloatArray, FloatArray]:
        """Return the mean square errors of all rows; see `PeelPlan`."""
        own, start = (errors[self.equations] for errors in equations.variances)
        counts = np.diff(self.indptr)
        for first, last in pairwise(self.bounds[1:]):
            operands = self.indices[self.indptr[first] : self.indptr[last]]
            owner = np.repeat(np.arange(last - first), counts[first:last])
            for errors in (start, own):
                errors[first:last] += np.bincount(owner, weights=errors[operands], minlength=last - first)
        return start, own
