"""What peeling leaves over: a few unknowns in equations that each hold two of them or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from serverless_gc.codes.polar.unknowns import PRIME, rank_and_kernel
from serverless_gc.types import Array, FloatArray

__all__ = ["NullSpace", "Residual", "Sparse"]


class Sparse(Protocol):
    """Equations as compressed rows of variables."""

    indptr: Array
    indices: Array


@dataclass(frozen=True, slots=True)
class Residual:
    """The equations that peeling left open, restricted to the variables it left unknown.

    Attributes
    ----------
    unknowns
        Variables, ascending.
    equations
        Equations, ascending.
    matrix
        Zeros and ones, shape ``(n_equations, n_unknowns)``.
    """

    unknowns: Array
    equations: Array
    matrix: FloatArray

    @classmethod
    def of(cls, equations: Sparse, present: Array, known: Array) -> Residual:
        """Collect them.

        Parameters
        ----------
        equations
            Of the code.
        present
            Which equations hold.
        known
            Which variables peeling determined.
        """
        unknowns = np.flatnonzero(~known)
        place = np.full(len(known), -1)
        place[unknowns] = np.arange(len(unknowns))
        column = place[equations.indices]
        owner = np.repeat(np.arange(len(present)), np.diff(equations.indptr))
        kept = (column >= 0) & present[owner]
        rows, compact = np.unique(owner[kept], return_inverse=True)
        matrix = np.zeros((len(rows), len(unknowns)))
        matrix[compact, column[kept]] = 1.0
        return cls(unknowns, rows, matrix)

    @property
    def full_rank(self) -> bool:
        """Whether the equations determine the unknowns, in exact arithmetic."""
        return rank_and_kernel(self.matrix)[0] == len(self.unknowns)


class NullSpace:
    """Values of the unknowns that all arrived equations take for zero, modulo a prime; shrinks as messages arrive."""

    __slots__ = ("_basis", "_place", "_unknowns")

    def __init__(self, residual: Residual) -> None:
        self._unknowns = residual.unknowns
        self._place = {int(v): i for i, v in enumerate(residual.unknowns)}
        self._basis = rank_and_kernel(residual.matrix)[1]

    @property
    def dimension(self) -> int:
        """How many more well-placed messages are needed; 0 when everything is determined."""
        return int(self._basis.shape[1])

    def add(self, members: Array) -> None:
        """Record that the equation of these variables holds."""
        rows = [self._place[v] for v in members.tolist() if v in self._place]
        values = self._basis[rows].sum(axis=0) % PRIME
        hits = values.nonzero()[0]
        if not len(hits):
            return
        c = int(hits[0])
        column = self._basis[:, c] * pow(int(values[c]), -1, PRIME) % PRIME
        self._basis = (np.delete(self._basis, c, axis=1) - column[:, None] * np.delete(values, c)) % PRIME

    def undetermined(self) -> list[int]:
        """Variables that differ between solutions, ascending."""
        chosen: list[int] = self._unknowns[self._basis.any(axis=1)].tolist()
        return chosen
