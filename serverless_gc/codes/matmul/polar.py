"""Both operands polar coded: the products are a polar code again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.sizes import DEFAULT_WORKERS, check_count
from serverless_gc.codes.polar import PolarCode
from serverless_gc.errors import InputError
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
        whole = {label: None if value is None else check_count(label, value) for label, value in given.items()}
        sides = _sides(whole)
        p, q = _blocks(whole, sides)
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


def _sides(given: dict[str, int | None]) -> tuple[int, int]:
    """Complete the numbers of coded blocks of both operands.

    Raises
    ------
    InputError
        If they contradict one another.
    """
    n, left, right = given["n_workers"], given["n_left"], given["n_right"]
    if n is None and (left is None or right is None):
        if given["k"] is None and (given["p"] is None or given["q"] is None) and left is None and right is None:
            n = DEFAULT_WORKERS
        else:
            p, q = _blocks(given, (left, right))
            left = -(-4 * p // 3) if left is None else left
            right = 1 << (-(-4 * q // 3) - 1).bit_length() if right is None else right
    if n is not None:
        if right is None:
            # The largest power of two that divides, so that both sides are nearly equal.
            right = n // left if left else max(1 << i for i in range(n.bit_length()) if n % (1 << i) == 0 and 4**i <= n)
        left = n // right if left is None else left
    assert left is not None  # noqa: S101 - set on both ways
    assert right is not None  # noqa: S101
    if n is not None and left * right != n:
        raise InputError(f"n_workers must be n_left * n_right, got {n} with n_left={left}, n_right={right}")
    if right & (right - 1):
        raise InputError(f"n_right must be a power of two, got {right}")
    return left, right


def _blocks(given: dict[str, int | None], sides: tuple[int | None, int | None]) -> tuple[int, int]:
    """Complete the numbers of source blocks of both operands, which must not exceed those of coded ones.

    Raises
    ------
    InputError
        If they contradict one another.
    """
    k, p, q = given["k"], given["p"], given["q"]
    if k is None:
        p = max(1, 3 * (sides[0] or 4) // 4) if p is None else p
        return p, max(1, 3 * (sides[1] or 4) // 4) if q is None else q
    pairs = [(d, k // d) for d in range(1, k + 1) if k % d == 0 and p in {None, d} and q in {None, k // d}]
    if not pairs:
        raise InputError(f"k must be p * q, got k={k} with p={p}, q={q}")
    pairs = [(a, b) for a, b in pairs if a <= (sides[0] or k) and b <= (sides[1] or k)]
    if not pairs:
        raise InputError(f"k must be p * q with p <= n_left={sides[0]} and q <= n_right={sides[1]}, got {k}")
    return min(pairs, key=lambda pair: abs(pair[0] - pair[1]))
