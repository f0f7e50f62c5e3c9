"""Both operands polar coded: the products are a polar code again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.sizes import complete_sides
from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.types import Array

__all__ = ["PolarMatmulCode"]


class _Products(PolarCode):
    """The polar code whose data positions are the pairs of those of the operands."""

    name = "polar-matmul"


class PolarMatmulCode(MatmulCode):
    """A polar code on each operand: worker ``i * n_right + j`` multiplies coded blocks ``i`` and ``j``.

    Kronecker powers combine, so the grid of products is a polar transform of length ``n_left * n_right``, tracked and
    decoded as any other. Pairs of good data positions are not the best positions of the long code: a single-parity
    product code needs fewer results unless both sides are long.

    Parameters
    ----------
    n_workers, k
        Numbers of workers, ``n_left * n_right``, and of blocks of the answer, ``p * q``.
    p, q
        Numbers of column blocks of ``A`` and of ``B``; about three quarters of the coded ones by default.
    n_left, n_right
        Numbers of coded blocks of ``A`` and of ``B``; ``n_right`` a power of two. Nearly equal by default.
    systematic, kernel, mode
        See `PolarCode`.

    Raises
    ------
    InputError
        If sizes contradict one another, ``n_right`` is no power of two, ``p > n_left`` or ``q > n_right``.

    References
    ----------
    B. Bartan, M. Pilanci, "Straggler Resilient Serverless Computing Based on Polar Codes", 2019, arXiv:1901.06811.

    Examples
    --------
    >>> code = PolarMatmulCode(16, p=3, q=3)
    >>> code.left.n_coded, code.right.n_coded, code.guaranteed_threshold
    (4, 4, 13)
    """

    name = "polar-matmul"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        p: int | None = None,
        q: int | None = None,
        n_left: int | None = None,
        n_right: int | None = None,
        systematic: bool = True,
        kernel: Literal["binary", "hadamard"] = "binary",
        mode: Literal["auto", "sc", "peel", "rank"] = "auto",
    ) -> None:
        given = {"n_workers": n_workers, "k": k, "p": p, "q": q, "n_left": n_left, "n_right": n_right}
        *sides, p, q = complete_sides(given, pairs=_pairs, coded=_coded, source=lambda n: max(1, 3 * n // 4))
        a, b = (
            PolarCode(n, blocks, systematic=systematic, kernel=kernel) for n, blocks in zip(sides, (p, q), strict=True)
        )
        self._sides = (a, b)
        self._options = {"systematic": bool(systematic), "kernel": kernel, "mode": mode}
        n = sides[0] * sides[1]
        pairs = [i * b.length + j for i in a.information_set for j in b.information_set]
        products = _Products(
            n,
            p * q,
            systematic=systematic,
            kernel=kernel,
            mode=mode,
            shortening=a.shortening,
            information_set=pairs,
        )
        cells = range(n)
        super().__init__(
            n,
            Split(p, q),
            Operand(np.array(a.generator), tuple(i // sides[1] for i in cells)),
            Operand(np.array(b.generator), tuple(i % sides[1] for i in cells)),
            products,
        )

    def encode_left(
        self, blocks: Sequence[Array] | Array, out: Array | None = None, *, coded: Sequence[int] | None = None
    ) -> Array:
        """Encode the blocks of ``A`` by the butterfly; see `MatmulCode.encode_left`."""
        return self._sides[0].encode(blocks, out, messages=coded)

    def encode_right(
        self, blocks: Sequence[Array] | Array, out: Array | None = None, *, coded: Sequence[int] | None = None
    ) -> Array:
        """Encode the blocks of ``B`` by the butterfly; see `MatmulCode.encode_right`."""
        return self._sides[1].encode(blocks, out, messages=coded)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        sides = {"n_left": self.left.n_coded, "n_right": self.right.n_coded}
        return {**super().params(), **sides, **self._options}


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(n >> i, 1 << i) for i in range(n.bit_length()) if n % (1 << i) == 0]


def _coded(p: int, q: int) -> tuple[int, int]:
    return -(-4 * p // 3), 1 << (-(-4 * q // 3) - 1).bit_length()
