"""Random Khatri-Rao product codes: well conditioned at hundreds of blocks, where polynomials are useless.

References
----------
A. M. Subramaniam, A. Heidarzadeh, K. R. Narayanan, Random Khatri-Rao-Product Codes for Numerically-Stable Distributed
Matrix Multiplication, 2019.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.base import check_dense
from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split
from serverless_gc.codes.matmul.sizes import complete_grid
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.codes.mds.parity import smallest_singular_value
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Array

__all__ = ["KhatriRaoCode"]

_WORST_CONDITION = 1e8
_CHECKED_SUBSETS = 5000
_DRAWS = 20


class _Products(MDSCode):
    """Any ``p q`` products determine the answer: an MDS code whose parity rows are Kronecker products."""

    name = "khatri-rao"


class KhatriRaoCode(MatmulCode):
    """Systematic random Khatri-Rao code: any ``p q`` of ``n_workers`` results decode.

    Workers ``t < p q`` multiply source blocks, ``A[t // q].T @ B[t % q]``; each other one multiplies random unit
    combinations of the blocks of both operands. Only the products that did not arrive are solved for.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks of the answer.
    p, q
        Numbers of column blocks of ``A`` and of ``B``, ``k = p * q``; nearly equal by default.
    seed
        Seed of the draw. A manifest stores what was drawn.
    left, right
        The combinations of the workers beyond ``k``, instead of a draw: shapes ``(n_workers - k, p)`` and
        ``(n_workers - k, q)``.

    Raises
    ------
    InputError
        If ``k != p * q``, ``k > n_workers``, ``seed`` is not a whole number, or ``left`` and ``right`` do not fit.

    Examples
    --------
    >>> code = KhatriRaoCode(n_workers=6, p=2, q=2)
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3, 4))
    >>> At, Bt = code.encode_left(A), code.encode_right(B)
    >>> sent = {i: At[code.operands(i)[0]].T @ Bt[code.operands(i)[1]] for i in (0, 2, 4, 5)}
    >>> C, certificate = code.decode(sent)
    >>> bool(np.allclose(C[2], A[1].T @ B[0])), certificate.unknowns
    (True, 2)
    """

    name = "khatri-rao"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        p: int | None = None,
        q: int | None = None,
        seed: int = 0,
        left: ArrayLike | None = None,
        right: ArrayLike | None = None,
    ) -> None:
        n, p, q = complete_grid(n_workers, k, p, q)
        if p * q > n:
            raise InputError(f"n_workers must be at least p * q = {p * q}, got {n}")
        self.seed = check_seed(seed)
        if left is None and right is None:
            drawn = _draw(n - p * q, p, q, self.seed)
        else:
            drawn = _rows("left", left, n - p * q, p), _rows("right", right, n - p * q, q)
        cells, extra = range(p * q), range(n - p * q)
        super().__init__(
            n,
            Split(p, q),
            Operand(np.concatenate([np.eye(p), drawn[0]]), (*(t // q for t in cells), *(p + i for i in extra))),
            Operand(np.concatenate([np.eye(q), drawn[1]]), (*(t % q for t in cells), *(q + i for i in extra))),
            _Products(n, p * q, parity=_kronecker(*drawn)),
        )

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {**super().params(), "seed": self.seed}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> KhatriRaoCode:
        """Rebuild the code from its manifest alone: nothing is drawn again."""
        params = manifest["params"]
        rows = {"left": manifest["left"][params["p"] :], "right": manifest["right"][params["q"] :]}
        return cls(manifest["n_workers"], **params, **rows)


def _rows(label: str, given: ArrayLike | None, rows: int, width: int) -> Array:
    matrix = np.asarray(given)
    if matrix.shape != (rows, width) or matrix.dtype.kind not in "biuf" or not np.isfinite(matrix).all():
        raise InputError(
            f"{label} must be a finite real matrix of shape ({rows}, {width}), got {matrix.dtype} of {matrix.shape}"
        )
    return matrix.astype(np.float64)


def _kronecker(left: Array, right: Array) -> Array:
    check_dense(len(left), left.shape[1] * right.shape[1])
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), left.shape[1] * right.shape[1])


def _draw(rows: int, p: int, q: int, seed: int) -> tuple[Array, Array]:
    """Draw unit rows for both operands, again if a recovery of a small code would be ill conditioned."""
    rng = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        left, right = (rng.normal(size=(rows, width)) for width in (p, q))
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        right /= np.linalg.norm(right, axis=1, keepdims=True)
        parity = _kronecker(left, right)
        if math.comb(rows + p * q, p * q) > _CHECKED_SUBSETS or smallest_singular_value(parity) > 1 / _WORST_CONDITION:
            return left, right
    raise InputError(f"no well conditioned code of p={p}, q={q} and {rows} more workers in {_DRAWS} draws: try a seed")
