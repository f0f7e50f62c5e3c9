"""Local-parity codes: many small product codes side by side.

References
----------
V. Gupta, D. Carrano, Y. Yang, V. Shankar, T. Courtade, K. Ramchandran, *Serverless Straggler Mitigation using Local
Error-Correcting Codes*, ICDCS 2020 (arXiv 2001.07490).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from serverless_gc.codes.product.base import GridCode, make_sides
from serverless_gc.codes.product.grids import check_tile, choose_tiles, tile_sides
from serverless_gc.errors import InputError

__all__ = ["LocalParityCode"]


class LocalParityCode(GridCode):
    """Source blocks in tiles ``k1 x k2``, each with one or two parities per row and per column of its own.

    A repair reads the few blocks of one line, whatever the number of workers, and tiles are repaired at the same time.
    The price is a worse worst case than that of one large grid: four stragglers in the corners of a rectangle within a
    tile are not repaired. With two parities per line it takes nine, where three rows meet three columns.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of source blocks. ``n_workers`` is the number of tiles times
        ``(k1 + parities) (k2 + parities)``.
    tile
        ``(k1, k2)``. ``k2 = 1``: a single column of ``k1`` blocks and its parity. By default a tile of at most 36 cells
        with the fewest empty places and parity in both directions, if there is one.
    parities
        Parity cells of each line. 1: the sum of its blocks. 2: the ``cos`` and ``sin`` rule of `ProductCode`, which
        wants float64.

    Raises
    ------
    InputError
        If no tile fits the numbers (says what does), or ``parities`` is neither 1 nor 2.

    Examples
    --------
    >>> code = LocalParityCode(n_workers=18, k=8)
    >>> code.tile, code.n_tiles, code.guaranteed_threshold
    ((2, 2), 2, 15)
    >>> code.known_blocks([0, 2, 3, 5, 13])
    (0, 1, 2, 3, 7)
    """

    name: ClassVar[str] = "local-parity"

    def __init__(self, n_workers: int, k: int, *, tile: Sequence[int] | None = None, parities: int = 1) -> None:
        super().__init__(n_workers, k)
        self._parities = _check_parities(parities)
        if tile is None:
            self._tile = choose_tiles(self.n_workers, self.k, self._parities)
        else:
            self._tile = check_tile(tile)
        sides = tile_sides(self._tile, self._parities)
        area, capacity = sides[0][0] * sides[1][0], self._tile[0] * self._tile[1]
        tiles, left = divmod(self.n_workers, area)
        if left:
            raise InputError(
                f"n_workers must be a multiple of {area}, the cells of a tile {self._tile} with "
                f"parities={self._parities}, got {n_workers}"
            )
        if tiles * capacity < self.k:
            raise InputError(
                f"{tiles} tiles {self._tile} hold {tiles * capacity} blocks, k is {self.k}: use more workers"
            )
        self._lay_out(make_sides(sides, None, 0), tiles)

    @property
    def tile(self) -> tuple[int, int]:
        """Data rows and columns of one tile."""
        return self._tile

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return self._tiles

    @property
    def parities(self) -> int:
        """Parity cells of each line of a tile."""
        return self._parities

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        params: dict[str, Any] = {"tile": list(self._tile)}
        if self._parities != 1:
            params["parities"] = self._parities
        return params


def _check_parities(parities: int) -> int:
    # True == 1: a Boolean or a float that happens to equal a number is a slip.
    if isinstance(parities, bool) or not hasattr(parities, "__index__") or parities not in {1, 2}:
        raise InputError(f"parities must be 1 or 2, the parity cells of each line of a tile, got {parities!r}")
    return int(parities)
