"""Cells and lines: the structure of product and local-parity codes.

A cell is what one worker holds. A line is a small systematic code over some cells: its parity cells repair its lost
ones. In a grid every cell lies in one row and in one column, where that direction is coded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.base import check_dense
from serverless_gc.codes.mds.parity import draw_parity
from serverless_gc.types import FloatArray

__all__ = ["Layout", "Line", "Side", "line_parity", "tiled_layout"]


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a grid: ``k`` data cells of ``n`` in a line, and the parity matrix ``(n - k, k)``."""

    n: int
    k: int
    parity: FloatArray

    @property
    def generator(self) -> FloatArray:
        """The component generator ``[I ; P]``, shape ``(n, k)``."""
        return np.concatenate([np.eye(self.k), self.parity])


@dataclass(frozen=True, slots=True)
class Line:
    """Cells of one line, data first, and its parity matrix."""

    cells: tuple[int, ...]
    parity: FloatArray

    @property
    def spare(self) -> int:
        """How many lost cells the line can repair."""
        return len(self.parity)


@dataclass(frozen=True, slots=True)
class Layout:
    """All lines of a code.

    Attributes
    ----------
    n_cells
        Number of cells.
    lines
        The lines; the order is that in which repairs are tried.
    crossing
        For each cell the lines it lies in.
    sources
        Cell of each source block.
    zeros
        Cells that hold nothing but padding: their values are known to be zero.
    weights
        For each cell the sum of squares of its generator row: for sums the number of blocks added up.
    """

    n_cells: int
    lines: tuple[Line, ...]
    crossing: tuple[tuple[int, ...], ...]
    sources: tuple[int, ...]
    zeros: tuple[int, ...]
    weights: tuple[float, ...]


def line_parity(spare: int, k: int, seed: int) -> FloatArray:
    """Return the parity matrix of a line, shape ``(spare, k)``.

    One parity is the sum. Two are ``cos`` and ``sin`` of ``pi (i + 1/4) / k``: all coefficients and all 2 x 2 minors
    are nonzero, and measured errors are one to two digits below those of random parity. More are random orthonormal.

    Examples
    --------
    >>> line_parity(1, 3, seed=0)
    array([[1., 1., 1.]])
    """
    if spare == 1:
        return np.ones((1, k))
    if spare == 2:
        angles = math.pi * (np.arange(k) + 0.25) / k
        return np.stack([np.cos(angles), np.sin(angles)])
    return draw_parity(spare, k, "orthonormal", seed)


def tiled_layout(sides: tuple[Side, Side], tiles: int, k: int) -> tuple[Layout, FloatArray]:
    """Lay ``k`` blocks out on ``tiles`` grids of one kind, one after the other, and return the generator with it.

    Block ``i`` of a tile lies at row ``i // k2``, column ``i % k2``; cell ``(a, c)`` is ``a * n2 + c``. The last
    places of the last tile may stay empty.
    """
    rows, columns = sides
    area = rows.n * columns.n
    check_dense(tiles * area, tiles * rows.k * columns.k)
    lines: list[Line] = []
    sources: list[int] = []
    for start in range(0, tiles * area, area):
        grid = np.arange(start, start + area).reshape(rows.n, columns.n)
        if len(columns.parity):
            lines += [Line(tuple(cells), columns.parity) for cells in grid.tolist()]
        if len(rows.parity):
            lines += [Line(tuple(cells), rows.parity) for cells in grid.T.tolist()]
        sources += grid[: rows.k, : columns.k].ravel().tolist()
    crossing: list[list[int]] = [[] for _ in range(tiles * area)]
    for number, line in enumerate(lines):
        for cell in line.cells:
            crossing[cell].append(number)
    generator = np.kron(np.eye(tiles), np.kron(rows.generator, columns.generator))[:, :k]
    weights = np.square(generator).sum(axis=1)
    layout = Layout(
        tiles * area,
        tuple(lines),
        tuple(map(tuple, crossing)),
        tuple(sources[:k]),
        tuple(np.flatnonzero(weights == 0).tolist()),
        tuple(weights.tolist()),
    )
    return layout, np.ascontiguousarray(generator)
