"""Sizes of grids: which grid for so many workers and blocks, and what to say when there is none."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from serverless_gc.errors import InputError

__all__ = ["Sides", "check_sides", "check_tile", "choose_grid", "choose_tiles", "local_parity_sizes", "product_sizes"]

Sides: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""``((n1, k1), (n2, k2))``."""

_TILE = 36
"""Most cells of a tile of a local-parity code, by default: a repair then reads five blocks at most."""

_WORKERS = 16


def check_sides(label: str, sides: Sequence[Sequence[int]]) -> Sides:
    """Return a grid as two pairs of integers.

    Raises
    ------
    InputError
        If it is not ``((n1, k1), (n2, k2))`` with ``1 <= k_i <= n_i``.
    """
    try:
        (n1, k1), (n2, k2) = ((operator.index(n), operator.index(k)) for n, k in sides)
    except (TypeError, ValueError):
        raise InputError(f"{label} must be two pairs of integers ((n1, k1), (n2, k2)), got {sides!r}") from None
    for i, (n, k) in enumerate(((n1, k1), (n2, k2)), 1):
        if not 1 <= k <= n:
            raise InputError(f"{label} must have 1 <= k{i} <= n{i}, got k{i}={k}, n{i}={n}")
    return (n1, k1), (n2, k2)


def check_tile(tile: Sequence[int]) -> tuple[int, int]:
    """Return the data of a tile as two integers.

    Raises
    ------
    InputError
        If they are not two integers of at least 1.
    """
    try:
        k1, k2 = map(operator.index, tile)
    except (TypeError, ValueError):
        raise InputError(f"tile must be two integers (k1, k2), got {tile!r}") from None
    if min(k1, k2) < 1:
        raise InputError(f"tile must have k1 and k2 of at least 1, got {tile!r}")
    return k1, k2


