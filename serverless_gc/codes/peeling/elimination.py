"""Eliminations in the order of the rows that are subtracted: each is read from memory once, for all its sums.

Taking one sum after the other reads a row from memory as often as it is part of one, two to three times. The other way
round the sums are what has to stay in the cache, and of an LDPC code they are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from serverless_gc.codes.program import Program, Step
from serverless_gc.types import Array

__all__ = ["eliminations"]

_SUMS_BYTES = 16 << 20
"""Sums of one tile: a good part of a last-level cache."""
_LEAST, _MOST = 16 << 10, 128 << 10
"""Bytes of a row in a tile: in shorter ones call overhead counts more."""


def eliminations(
    messages: Array,
    indptr: Array,
    operands: Array,
    wanted: Array,
    n_open: int,
    inputs: Sequence[int],
    copied: Sequence[int],
) -> tuple[Program, int]:
    """Arrange a peeling decode as row operations.

    Parameters
    ----------
    messages, indptr, operands
        Row ``t`` is message ``messages[t]``, or zero if that is -1, less the rows
        ``operands[indptr[t]:indptr[t + 1]]``, all of them before it; without a message there is at least one.
    wanted
        Rows that are the first outputs.
    n_open
        Rows at the end that are the checks of the program.
    inputs
        The messages given, ascending.
    copied
        Messages that are the further outputs, unchanged.

    Returns
    -------
    Program, int
        And how many bytes of each row to work on at a time.

    Examples
    --------
    >>> rows = np.array([0, 1, -1]), np.array([0, 0, 0, 2]), np.array([0, 1])
    >>> program, _ = eliminations(*rows, np.array([2]), 0, [0, 1], [1])
    >>> outputs = np.empty((2, 3))
    >>> program.run([np.ones(3), np.full(3, 4.0)], list(outputs), float)
    >>> outputs.tolist()
    [[-5.0, -5.0, -5.0], [4.0, 4.0, 4.0]]
    """
    n_in, n_out, n_rows = len(inputs), len(wanted) + len(copied), len(messages)
    counts = np.diff(indptr)
    start = np.searchsorted(inputs, messages)
    place = start.copy()  # where a row is: an input, an output, a check or a temporary
    place[wanted] = n_in + np.arange(len(wanted))
    place[n_rows - n_open :] = n_in + n_out + np.arange(n_open)
    inner = np.flatnonzero((counts > 0) & (place < n_in))
    place[inner] = n_in + n_out + n_open + np.arange(len(inner))
    minus_one = n_in + n_out + n_open + len(inner)

    order = np.argsort(operands, kind="stable")
    owner = np.repeat(np.arange(n_rows), counts)[order]
    sums, first = np.unique(owner, return_index=True)
    target, read = place[owner], np.where(counts > 0, place, start)
    left = target.copy()
    left[first] = np.where(messages[sums] >= 0, start[sums], minus_one)
    steps: list[Step] = list(
        zip(repeat(np.subtract), left.tolist(), read[operands[order]].tolist(), target.tolist(), strict=False)
    )
    for at in first[messages[sums] < 0].tolist():
        _, factor, row, sum_ = steps[at]
        steps[at] = (np.multiply, row, factor, sum_)

    same = list(enumerate(np.searchsorted(inputs, copied).tolist(), n_in + len(wanted)))
    unchanged = np.flatnonzero((counts == 0) & (place >= n_in))
    same += zip(place[unchanged].tolist(), start[unchanged].tolist(), strict=True)
    program = Program.arranged((n_in, n_out, n_open, len(inner)), steps, same)
    return program, min(max(_SUMS_BYTES // max(len(sums), 1), _LEAST), _MOST)
