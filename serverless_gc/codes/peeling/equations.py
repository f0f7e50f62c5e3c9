"""Peeling: an equation with one unknown left determines it, which may leave others with one.

One structure serves LT and LDPC codes: sparse equations with coefficients one. Equation ``i`` of the first
``n_messages`` says that the sum of its variables is message ``i`` and holds once that message has arrived; the
equations after these say that a sum is zero and hold from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.peeling.residual import NullSpace, Residual
from serverless_gc.types import Array

__all__ = ["Equations", "PeelTracker", "gather", "pack"]


def pack(lists: Iterable[Sequence[int] | Array]) -> tuple[Array, Array]:
    """Pack lists of indices as compressed rows: ``indices[indptr[i]:indptr[i + 1]]`` is list ``i``.

    Examples
    --------
    >>> pack([[0, 2], [], [1]])
    (array([0, 2, 2, 3]), array([0, 2, 1]))
    """
    arrays = [np.asarray(a, dtype=np.int64) for a in lists]
    indptr = np.concatenate([[0], np.cumsum([len(a) for a in arrays], dtype=np.int64)])
    return indptr, np.concatenate([np.empty(0, np.int64), *arrays])


def gather(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Return where the entries of these compressed rows are, row after row, and how many each has."""
    counts = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(indptr[rows] - (ends - counts), counts) + np.arange(total), counts


