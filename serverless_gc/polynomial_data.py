"""`PolynomialData`: least-squares gradients from multi-message Lagrange coded rows, in one round.

Workers send ``X~.T (X~ w)`` of one coded block after the other, each as it is done; enough of them, from whomever, give
``X.T X w``. ``X.T y`` is computed here once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.multi import LagrangeMultiMessage
from serverless_gc.data import Reduction
from serverless_gc.encode import EncodedMatrix, Scan, Source, store_encoded
from serverless_gc.errors import InputError
from serverless_gc.holding import Holding
from serverless_gc.jobs import normal_job
from serverless_gc.least_squares import LeastSquares, target_moments
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.resources import Location, Owner
from serverless_gc.types import Array

__all__ = ["PolynomialData", "StoredRows", "encode_polynomial"]


@dataclass(eq=False, slots=True)
class StoredRows:
    """The coded rows of a data set, and where they are."""

    owner: Owner
    location: Location
    matrix: EncodedMatrix

    async def remove(self) -> None:
        """Delete the stored blocks, or let them go if they are kept."""
        if not self.location.name:
            res = await self.owner.resources()
            await res.store.delete(self.matrix.objects())


class PolynomialData(Holding):
    """A data set for least-squares gradients by multi-message Lagrange coding, made by `Session.encode`.

    Every method has an ``_async`` twin with the same signature.

    Attributes
    ----------
    code
        The code in use, with its parameters.
    n_rows, n_cols
        Shape of ``X``.
    """

    def __init__(self, rows: StoredRows, code: LagrangeMultiMessage, moments: Array | None, squares: float) -> None:
        self._holder = rows
        self._matrix = rows.matrix
        self._moments = moments
        self._squares = squares
        self.code = code
        self.holders: WeakSet[Any] = WeakSet([self])

    @property
    def moments(self) -> tuple[Array | None, float]:
        """``X.T y``, None without ``y``, and ``||y||**2``."""
        return self._moments, self._squares

    @property
    def n_rows(self) -> int:
        """Number of rows of ``X``."""
        return self._matrix.n_rows

    @property
    def n_cols(self) -> int:
        """Number of columns of ``X``."""
        return self._matrix.n_cols

    def __repr__(self) -> str:
        return f"PolynomialData({self.n_rows} x {self.n_cols}, {self.code!r})"

    @homed
    async def value_and_gradient_async(
        self,
        w: Any,
        *,
        loss: str = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the squared loss and its gradient.

        Parameters
        ----------
        w
            ``(n_cols,)`` or ``(n_cols, c)``.
        loss
            ``"squared"``.
        l2
            Adds ``0.5 * l2 * ||w||**2``.
        reduction
            ``"sum"`` over the rows or ``"mean"``.
        with_report
            Also return the `Report`.
        deadline
            Seconds from now after which the call fails; the session's by default.

        Returns
        -------
        (value, gradient) or (value, gradient, Report)

        Raises
        ------
        InputError
            If an argument is wrong, or the data were encoded without ``y``.
        NotDecodableError, DeadlineExceeded
            If too few messages arrived (in time).
        """
        call = LeastSquares.checked(w, self.n_cols, self.n_rows, loss, l2, reduction)
        if self._moments is None:
            raise InputError("the data were encoded without y; pass it: session.encode(X, y)")
        res = await self.owner.resources()
        job = normal_job(self._matrix, self.code, call.w)
        product, report = await run_round(res, job, lambda code: self.owner.policy_for(code, deadline))
        value, gradient = call.finish(product, self._moments, self._squares)
        return (value, gradient, report) if with_report else (value, gradient)

    @homed
    async def gradient_async(self, w: Any, *, with_report: bool = False, **options: Any) -> Any:
        """Compute the gradient; parameters as for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)
            The gradient, of the shape of ``w``, fresh and writable.
        """
        report: Report
        _, gradient, report = await self.value_and_gradient_async(w, with_report=True, **options)
        return (gradient, report) if with_report else gradient

    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)


async def encode_polynomial(
    owner: Owner,
    source: Source,
    y: Array | None,
    code: LagrangeMultiMessage,
    location: Location,
    dtype: np.dtype[Any],
    scanned: Scan,
) -> PolynomialData:
    """Store the coded rows, and compute what is needed of the targets."""
    if code.degree != 2:
        raise InputError(f"gradients of least squares need degree=2, got {code.degree}")
    res = await owner.resources()
    moments, squares = (None, 0.0) if y is None else await asyncio.to_thread(target_moments, source, y)
    matrix = await store_encoded(
        source,
        code,
        res.store,
        location.prefix(res),
        dtype=dtype,
        scanned=scanned,
        limits=res.limits,
        resume=bool(location.name),
    )
    return PolynomialData(StoredRows(owner, location, matrix), code, moments, squares)
