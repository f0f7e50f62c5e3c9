"""`GradientData`: partitions of a data set, and gradients of any loss computed from them by a gradient code.

Partitions are stored as they are, each once; a worker reads those of its rows of the encoding matrix. One round gives
the gradient, whatever the loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from serverless_gc.background import blocking, homed
from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.data.coded import Reduction
from serverless_gc.data.curvature import Curvature, Kind
from serverless_gc.data.gradient_call import AnyLoss, GradientCall, OnUndecodable, Stop
from serverless_gc.data.holding import Holding
from serverless_gc.data.objective import Differentiable
from serverless_gc.data.partitions import LABELS, PartitionedMatrix
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.prepare import check_operand
from serverless_gc.refusals import known_arguments
from serverless_gc.rounds.jobs import Job, Layout, StoredObjective
from serverless_gc.types import Array

__all__ = ["GradientData", "OnUndecodable"]


class GradientData(Holding, Differentiable):
    """A data set partitioned for a gradient code, made by `Session.encode`.

    It has the face of `CodedData`: every method has an ``_async`` twin with the same signature. Products are what it
    cannot give.

    Attributes
    ----------
    n_rows, n_cols
        Shape of ``X``.
    code
        The code in use, with its parameters.
    """

    def __init__(self, matrix: PartitionedMatrix, code: SumCode, y: Array | None) -> None:
        self._matrix = self._holder = matrix
        self._code = code
        self._layout: Layout | None = None
        self.y = y
        matrix.holders.add(self)

    @property
    def n_rows(self) -> int:
        """Number of rows of ``X``."""
        return int(self._matrix.shape[0])

    @property
    def n_cols(self) -> int:
        """Number of columns of ``X``."""
        return int(self._matrix.shape[1])

    @property
    def code(self) -> SumCode:
        """The gradient code."""
        return self._code

    @property
    def stored_nnz(self) -> int:
        """Entries of ``X`` that are stored: each partition once."""
        return self._matrix.stored_nnz

    @property
    def fingerprint(self) -> str:
        """Name of the content of ``X``: equal content, equal name."""
        return self._matrix.location.key.partition("-")[0]

    def __repr__(self) -> str:
        return f"GradientData({self.n_rows} x {self.n_cols}, {self.code!r})"

    @property
    def latest(self) -> SumCode:
        """The code as the last round used it: its workers may have been in other clusters."""
        return self._code if self._layout is None else self._layout.code

    async def layout(self, code: SumCode) -> Layout:
        """Return who reads and combines which stored partitions; the last one is remembered.

        Parameters
        ----------
        code
            This data set's code, or the same with its workers in other clusters.

        Raises
        ------
        ServerlessGCError
            If the partitions were deleted.
        """
        parts = await self._matrix.parts()
        layout = self._layout
        if layout is None or layout.matrix is not parts or layout.code is not code:
            layout = self._layout = await asyncio.to_thread(Layout.of, code, parts)
        return layout

    async def store_labels(self) -> None:
        """Store the labels now rather than with the first gradient."""
        if self.y is not None:
            async with self._matrix.column(self.y, LABELS):
                pass

    # -- losses --------------------------------------------------------------------------------------

    @homed
    @known_arguments
    async def value_and_gradient_async(
        self,
        w: Any,
        *,
        loss: AnyLoss = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        max_error: float | None = None,
        wait: int | None = None,
        on_undecodable: OnUndecodable = "raise",
        decoder: str = "optimal",
        with_squares: bool = False,
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the loss and its gradient with respect to ``w``, in one round.

        Parameters
        ----------
        w
            ``(n_cols,)`` or ``(n_cols, c)``; for a function of one's own any shape, such as the flat parameters of a
            network.
        loss
            ``"squared"`` (``0.5 * ||X w - y||**2``), ``"logistic"``, ``"softmax"``, ``"poisson"``, ``"huber"``,
            ``"squared_hinge"``, a loss object of `serverless_gc.worker.losses`, or a function
            ``loss(X_part, y_part, w)`` that returns the gradient of a *sum* over the rows of a part, an array of the
            shape of ``w``, or the pair (value, gradient). It is called in the workers, for one part of the rows at a
            time, with ``y_part`` None if there is no ``y``, and with the rows' weights as a fourth argument if
            ``sample_weight`` is given. Parts of sparse data know ``X @ w``, ``X.T @ r``, ``X.shape`` and
            ``X.toarray()``.
        l2
            Adds ``0.5 * l2 * ||w||**2``; not divided by the number of rows.
        reduction
            ``"sum"`` over the rows or ``"mean"`` (divides by the number of rows).
        sample_weight
            ``(n_rows,)`` weights of the rows, at least 0.
        max_error
            Close as soon as the squared error per partition, ``err / k``, is at most this. An exact code is asked for
            an exact answer if None.
        wait
            Close after so many results at the latest.
        on_undecodable
            What happens when neither an exact answer nor the above was reached in time, or ever can be: ``"raise"``, or
            ``"approximate"``: the best combination of what arrived, with a note and its error in the report.
        decoder
            How results are weighted, a ``method`` of `GradientCode.weights`: ``"optimal"`` (least error), ``"lstsq"``
            (the same by least squares), ``"one-step"`` (all alike, no system to solve), ``"algorithmic"`` (iterations),
            and with approximate codes ``"rescaled"`` (partitions count once on average) or what the code adds. The
            third and those behind it may be approximate where ``"optimal"`` is not; ``report.error`` is theirs.
        with_squares
            Also return the squares of the gradients of single rows, summed up, as `curvature` does, in the same round.
        with_report
            Also return the `Report`.
        deadline
            Seconds from now after which the call fails, or takes what is there; the session's by default.

        Returns
        -------
        (value, gradient) or (value, gradient, Report)
            A float and an array of the shape of ``w``, fresh and writable. ``report.error`` is 0 for an exact answer.
            Squares come behind the gradient.

        Raises
        ------
        InputError
            If a shape, a label or a weight is not valid, or the function cannot be sent; nothing was invoked.
        NotDecodableError, DeadlineExceeded
            If too few results arrived (in time), or the function raised in too many workers; the message names the
            partition, a note holds the worker's traceback.
        ConfigError
            If the workers cannot run the function: another Python version, or a module that is missing.
        """
        stop = Stop(max_error, wait, on_undecodable, decoder)
        call = GradientCall(self, self._matrix, w, loss, l2, reduction, sample_weight, stop, deadline)
        behind = self._asked(call.w, "sum_of_squares", loss, reduction) if with_squares else None
        measure = None if behind is None else behind.measure(behind=True)
        total, counted, report = await call.summed(value=True, measure=measure)
        found: tuple[Any, ...] = call.finished(total, value=True)
        if behind is not None:
            found += (behind.of_parts(total[call.w.size : 2 * call.w.size], counted),)
        return (*found, report) if with_report else found

    @homed
    @known_arguments
    async def gradient_async(
        self,
        w: Any,
        *,
        loss: AnyLoss = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        max_error: float | None = None,
        wait: int | None = None,
        on_undecodable: OnUndecodable = "raise",
        decoder: str = "optimal",
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the gradient of the loss with respect to ``w``; parameters as for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)
            The gradient, of the shape of ``w``, fresh and writable.
        """
        stop = Stop(max_error, wait, on_undecodable, decoder)
        call = GradientCall(self, self._matrix, w, loss, l2, reduction, sample_weight, stop, deadline)
        _, gradient, report = await call.run(value=False)
        return (gradient, report) if with_report else gradient

    @homed
    @known_arguments
    async def curvature_async(
        self,
        w: Any,
        *,
        kind: Kind = "hessian_root",
        loss: AnyLoss = "squared",
        reduction: Reduction = "sum",
        sample_weight: Any = None,
        sketch_rows: int | None = None,
        seed: Sequence[int] = (0,),
        max_error: float | None = None,
        wait: int | None = None,
        on_undecodable: OnUndecodable = "raise",
        decoder: str = "optimal",
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the curvature of the loss at ``w``, in one round.

        What workers return is a sum over their partitions, as gradients are, and is decoded likewise. Where partitions
        are missing it is scaled up as if they were like the others.

        Parameters
        ----------
        w
            ``(n_cols,)``, real.
        kind
            ``"hessian_root"``, as for `CodedData.curvature`: with the same seed the same one. ``"fisher"``:
            ``X.T D X`` itself, ``(n_cols, n_cols)``. ``"sum_of_squares"``: the squares of the gradients of single rows,
            summed up, ``(n_cols,)``.
        loss
            A loss by its name or as an object, not a function.
        reduction, sample_weight
            As for `value_and_gradient`; the regularizer is left out.
        sketch_rows, seed
            As for `CodedData.curvature`.
        max_error, wait, on_undecodable, decoder, with_report, deadline
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

        Examples
        --------
        >>> import numpy as np, serverless_gc as sgc
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> with sgc.Session() as s:
        ...     F = s.encode(X, X @ [1.0, 2.0], code="frc", n_workers=4).curvature(np.zeros(2), kind="fisher")
        >>> np.allclose(F, X.T @ X)
        True
        """
        stop = Stop(max_error, wait, on_undecodable, decoder)
        point = check_operand(w, self.n_cols, "w")
        asked = self._asked(point, kind, loss, reduction, sketch_rows, seed)
        call = GradientCall(self, self._matrix, point, asked.loss, 0.0, reduction, sample_weight, stop, deadline)
        total, counted, report = await call.summed(measure=asked.measure())
        found = asked.of_parts(total, counted)
        return (found, report) if with_report else found

    def _asked(
        self,
        w: Array,
        kind: Kind,
        loss: AnyLoss,
        reduction: Reduction,
        sketch_rows: int | None = None,
        seed: Sequence[int] = (0,),
    ) -> Curvature:
        if self._matrix.complex:
            raise InputError("curvature is computed of real data, these are complex")
        return Curvature.checked(kind, w, (self.n_rows, self.n_cols), self.y, loss, reduction, sketch_rows, seed)

    # -- what a sum of gradients cannot give ---------------------------------------------------------

    @homed
    @known_arguments
    async def matvec_async(self, x: Any, *, with_report: bool = False, deadline: float | None = None) -> Any:  # noqa: ARG002 - the face of coded data
        """Raise `InputError`: a gradient code gives sums over all rows; products need a data code."""
        raise self._no_product("matvec")

    @homed
    @known_arguments
    async def rmatvec_async(self, r: Any, *, with_report: bool = False, deadline: float | None = None) -> Any:  # noqa: ARG002 - as above
        """Raise `InputError`: products need a data code."""
        raise self._no_product("rmatvec")

    def _no_product(self, name: str) -> InputError:
        return InputError(
            f"{name} needs a data code (polar, mds, ...): {self.code.name!r} is a gradient code, which gives sums of "
            "gradients over all rows and no products; encode the matrix with code='polar'"
        )

    @asynccontextmanager
    async def job(
        self, w: Any, *, loss: AnyLoss = "squared", reduction: Reduction = "sum", sample_weight: Any = None
    ) -> AsyncIterator[tuple[Job, Callable[[Array], tuple[float, Array]]]]:
        """Lend the job of one gradient, for loops that run its tasks themselves.

        Yields
        ------
        job, finish
            The job, value and gradient together, and a function from a sum over all partitions to (value, gradient),
            without a regularizer. Labels and weights are kept stored as long as the block runs.

        Raises
        ------
        InputError
            As for `value_and_gradient`.
        """
        call = GradientCall(self, self._matrix, w, loss, 0.0, reduction, sample_weight, Stop(), None)
        async with call.job(self.code, value=True) as job:
            yield job, lambda total: call.finished(total, value=True)

    @asynccontextmanager
    async def partitions(
        self, w: Any, *, loss: AnyLoss = "squared", l2: float = 0.0, sample_weight: Any = None
    ) -> AsyncIterator[StoredObjective]:
        """Lend what is stored of an objective, for schemes whose workers are not those of the code.

        Yields
        ------
        StoredObjective
            Labels and weights are kept stored as long as the block runs.

        Raises
        ------
        InputError
            As for `value_and_gradient`, or if the data are complex; nothing was stored.
        """
        if self._matrix.complex:
            raise InputError("decentralized and stochastic schemes take real data only")
        call = GradientCall(self, self._matrix, w, loss, l2, "mean", sample_weight, Stop(), None)
        async with call.stored() as (columns, sent):
            yield StoredObjective(await self._matrix.parts(), columns, sent, self.y is not None)

    def reported(self, report: Report) -> Report:
        """Add what storing the data has cost to the report of the first call that used them."""
        return self._matrix.reported(report)

    matvec = blocking(matvec_async)
    rmatvec = blocking(rmatvec_async)
    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)
    curvature = blocking(curvature_async)