class Equations:
    """Sparse equations among ``n_variables`` unknowns, the first ``k`` of which are the source blocks.

    Parameters
    ----------
    indptr, indices
        Variables of each equation, as compressed rows.
    n_variables, k, n_messages
        Numbers of unknowns, of source blocks, and of equations that belong to a message.
    energy
        Mean square of each variable for data of unit mean square; ones by default.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        n_variables: int,
        k: int,
        n_messages: int,
        energy: Array | None = None,
    ) -> None:
        self.indptr, self.indices = indptr, indices
        self.n_variables, self.k, self.n_messages = n_variables, k, n_messages
        self.degrees: Array = np.diff(indptr)
        self.energy: Array = np.ones(n_variables) if energy is None else energy
        owner = np.repeat(np.arange(len(self)), self.degrees)
        self.index_sums: Array = self._per_equation(owner, indices).astype(np.int64)
        self.energies: Array = self._per_equation(owner, self.energy[indices])
        self._owner: Array = owner[np.argsort(indices, kind="stable")]
        self._starts: Array = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=n_variables))])

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def _per_equation(self, owner: Array, weights: Array) -> Array:
        return np.bincount(owner, weights=weights, minlength=len(self))

    def members(self, equation: int) -> Array:
        """Variables of one equation."""
        return self.indices[self.indptr[equation] : self.indptr[equation + 1]]

    def containing(self, variables: Array) -> tuple[Array, Array]:
        """Return the equations that hold each of these variables, one after the other, and how many each is in."""
        where, counts = gather(self._starts, variables)
        return self._owner[where], counts

    def present(self, messages: Iterable[int]) -> Array:
        """Return which equations hold once these messages arrived."""
        mask = np.zeros(len(self), dtype=bool)
        mask[self.n_messages :] = True
        mask[list(messages)] = True
        return mask

    @cached_property
    def carried(self) -> Array:
        """Source block that each message carries unchanged, -1 for a sum."""
        n = self.n_messages
        return np.where((self.degrees[:n] == 1) & (self.index_sums[:n] < self.k), self.index_sums[:n], -1)

    @cached_property
    def variances(self) -> tuple[Array, Array]:
        """Mean square rounding that evaluating each equation adds, and the mean square of the message it starts from.

        Of ``q`` subtractions from a sum of ``q + 1`` sources the results have ``q, q - 1, ..., 1`` terms: ``q (q + 1) /
        2`` in all. In units of the square of the unit roundoff.
        """
        start = self.energies.copy()
        start[self.n_messages :] = 0.0
        return np.maximum(self.degrees - 1, 0) / 2 * self.energies, start

    @cached_property
    def lists(self) -> tuple[list[int], list[int], list[list[int]]]:
        """Degree and exclusive or of the variables of each equation, and the equations of each variable.

        As lists: one arrival at a time is quicker with them than with arrays.
        """
        combined = np.zeros(len(self), dtype=np.int64)
        filled = np.flatnonzero(self.degrees)
        if len(filled):
            combined[filled] = np.bitwise_xor.reduceat(self.indices, self.indptr[filled])
        owner, starts = self._owner.tolist(), self._starts.tolist()
        return (
            self.degrees.tolist(),
            combined.tolist(),
            [owner[a:b] for a, b in pairwise(starts)],
        )


class PeelTracker(Tracker):
    """Decodable when peeling determines every source block, or leaves a small system of full rank.

    Each equation keeps the number of its unknown variables and the exclusive or of their indices: when one is left,
    that *is* its index. Every entry of an equation is visited once over all arrivals.

    Parameters
    ----------
    equations
        Of the code.
    inactivation
        Variables that peeling may leave to a dense solve. The rank is then that of all equations over the rationals,
        up to a chance of ``2**-31``.
    """

    __slots__ = (
        "_count",
        "_equations",
        "_known",
        "_left",
        "_limit",
        "_no",
        "_null",
        "_of",
        "_open",
        "_present",
        "_unknown",
        "_xor",
        "_yes",
    )

    def __init__(self, equations: Equations, inactivation: int = 0) -> None:
        count, combined, self._of = equations.lists
        self._equations = equations
        self._limit = inactivation
        self._count, self._xor = count.copy(), combined.copy()
        self._known = bytearray(equations.n_variables)
        self._left, self._unknown = equations.k, equations.n_variables
        self._null: NullSpace | None = None
        n = equations.n_messages
        self._present = bytearray(n) + b"\x01" * (len(equations) - n)
        self._open = sum(c > 1 for c in count[n:])
        """Equations that hold and have two unknowns or more: what a dense solve would work with."""
        self._no = Verdict(decodable=False, missing=self.missing)
        self._yes: Verdict | None = None
        self._peel([self._xor[e] for e in range(n, len(equations)) if count[e] == 1])

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._equations.n_messages)
        if self._present[message] or self._yes is not None:
            return self._yes or self._no
        self._present[message] = 1
        if self._null is not None:
            self._null.add(self._equations.members(message))
        elif (left := self._count[message]) == 1:
            self._peel([self._xor[message]])
        elif left:
            self._open += 1
        if self._left == 0 or (self._limit and self._full_rank()):
            self._yes = Verdict(decodable=True)
        return self._yes or self._no

    def _peel(self, queue: list[int]) -> None:
        """Resolve these variables and whatever follows, first in first out."""
        count, combined, present, known, of = self._count, self._xor, self._present, self._known, self._of
        k = self._equations.k
        for v in queue:
            if known[v]:
                continue
            known[v] = 1
            self._unknown -= 1
            if v < k:
                self._left -= 1
            for e in of[v]:
                combined[e] ^= v
                left = count[e] = count[e] - 1
                if left == 1 and present[e]:
                    self._open -= 1
                    queue.append(combined[e])

    def _full_rank(self) -> bool:
        if self._null is None:
            if self._unknown > self._limit or self._open < self._unknown:
                return False
            self._null = self._null_space()
        return self._null.dimension == 0

    def _null_space(self) -> NullSpace:
        mask = np.frombuffer(self._present, dtype=np.uint8).astype(bool)
        known = np.frombuffer(self._known, dtype=np.uint8).astype(bool)
        return NullSpace(Residual.of(self._equations, mask, known))

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine every source block."""
        return self._yes is not None

    def missing(self) -> tuple[int, ...]:
        """Source blocks that are not determined by the messages added so far."""
        if self._yes is not None:
            return ()
        null = self._null
        if null is None and self._unknown <= self._limit:
            null = self._null_space()
        if null is not None:
            return tuple(v for v in null.undetermined() if v < self._equations.k)
        return tuple(j for j in range(self._equations.k) if not self._known[j])
