"""Both operands with parity: the products are a product code, with no further encoding.

References
----------
K. Lee, C. Suh, K. Ramchandran, *High-Dimensional Coded Matrix Multiplication*, ISIT 2017. V. Gupta, S. Kadhe, T.
Courtade, M. Mahoney, K. Ramchandran, *OverSketched Newton: Fast Convex Optimization for Serverless Systems*, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.sizes import complete_sides
from serverless_gc.codes.mds.parity import explicit_parity
from serverless_gc.codes.product.code import ProductCode
from serverless_gc.codes.product.layout import line_parity
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed

__all__ = ["ProductMatmulCode"]


class _Products(ProductCode):
    """The grid of products: parity of the rows of the answer and of its columns."""

    name = "product-matmul"


class ProductMatmulCode(MatmulCode):
    """Parity on each operand: worker ``i * n_right + j`` multiplies coded blocks ``i`` and ``j``.

    The cheapest and most accurate code for matrix products at a small overhead: with one parity on each side, the
    default, encoding adds all blocks up once and a lost product is repaired by subtractions.

    Parameters
    ----------
    n_workers, k
        Numbers of workers, ``n_left * n_right``, and of blocks of the answer, ``p * q``.
    p, q
        Numbers of column blocks of ``A`` and of ``B``; one less than the coded ones by default.
    n_left, n_right
        Numbers of coded blocks of ``A`` and of ``B``.
    parities
        Explicit parity matrices, of shapes ``(n_left - p, p)`` and ``(n_right - q, q)``; by default those of
        `ProductCode`: a sum, or two by the rule of cosine and sine, or random ones.
    seed
        Of three or more random parities.

    Raises
    ------
    InputError
        If sizes contradict one another, ``p > n_left`` or ``q > n_right``, or ``parities`` do not fit.

    Examples
    --------
    >>> code = ProductMatmulCode(9)
    >>> code.split.p, code.split.q, code.guaranteed_threshold
    (2, 2, 6)
    >>> code.encode_left(np.array([1.0, 2.0]))
    array([1., 2., 3.])
    """

    name = "product-matmul"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        p: int | None = None,
        q: int | None = None,
        n_left: int | None = None,
        n_right: int | None = None,
        parities: Sequence[ArrayLike] | None = None,
        seed: int = 0,
    ) -> None:
        given = {"n_workers": n_workers, "k": k, "p": p, "q": q, "n_left": n_left, "n_right": n_right}
        rows, columns, p, q = complete_sides(
            given, pairs=_pairs, coded=lambda p, q: (p + 1, q + 1), source=lambda n: max(1, n - 1)
        )
        self.seed = check_seed(seed)
        sizes = ((rows, p), (columns, q))
        if parities is not None and len(parities) != 2:
            raise InputError(f"parities must be two matrices, one an operand, got {len(parities)}")
        made = (
            [line_parity(n - size, size, self.seed) for n, size in sizes]
            if parities is None
            else [explicit_parity(matrix, n - size, size) for matrix, (n, size) in zip(parities, sizes, strict=True)]
        )
        self._given = parities is not None
        cells = range(rows * columns)
        super().__init__(
            rows * columns,
            Split(p, q),
            Operand(np.concatenate([np.eye(p), made[0]]), tuple(i // columns for i in cells)),
            Operand(np.concatenate([np.eye(q), made[1]]), tuple(i % columns for i in cells)),
            _Products(rows * columns, p * q, grid=sizes, parities=made),
        )

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        params = {**super().params(), "n_left": self.left.n_coded, "n_right": self.right.n_coded}
        if self.seed:
            params["seed"] = self.seed
        if self._given:
            params["parities"] = [side.tolist() for side in self._parities()]
        return params

    def _parities(self) -> tuple[Any, Any]:
        return self.left.generator[self.split.p :], self.right.generator[self.split.q :]

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ProductMatmulCode:
        """Rebuild the code from its manifest alone: the stored parity counts."""
        params = dict(manifest["params"])
        given = "parities" in params
        params["parities"] = [manifest["left"][params["p"] :], manifest["right"][params["q"] :]]
        code = cls(manifest["n_workers"], **params)
        code._given = given
        return code


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(d, n // d) for d in range(1, n + 1) if n % d == 0]
