"""Polynomially coded regression: least-squares gradients in one round.

References
----------
S. Li, S. M. Mousavi Kalan, Q. Yu, M. Soltanolkotabi, A. S. Avestimehr, Polynomially Coded Regression: Optimal Straggler
Mitigation via Data Encoding, 2018 (arXiv 1805.09934).
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from serverless_gc.codes.lagrange.code import LagrangeCode

__all__ = ["PCRCode"]


class PCRCode(LagrangeCode):
    """Polynomially coded regression: the Lagrange code for least-squares gradients in one round.

    Workers compute ``X.T (X w)`` of their coded block, a polynomial of degree 2 in it; ``gradient_round`` is the code
    of that round, and its answer the sum over the data blocks. ``X.T y`` is computed once elsewhere.

    Parameters
    ----------
    n_workers, k, data_points, worker_points, allow_unstable
        As for `LagrangeCode`; ``2 k - 1`` results decode a gradient, so there must be at least so many workers and
        should be 1.3 times as many.

    Raises
    ------
    InputError
        As for `LagrangeCode`, and if ``n_workers < 2 k - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> code = PCRCode(n_workers=5, k=2)
    >>> X = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    >>> stored, w = code.encode(X), np.array([1.0, 1.0])
    >>> total, certificate = code.gradient_round.decode({i: stored[i].T @ (stored[i] @ w) for i in (0, 2, 4)})
    >>> total.round(9)
    array([24., 34.])
    """

    name = "pcr"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        data_points: ArrayLike | None = None,
        worker_points: ArrayLike | None = None,
        allow_unstable: bool = False,
    ) -> None:
        super().__init__(
            n_workers, k, data_points=data_points, worker_points=worker_points, allow_unstable=allow_unstable
        )
        self.gradient_round = self.evaluated(2, total=True)
