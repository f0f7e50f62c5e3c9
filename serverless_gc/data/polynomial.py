"""`PolynomialData`: least-squares gradients from multi-message Lagrange coded rows, in one round.

Workers send ``X~.T (X~ w)`` of one coded block after the other, each as it is done; enough of them, from whomever, give
``X.T X w``. ``X.T y`` is computed here once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from serverless_gc.background import blocking, homed
from serverless_gc.codes.multi import LagrangeMultiMessage
from serverless_gc.data.coded import PairData, Reduction
from serverless_gc.data.least_squares import LeastSquares, target_moments
from serverless_gc.data.pair import EncodedPair
from serverless_gc.encode import Source, array_digest
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.refusals import known_arguments
from serverless_gc.rounds.jobs import normal_job
from serverless_gc.types import Array

__all__ = ["PolynomialData", "check_polynomial", "polynomial_data"]


class PolynomialData(PairData):
    """A data set for least-squares gradients by multi-message Lagrange coding, made by `Session.encode`.

    Every method has an ``_async`` twin with the same signature.

    Attributes
    ----------
    n_rows, n_cols
        Shape of ``X``.
    code
        The code in use, with its parameters.
    targets
        Name of the content of ``y``; empty without.
    """

    def __init__(
        self,
        pair: EncodedPair,
        y: Array | None,
        moments: Array | None,
        squares: float,
        targets: str,
        publish: int | None = None,
    ) -> None:
        super().__init__(pair, y, publish)
        self._moments = moments
        self._squares = squares
        self.targets = targets

    @property
    def moments(self) -> tuple[Array | None, float]:
        """``X.T y``, None without ``y``, and ``||y||**2``."""
        return self._moments, self._squares

    @homed
    @known_arguments
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

        The value is less accurate where it is small against ``||y||**2``: a line search may end early there, steps of
        known length do not.

        Parameters
        ----------
        w
            ``(n_cols,)`` or ``(n_cols, c)``, as many columns as ``y``.
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
        if call.w.shape != self._moments.shape:
            raise InputError(f"w must have shape {self._moments.shape}, as y has columns; got {call.w.shape}")
        matrix = await self._pair.matrix(0)
        res = await self.owner.resources()
        job = normal_job(matrix, self.code, call.w, self._publish)
        policy_for = partial(self.owner.policy_for, deadline=deadline, dtype=job.stored)
        product, report = await run_round(res, job, policy_for)
        value, gradient = call.finish(product, self._moments, self._squares)
        report = self._pair.reported(report)
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


def check_polynomial(code: LagrangeMultiMessage, source: Source) -> None:
    """Raise `InputError` unless code and matrix serve gradients of least squares."""
    if code.degree != 2:
        raise InputError(f"gradients of least squares need degree=2, got {code.degree}")
    if source.sparse:
        raise InputError(f"{source.name} must be dense for {code.name!r}: its coded rows mix all rows")


async def polynomial_data(pair: EncodedPair, source: Source, y: Array | None, publish: int | None) -> PolynomialData:
    """Make a data set of the coded rows of ``source``, computing what is needed of the targets."""
    moments, squares = (None, 0.0) if y is None else await asyncio.to_thread(target_moments, source, y)
    pair.release()
    targets = "" if y is None else await asyncio.to_thread(array_digest, y)
    return PolynomialData(pair, y, moments, squares, targets, publish)
