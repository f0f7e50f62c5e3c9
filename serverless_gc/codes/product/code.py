"""Product codes: a grid of blocks with parity per row and per column.

References
----------
K. Lee, C. Suh, K. Ramchandran, *High-Dimensional Coded Matrix Multiplication*, ISIT 2017. V. Gupta, S. Kadhe, T.
Courtade, M. Mahoney, K. Ramchandran, *OverSketched Newton: Fast Convex Optimization for Serverless Systems*, 2019
(arXiv 1903.08857).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from serverless_gc.codes.product.base import GridCode, make_sides
from serverless_gc.codes.product.grids import check_sides, choose_grid
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed

__all__ = ["ProductCode"]


class ProductCode(GridCode):
    """Source blocks in a grid ``k1 x k2``, extended to ``n1 x n2`` by parity per column and per row.

    Worker ``a * n2 + c`` holds cell ``(a, c)``; the corner is parity of parity, and right in both directions. A lost
    cell is repaired from one line, ``k_i`` block additions: the cheapest and most accurate code at a small overhead.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of source blocks, ``n_workers = n1 n2`` and ``k <= k1 k2``. Missing blocks count as
        zero.
    grid
        ``((n1, k1), (n2, k2))``. By default the grid of ``n_workers`` cells with the fewest empty places, and of
        those the most square; with parity in both directions if ``k`` leaves room, at most two a line if possible.
    parities
        Explicit parity matrices, of shapes ``(n1 - k1, k1)`` and ``(n2 - k2, k2)``, instead of those of the Notes.
    seed
        Of the random parity that lines with three or more parities have.

    Raises
    ------
    InputError
        If ``n_workers`` is not the area of a grid that holds ``k`` blocks (the message says what is), or ``grid`` does
        not fit.

    Notes
    -----
    One parity a line is the sum: errors stay at rounding level, float32 included, and peeling reaches whatever the
    results determine. Two (``cos`` and ``sin`` rule) need fewer results at equal rate, and float64. Three and more are
    random and lose digits, because repairs chain: prefer `MDSCode` there.

    Examples
    --------
    >>> import numpy as np
    >>> code = ProductCode(n_workers=9, k=4)
    >>> code.grid, code.guaranteed_threshold
    (((3, 2), (3, 2)), 6)
    >>> coded = code.encode(np.array([[1.0], [2.0], [3.0], [4.0]]))
    >>> coded.reshape(3, 3)
    array([[ 1.,  2.,  3.],
           [ 3.,  4.,  7.],
           [ 4.,  6., 10.]])
    >>> answer, certificate = code.decode({i: coded[i] for i in (1, 2, 5, 6)})
    >>> answer.ravel(), certificate.method
    (array([1., 2., 3., 4.]), 'peel')
    """

    name: ClassVar[str] = "product"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        grid: Sequence[Sequence[int]] | None = None,
        parities: Sequence[ArrayLike] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(n_workers, k)
        if grid is None:
            sizes = choose_grid(self.n_workers, self.k)
        else:
            sizes = check_sides("grid", grid)
            (n1, k1), (n2, k2) = sizes
            if n1 * n2 != self.n_workers:
                raise InputError(f"grid {n1} x {n2} has {n1 * n2} cells, one a worker: n_workers is {self.n_workers}")
            if k1 * k2 < self.k:
                raise InputError(f"grid must hold k={self.k} blocks, {k1} x {k2} are {k1 * k2}")
        self._lay_out(make_sides(sizes, parities, check_seed(seed)), tiles=1)
        self._params: dict[str, Any] = {"grid": [list(side) for side in sizes]}
        if seed:
            self._params["seed"] = int(seed)
        if parities is not None:
            self._params["parities"] = [side.parity.tolist() for side in self._sides]

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return dict(self._params)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ProductCode:
        """Rebuild the code from its manifest alone: the stored parity counts, nothing is drawn again."""
        params = dict(manifest["params"])
        code = cls(manifest["n_workers"], manifest["k"], grid=params["grid"], parities=manifest["parities"])
        code._params = params
        return code
