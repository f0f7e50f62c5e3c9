"""`CodedData`: an encoded data set, and the products and gradients computed from it.

A gradient of any generalized linear loss takes two coded rounds: ``z = X w`` from the coded rows of ``X``, the
residual ``r = d loss / d z`` here, then ``X.T r`` from the coded columns. Both encodings are made once. Least squares
may do with one round, see `serverless_gc.one_round`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.base import Code
from serverless_gc.encoded_pair import EncodedPair
from serverless_gc.errors import InputError
from serverless_gc.holding import Holding
from serverless_gc.jobs import product_job
from serverless_gc.objective import Differentiable
from serverless_gc.observe import Report
from serverless_gc.one_round import OnUndecodable
from serverless_gc.pipeline import run_round
from serverless_gc.prepare import check_number, check_operand, find_loss
from serverless_gc.refusals import known_arguments
from serverless_gc.strategy import Choice, Strategy, check_strategy
from serverless_gc.types import Array
from serverless_gc.worker import losses

__all__ = ["CodedData", "PairData", "Reduction"]

Reduction = Literal["sum", "mean"]

KEPT_MOMENTS = 8
"""For how many different targets ``X.T y`` is remembered."""


class PairData(Holding, Differentiable):
    """What data sets on an `EncodedPair` have in common; ``y`` are their targets or labels, or None."""

    def __init__(self, pair: EncodedPair, y: Array | None, publish: int | None = None) -> None:
        self._pair = self._holder = pair
        self._publish = publish
        self.y = y
        pair.holders.add(self)

    @property
    def n_rows(self) -> int:
        """Number of rows of ``X``, padding not counted."""
        return int(self._pair.shape[0])

    @property
    def n_cols(self) -> int:
        """Number of columns of ``X``."""
        return int(self._pair.shape[1])

    @property
    def code(self) -> Code:
        """The code of what is encoded."""
        return self._pair.code

    @property
    def stored_nnz(self) -> int:
        """Entries stored by the encodings made so far, both axes together."""
        return self._pair.stored_nnz

    @property
    def fingerprint(self) -> str:
        """Name of the content of ``X``: equal content, equal name."""
        return self._pair.fingerprint[:16]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_rows} x {self.n_cols}, {self.code!r})"


class CodedData(PairData):
    """An encoded data set, made by `Session.encode`.

    Every method has an ``_async`` twin with the same signature.

    Attributes
    ----------
    n_rows, n_cols
        Shape of ``X``.
    code
        The code in use, with its parameters.
    """

    # -- products ------------------------------------------------------------------------------------

    @homed
    @known_arguments
    async def matvec_async(self, x: Any, *, with_report: bool = False, deadline: float | None = None) -> Any:
        """Compute ``X @ x``.

        Parameters
        ----------
        x
            ``(n_cols,)`` or ``(n_cols, c)``.
        with_report
            Also return the `Report`.
        deadline
            Seconds from now after which the call fails; the session's by default.

        Returns
        -------
        array or (array, Report)
            ``(n_rows,)`` or ``(n_rows, c)``, fresh and writable.

        Raises
        ------
        InputError
            If ``x`` has the wrong shape, is not numeric or not finite.
        NotDecodableError, DeadlineExceeded
            If too few results arrived (in time).
        """
        operand = check_operand(x, self.n_cols, "x")
        z, report = await self._product(0, operand, deadline)
        return (z, report) if with_report else z

    @homed
    @known_arguments
    async def rmatvec_async(self, r: Any, *, with_report: bool = False, deadline: float | None = None) -> Any:
        """Compute ``X.T @ r``; parameters and errors as for `matvec`.

        Parameters
        ----------
        r
            ``(n_rows,)`` or ``(n_rows, c)``.
        with_report, deadline
            As for `matvec`.

        Returns
        -------
        array or (array, Report)
            ``(n_cols,)`` or ``(n_cols, c)``, fresh and writable.
        """
        operand = check_operand(r, self.n_rows, "r")
        g, report = await self._product(1, operand, deadline)
        return (g, report) if with_report else g

    # -- losses --------------------------------------------------------------------------------------

    @homed
    @known_arguments
    async def value_and_gradient_async(
        self,
        w: Any,
        *,
        loss: str | losses.Loss = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        strategy: Strategy = "auto",
        on_undecodable: OnUndecodable = "raise",
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the loss and its gradient with respect to ``w``.

        Parameters
        ----------
        w
            ``(n_cols,)``, or ``(n_cols, c)`` for several outputs or classes.
        loss
            ``"squared"`` (``0.5 * ||X w - y||**2``), ``"logistic"``, ``"softmax"``, ``"poisson"``, ``"huber"``,
            ``"squared_hinge"``, or a loss object of `serverless_gc.worker.losses`.
        l2
            Adds ``0.5 * l2 * ||w||**2``; not divided by the number of rows.
        reduction
            ``"sum"`` over the rows or ``"mean"`` (divides by the number of rows).
        sample_weight
            ``(n_rows,)`` weights of the rows, at least 0.
        strategy
            ``"two-round"``; ``"gram"``: least squares in one round, by a product with the coded ``X.T X``;
            ``"polynomial"``: the same by a code that allows it (``"pcr"``); or ``"auto"``: the last where the code
            allows it, the Gram matrix from the third least-squares gradient of the same data on if ``X`` has few and
            well-conditioned columns (condition number up to 1e4, or 1e2 in single precision), else two rounds. The
            report says what was chosen and why. The value of the loss is less accurate in one round where it is small
            against ``||y||**2``.
        on_undecodable
            ``"approximate"``, for an LDPC code and ``strategy="gram"`` only: entries of the gradient that cannot be
            had within the deadline are zero, and the report says how many blocks are missing.
        with_report
            Also return the `Report` of all rounds together.
        deadline
            Seconds from now after which the call fails; the session's by default.

        Returns
        -------
        (value, gradient) or (value, gradient, Report)
            A float and an array of the shape of ``w``, fresh and writable.

        Raises
        ------
        InputError
            If a shape, a label or a weight is not valid; nothing was invoked.
        NotDecodableError, DeadlineExceeded
            If too few results arrived (in time).
        """
        weights = check_operand(w, self.n_cols, "w")
        call = _Objective(self, weights, loss, l2, reduction, sample_weight)
        asked = check_strategy(strategy)
        choice = await self._pair.one_round.choose(asked, loss=call.loss.name, weighted=sample_weight is not None)
        if choice.strategy != "two-round":
            value, gradient, report = await self._in_one_round(call, choice, deadline, on_undecodable)
            return (value, gradient, report) if with_report else (value, gradient)
        if on_undecodable != "raise":
            raise InputError(
                f"on_undecodable={on_undecodable!r} is for gradient codes, and for least squares with code='ldpc' and "
                "strategy='gram'"
            )
        z, first = await self._product(0, weights, deadline)
        value, residual = call.local(z)
        remaining = None if deadline is None else max(deadline - first.elapsed, 1e-3)
        product_, second = await self._product(1, residual, remaining)
        gradient = call.finish(product_)
        report = replace(first.merge(second), strategy=str(choice))
        return (value, gradient, report) if with_report else (value, gradient)

    @homed
    @known_arguments
    async def gradient_async(
        self,
        w: Any,
        *,
        loss: str | losses.Loss = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        strategy: Strategy = "auto",
        on_undecodable: OnUndecodable = "raise",
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the gradient of the loss with respect to ``w``; parameters as for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)
            The gradient, of the shape of ``w``, fresh and writable.
        """
        _, gradient, report = await self.value_and_gradient_async(
            w,
            loss=loss,
            l2=l2,
            reduction=reduction,
            sample_weight=sample_weight,
            strategy=strategy,
            on_undecodable=on_undecodable,
            with_report=True,
            deadline=deadline,
        )
        return (gradient, report) if with_report else gradient

    matvec = blocking(matvec_async)
    rmatvec = blocking(rmatvec_async)
    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)

    async def _in_one_round(
        self, call: _Objective, choice: Choice, deadline: float | None, on_undecodable: OnUndecodable
    ) -> tuple[float, Array, Report]:
        """Compute value and gradient of least squares from ``X.T X w`` and the moments of ``y``."""
        moments, first = await self._target_moments(deadline)
        product, report = await self._pair.one_round.product(choice, call.w, deadline, on_undecodable)
        value, gradient = call.from_moments(product, moments)
        report = self._pair.reported(report)
        report = report if first is None else first.merge(report)
        return value, gradient, replace(report, strategy=str(choice))

    async def _target_moments(self, deadline: float | None) -> tuple[Array, Report | None]:
        """Return ``X.T y`` (conjugated for complex data), computed by a round of its own once for the same ``y``."""
        assert self.y is not None  # noqa: S101 - objectives check it
        targets = check_operand(self.y, self.n_rows, "y")
        async with self._pair.moments_lock:
            name = hashlib.sha256(targets.tobytes()).digest() + str((targets.shape, targets.dtype)).encode()
            moments = self._pair.moments.pop(name, None)
            report = None
            if moments is None:
                product, report = await self._product(1, np.conj(targets), deadline)
                moments = np.conj(product)
            self._pair.moments[name] = moments  # the newest last
            while len(self._pair.moments) > KEPT_MOMENTS:
                self._pair.moments.pop(next(iter(self._pair.moments)))
            return moments, report

    async def _product(self, axis: Literal[0, 1], operand: Array, deadline: float | None) -> tuple[Array, Report]:
        owner = self._pair.owner
        matrix = await self._pair.matrix(axis)
        res = await owner.resources()
        job = product_job(matrix, operand, self._publish)
        answer, report = await run_round(res, job, lambda code: owner.policy_for(code, deadline, dtype=job.stored))
        return answer, self._pair.reported(report)


class _Objective:
    """The local part of one gradient: checks, loss, residual, regularizer, scaling."""

    def __init__(
        self,
        data: CodedData,
        w: Array,
        loss: str | losses.Loss,
        l2: float,
        reduction: Reduction,
        sample_weight: Any,
    ) -> None:
        if data.y is None:
            raise InputError("the data were encoded without y; pass it: session.encode(X, y)")
        if reduction not in {"sum", "mean"}:
            raise InputError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
        if not 0 <= check_number("l2", l2) < np.inf:
            raise InputError(f"l2 must be a finite number of at least 0, got {l2!r}")
        self.loss = find_loss(loss)
        try:
            self.loss.check((data.n_rows, *w.shape[1:]), data.y, sample_weight)
        except ValueError as exc:
            raise InputError(str(exc)) from exc
        self.w = w
        self.l2 = float(l2)
        self.scale = 1.0 if reduction == "sum" else 1.0 / data.n_rows
        self.y = data.y
        self.sample_weight = sample_weight

    def local(self, z: Array) -> tuple[float, Array]:
        """Return the loss at the predictions ``z`` and the operand of the second round."""
        value = self.scale * float(self.loss.value(z, self.y, self.sample_weight))
        residual = self.loss.residual(z, self.y, self.sample_weight)
        if self.scale != 1.0:
            residual = residual * self.scale
        penalty = 0.5 * self.l2 * float(np.vdot(self.w, self.w).real)
        # complex data: the gradient is X^H r = conj(X^T conj(r))
        return value + penalty, np.conj(residual)

    def from_moments(self, product: Array, moments: Array) -> tuple[float, Array]:
        """Return loss and gradient of least squares from ``X.T X w`` and ``X.T y``; NaN entries have no gradient."""
        slope = product - moments
        value = 0.5 * float((np.vdot(self.w, product) - 2 * np.vdot(self.w, moments)).real)
        value += 0.5 * float(np.vdot(self.y, self.y).real)
        gradient = np.where(np.isnan(slope), 0, self.scale * slope + self.l2 * self.w)
        return self.scale * value + 0.5 * self.l2 * float(np.vdot(self.w, self.w).real), gradient

    def finish(self, product_: Array) -> Array:
        """Turn the product of the second round into the gradient."""
        gradient = np.conj(product_)
        if self.l2:
            gradient = gradient + self.l2 * self.w
        return np.array(gradient, copy=gradient.base is not None or not gradient.flags.writeable)
