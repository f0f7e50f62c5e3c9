"""What the systematic butterfly does, as a list of row operations.

Over the reals the systematic code word needs no inverse transform. With the halves of one level written
``x_lo = y_lo + x_hi`` (``y_lo`` the transform of the lower half of ``u``), the upper half is a smaller problem of the
same kind; once ``x_hi`` is known so are the wanted entries of ``y_lo = x_lo - x_hi``, and the lower half is such a
problem too. One subtraction or addition per row and level, as many as one plain transform, and none below a node
whose positions all carry data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["ADD", "COPY", "NEGATE", "SUBTRACT", "ZERO", "Call", "Program", "stage_calls", "systematic_program"]

ADD, SUBTRACT, COPY, NEGATE, ZERO = range(5)

Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments, views of one tile."""

Bools: TypeAlias = NDArray[np.bool_]


class Program:
    """Row operations on a tile: the rows of the code word first, then as many of scratch.

    Each operation is ``(what, target, left, right, count)`` and works on ``count`` consecutive rows.
    """

    def __init__(self) -> None:
        self.operations: list[tuple[int, int, int, int, int]] = []

    def append(self, what: int, target: int, left: int, right: int, count: int) -> None:
        """Add one operation."""
        self.operations.append((what, target, left, right, count))

    def table(self) -> NDArray[np.int64]:
        """Return the operations as an array of shape ``(n, 5)``."""
        return np.array(self.operations, dtype=np.int64).reshape(-1, 5)

    def calls(self, tile: Array) -> list[Call]:
        """Bind the operations to a tile of shape ``(2 * length, width)``."""
        functions: dict[int, Callable[..., Any]] = {ADD: np.add, SUBTRACT: np.subtract}
        calls: list[Call] = []
        for what, target, left, right, count in self.operations:
            out, a, b = (tile[start : start + count] for start in (target, left, right))
            if what in functions:
                calls.append((functions[what], (a, b, out)))
            elif what == NEGATE:
                calls.append((np.negative, (a, out)))
            else:
                calls.append((np.copyto, (out, a if what == COPY else 0)))
        return calls


def systematic_program(data: Bools, kernel: str) -> Program:
    """Compile the systematic encoder.

    Parameters
    ----------
    data
        Which of the ``length`` positions carry data.
    kernel
        ``"binary"`` or ``"hadamard"``; they differ in signs.

    Returns
    -------
    Program
        Expects data in its rows of the tile, leaves them as they are and fills the others.

    Raises
    ------
    InputError
        If the code has no systematic form at these positions.
    """
    require_convex(data)
    program = Program()
    _solve(program, data, 0, 0, len(data), (SUBTRACT, ADD, COPY) if kernel == "binary" else (ADD, SUBTRACT, NEGATE))
    return program


def _solve(program: Program, data: Bools, at: int, base: int, size: int, signs: tuple[int, int, int]) -> None:
    """Fill the rows without data of the node at ``base``, whose rows are at ``at`` in the tile."""
    known = int(np.count_nonzero(data[base : base + size]))
    if known == size:
        return
    if known == 0:
        program.append(ZERO, at, at, at, size)
        return
    half = size // 2
    _solve(program, data, at + half, base + half, half, signs)
    low = data[base : base + half]
    if not data[base + half : base + size].any():
        _solve(program, data, at, base, half, signs)
        return
    remove, restore, only = signs
    if not low.any():
        program.append(only, at, at + half, at + half, half)
        return
    if low.all():
        return
    # Scratch of the level, so that the data rows stay as they came: half, a quarter, ... above the code word.
    scratch = len(data) + half
    for start, stop in runs(low):
        program.append(remove, scratch + start, at + start, at + half + start, stop - start)
    _solve(program, data, scratch, base, half, signs)
    for start, stop in runs(~low):
        program.append(restore, at + start, scratch + start, at + half + start, stop - start)


def runs(mask: Bools) -> list[tuple[int, int]]:
    """Return the runs of true entries as half-open ranges.

    Examples
    --------
    >>> runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def require_convex(data: Bools) -> None:
    """Refuse positions for which fixing the data rows does not give a code word of the same code.

    A position between two data positions, in the order of bit inclusion, must carry data too. Reliability orders of
    polar and Reed-Muller codes have this property, shortened and punctured ones included.

    Raises
    ------
    InputError
        If a position violates this.
    """
    above, below = data.copy(), data.copy()
    bit = 1
    while bit < len(data):
        up, down = above.reshape(-1, 2, bit), below.reshape(-1, 2, bit)
        up[:, 1] |= up[:, 0]
        down[:, 0] |= down[:, 1]
        bit *= 2
    gaps = np.flatnonzero(above & below & ~data)
    if gaps.size:
        raise InputError(
            f"positions have no systematic code: {gaps[0]} lies between data positions but carries none; "
            "use systematic=False"
        )


def stage_calls(tile: Array, length: int, kernel: str) -> list[Call]:
    """Bind the plain transform, stage by stage, to a tile of ``length`` rows and as many of scratch.

    The Hadamard kernel is scaled once, at the end: cheaper than, and as accurate as, scaling every stage.
    """
    word, scratch = tile[:length].reshape(-1), tile[length:].reshape(-1)
    width = tile.shape[1]
    calls: list[Call] = []
    half = 1
    while half < length:
        pairs = word.reshape(-1, 2, half * width)
        low, high = pairs[:, 0], pairs[:, 1]
        if kernel == "binary":
            calls.append((np.add, (low, high, low)))
        else:
            difference = scratch[: low.size].reshape(low.shape)
            calls.append((np.subtract, (low, high, difference)))
            calls.append((np.add, (low, high, low)))
            calls.append((np.copyto, (high, difference)))
        half *= 2
    if kernel == "hadamard":
        calls.append((np.multiply, (word, length**-0.5, word)))
    return calls