def choose_grid(n: int, k: int) -> Sides:
    """Choose the grid of a product code with ``n`` cells, ``k`` of them data.

    Raises
    ------
    InputError
        If there is none; names the nearest numbers of workers, or the largest ``k``.

    Examples
    --------
    >>> choose_grid(16, 9), choose_grid(20, 15)
    (((4, 3), (4, 3)), ((5, 5), (4, 3)))
    """
    shapes = list(_shapes(n)) or ([(1, 1)] if n == 1 else [])
    if not shapes:
        raise InputError(f"n_workers must be the area of a grid, {n} is not: {_instead(n)}")
    options = [
        (_order(grid, k), grid)
        for n1, n2 in shapes
        for k1 in range(1, n1 + 1)
        if (grid := ((n1, k1), (n2, min(n2, -(-k // k1)))))[1][1] * k1 >= k
    ]
    options = [option for option in options if k == n or option[1][0][1] * option[1][1][1] < n]
    if not options:
        most = max(max((n1 - 1) * n2, n1 * (n2 - 1)) for n1, n2 in shapes)
        raise InputError(
            f"k must be at most {most} for a product code of n_workers={n} ({shapes[0][0]} x {shapes[0][1]} cells), "
            f"or equal to n_workers without a code, got {k}; code 'mds' takes any k"
        )
    return min(options)[1]


def _shapes(n: int) -> Iterator[tuple[int, int]]:
    """Yield the grids of ``n`` cells with at least two rows and columns, the most square first."""
    for n2 in range(int(n**0.5), 1, -1):
        if n % n2 == 0:
            yield n // n2, n2


def _order(grid: Sides, k: int) -> tuple[bool, bool, int, int, int]:
    """Sort key of the grids that hold ``k`` blocks: the best one is least."""
    (n1, k1), (n2, k2) = grid
    return n1 == k1 or n2 == k2, max(n1 - k1, n2 - k2) > 2, k1 * k2 - k, n1 - n2, abs((n1 - k1) - (n2 - k2))


def _instead(n: int) -> str:
    below = next((m for m in range(n - 1, 3, -1) if any(_shapes(m))), 0)
    above = next(m for m in range(n + 1, n + 5) if any(_shapes(m)))
    hints = []
    for m in filter(None, (below, above)):
        n1, n2 = next(_shapes(m))
        hints.append(f"n_workers={m} ({n1} x {n2}, k={(n1 - 1) * (n2 - 1)})")
    return f"use {' or '.join(hints)}; code 'mds' takes any number of workers"


def product_sizes(n: int | None, k: int | None) -> tuple[int, int]:
    """Complete the sizes of a product code: one parity in each row and each column.

    Examples
    --------
    >>> product_sizes(None, None), product_sizes(20, None), product_sizes(None, 13)
    ((16, 9), (20, 12), (24, 13))
    """
    if n is None and k is not None:
        _, n1, n2 = min(((k1 + 1) * (-(-k // k1) + 1), k1 + 1, -(-k // k1) + 1) for k1 in range(1, k + 1))
        return n1 * n2, k
    n = _WORKERS if n is None else n
    if k is None:
        n1, n2 = next(_shapes(n), (n, 1))  # a number that is no area is for `choose_grid` to refuse
        k = max(1, (n1 - 1) * (n2 - 1))
    return n, k


def choose_tiles(n: int, k: int, parities: int = 1) -> tuple[int, int]:
    """Choose the data ``(k1, k2)`` of one tile of a local-parity code with ``n`` cells, ``k`` of them data.

    Lines have ``parities`` parity cells.

    Raises
    ------
    InputError
        If there is none; says which ``k`` the number of workers allows.

    Examples
    --------
    >>> choose_tiles(36, 16), choose_tiles(20, 15), choose_tiles(36, 16, parities=2)
    ((2, 2), (3, 1), (4, 4))
    """
    options = list(_tiles(n, parities))
    fitting = [(_tile_order(n, k, tile, parities), tile) for tile in options if _capacity(n, tile, parities) >= k]
    if not fitting:
        most = max((_capacity(n, tile, parities) for tile in options), default=0)
        lines = "" if parities == 1 else f" with parities={parities}"
        raise InputError(
            f"k must be at most {most} for a local-parity code of n_workers={n}{lines}, got {k}: "
            "use more workers, or code 'mds', which takes any numbers"
            if most
            else f"n_workers must be at least {parities + 1} for a local-parity code{lines}, got {n}"
        )
    return min(fitting)[1]


def _tiles(n: int, parities: int = 1) -> Iterator[tuple[int, int]]:
    """Yield the data ``(k1, k2)`` of the tiles of which ``n`` cells are a multiple; ``k2 = 1``: a single column."""
    for area in range(parities + 1, n + 1):
        if n % area == 0:
            yield area - parities, 1  # one column, coded along it only
            yield from ((n1 - parities, n2 - parities) for n1, n2 in _shapes(area) if n2 > parities + 1)


def tile_sides(tile: tuple[int, int], parities: int = 1) -> Sides:
    """Return the grid of a tile: ``parities`` per column, and per row unless the tile is a single column."""
    k1, k2 = tile
    return (k1 + parities, k1), (1, 1) if k2 == 1 else (k2 + parities, k2)


def _area(tile: tuple[int, int], parities: int = 1) -> int:
    (n1, _), (n2, _) = tile_sides(tile, parities)
    return n1 * n2


def _capacity(n: int, tile: tuple[int, int], parities: int = 1) -> int:
    return n // _area(tile, parities) * tile[0] * tile[1]


def _tile_order(n: int, k: int, tile: tuple[int, int], parities: int) -> tuple[bool, bool, int, int, int]:
    area = _area(tile, parities)
    return tile[1] == 1, area > _TILE, _capacity(n, tile, parities) - k, tile[0] - tile[1], area


def local_parity_sizes(n: int | None, k: int | None) -> tuple[int, int]:
    """Complete the sizes of a local-parity code.

    Examples
    --------
    >>> local_parity_sizes(None, None), local_parity_sizes(36, None), local_parity_sizes(None, 40)
    ((16, 9), (36, 25), (60, 40))
    """
    if n is None and k is not None:
        if k < 4:  # less than the smallest tile: one column
            return k + 1, k
        tiles = [(k1, k2) for k1 in range(2, 6) for k2 in range(2, k1 + 1)]
        return min((-(-k // (k1 * k2)) * (k1 + 1) * (k2 + 1), -k1 * k2) for k1, k2 in tiles)[0], k
    n = _WORKERS if n is None else n
    if k is None:
        tiles = [tile for tile in _tiles(n) if tile[1] > 1 and _area(tile) <= _TILE]
        k = max((_capacity(n, tile) for tile in tiles or list(_tiles(n))), default=n)
    return n, k
