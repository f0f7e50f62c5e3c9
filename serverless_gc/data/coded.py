"""`CodedData`: an encoded data set, and the products and gradients computed from it.

A gradient of any generalized linear loss takes two coded rounds: ``z = X w`` from the coded rows of ``X``, the
residual ``r = d loss / d z`` here, then ``X.T r`` from the coded columns. Both encodings are made once. Least squares
may do with one round, see `serverless_gc.data.one_round`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.base import Code
from serverless_gc.data.curvature import Curvature, Kind
from serverless_gc.data.holding import Holding
from serverless_gc.data.objective import Differentiable
from serverless_gc.data.one_round import OnUndecodable
from serverless_gc.data.pair import EncodedPair
from serverless_gc.data.row_objective import RowObjective
from serverless_gc.data.strategy import Choice, Strategy, check_strategy
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.prepare import check_operand
from serverless_gc.refusals import known_arguments
from serverless_gc.rounds.jobs import Job, product_job, sketch_job
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

    def __init__(self, pair: EncodedPair, y: Array | None, publish: int | None = None) -> None:
        super().__init__(pair, y, publish)
        self._newest: tuple[Array, Array] | None = None

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
        call = RowObjective(weights, self.n_rows, self.y, loss, l2, reduction, sample_weight)
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
        self.remember(weights, z)
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

    # -- curvature -----------------------------------------------------------------------------------

    @homed
    @known_arguments
    async def curvature_async(
        self,
        w: Any,
        *,
        kind: Kind = "hessian_root",
        loss: str | losses.Loss = "squared",
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        sketch_rows: int | None = None,
        seed: Sequence[int] = (0,),
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute a sketch of the curvature of the loss at ``w``, in one round if the last gradient was taken there.

        With the second derivatives ``D`` of the loss the Hessian is ``X.T D X``. The coded columns of ``X`` are added
        up, with random signs, in ``sketch_rows`` buckets; that is linear, and decodes as any product does.

        Parameters
        ----------
        w
            ``(n_cols,)``, real.
        kind
            ``"hessian_root"``: ``B`` with ``E[B.T B] = X.T D X``, ``(sketch_rows, n_cols)``. ``"sum_of_squares"``: an
            estimate of the squares of the gradients of single rows, summed up, ``(n_cols,)``.
        loss, reduction, sample_weight
            As for `value_and_gradient`; the regularizer is left out.
        sketch_rows
            More are more accurate; 10 for each column by default, and with ``n_rows`` or more nothing is lost.
        seed
            Numbers of at least 0 that name the sketch.
        with_report, deadline
            As for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)

        Raises
        ------
        InputError
            If an argument is wrong, or the loss has no second derivative for each row; nothing was invoked.
        NotDecodableError, DeadlineExceeded
            If too few results arrived (in time).

        Notes
        -----
        V. Gupta, S. Kadhe, T. Courtade, M. Mahoney, K. Ramchandran, "OverSketched Newton: Fast Convex Optimization for
        Serverless Systems" (2020); sketched by the count sketch of K. Clarkson, D. Woodruff (2013).

        Examples
        --------
        >>> import serverless_gc as sgc
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> with sgc.Session() as s:
        ...     data = s.encode(X, X @ [1.0, 2.0], code="mds", n_workers=4, k=3)
        ...     B = data.curvature(np.zeros(2), sketch_rows=40)
        >>> np.allclose(B.T @ B, X.T @ X)
        True
        """
        weights = check_operand(w, self.n_cols, "w")
        shape = (self.n_rows, self.n_cols)
        asked = Curvature.checked(kind, weights, shape, self.y, loss, reduction, sketch_rows, seed)
        call = RowObjective(weights, self.n_rows, self.y, asked.loss, 0.0, reduction, sample_weight)
        asked.check_columns()
        matrix = await self._pair.matrix(1)
        if not matrix.real:
            raise InputError("curvature is computed of real data, these are complex")
        z, report = self.predictions(weights), Report(rounds=0)
        if z is None:
            z, report = await self._product(0, weights, deadline)
            self.remember(weights, z)
        buckets, factors = asked.columns(z, call.y, call.sample_weight)
        remaining = None if deadline is None else max(deadline - report.elapsed, 1e-3)
        job = sketch_job(matrix, buckets, factors, asked.rows, self._publish)
        sketched, second = await self._run(job, remaining)
        found = asked.of_columns(sketched)
        return (found, report.merge(second)) if with_report else found

    def predictions(self, w: Array) -> Array | None:
        """Return ``X @ w`` if that was the last product for a gradient; None if there is none of these weights."""
        if self._newest is None or not np.array_equal(self._newest[0], w):
            return None
        return self._newest[1]

    def remember(self, w: Array, z: Array) -> None:
        """Keep the predictions of the newest weights: their curvature needs them again."""
        self._newest = (np.array(w), z)

    matvec = blocking(matvec_async)
    rmatvec = blocking(rmatvec_async)
    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)
    curvature = blocking(curvature_async)

    async def _in_one_round(
        self, call: RowObjective, choice: Choice, deadline: float | None, on_undecodable: OnUndecodable
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
        return await self._run(product_job(await self._pair.matrix(axis), operand, self._publish), deadline)

    async def _run(self, job: Job, deadline: float | None) -> tuple[Array, Report]:
        owner = self._pair.owner
        res = await owner.resources()
        answer, report = await run_round(res, job, lambda code: owner.policy_for(code, deadline, dtype=job.stored))
        return answer, self._pair.reported(report)
