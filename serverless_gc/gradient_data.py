"""`GradientData`: partitions of a data set, and gradients of any loss computed from them by a gradient code.

Partitions are stored as they are, each once; a worker reads those of its rows of the encoding matrix. One round gives
the gradient, whatever the loss.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.data import Reduction
from serverless_gc.errors import InputError
from serverless_gc.jobs import Job, Layout, PartLoss, gradient_job
from serverless_gc.objective import Differentiable
from serverless_gc.observe import Report
from serverless_gc.partitioned import PartitionedMatrix
from serverless_gc.pipeline import run_round
from serverless_gc.prepare import check_number, check_operand, check_point, find_loss
from serverless_gc.resources import Owner, Resources
from serverless_gc.stopping import OnUndecodable, Stop
from serverless_gc.types import Array, WaitPolicy
from serverless_gc.wire import pack_block
from serverless_gc.worker import losses

__all__ = ["GradientData", "OnUndecodable", "Stop"]

AnyLoss: TypeAlias = str | losses.Loss | Callable[..., Any]


class GradientData(Differentiable):
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

    def __init__(self, matrix: PartitionedMatrix, code: GradientCode, y: Array | None) -> None:
        self._matrix = matrix
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
    def code(self) -> GradientCode:
        """The gradient code."""
        return self._code

    @property
    def stored_nnz(self) -> int:
        """Entries of ``X`` that are stored: each partition once."""
        return self._matrix.stored_nnz

    @property
    def owner(self) -> Owner:
        """The session."""
        return self._matrix.owner

    @property
    def fingerprint(self) -> str:
        """Name of the content of ``X``: equal content, equal name."""
        return self._matrix.key.partition("-")[0]

    def __repr__(self) -> str:
        return f"GradientData({self.n_rows} x {self.n_cols}, {self.code!r})"

    async def layout(self) -> Layout:
        """Return who reads and combines which stored partitions; worked out once.

        Raises
        ------
        ServerlessGCError
            If the partitions were deleted.
        """
        parts = await self._matrix.parts()
        if self._layout is None or self._layout.matrix is not parts:
            self._layout = await asyncio.to_thread(Layout.of, self._code, parts)
        return self._layout

    # -- losses --------------------------------------------------------------------------------------

    @homed
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
        with_report
            Also return the `Report`.
        deadline
            Seconds from now after which the call fails, or takes what is there; the session's by default.

        Returns
        -------
        (value, gradient) or (value, gradient, Report)
            A float and an array of the shape of ``w``, fresh and writable. ``report.error`` is 0 for an exact answer.

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
        stop = Stop(max_error, wait, on_undecodable)
        call = _Call(self, self._matrix, w, loss, l2, reduction, sample_weight, stop, deadline)
        value, gradient, report = await call.run(value=True)
        return (value, gradient, report) if with_report else (value, gradient)

    @homed
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
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Compute the gradient of the loss with respect to ``w``; parameters as for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)
            The gradient, of the shape of ``w``, fresh and writable.
        """
        stop = Stop(max_error, wait, on_undecodable)
        call = _Call(self, self._matrix, w, loss, l2, reduction, sample_weight, stop, deadline)
        _, gradient, report = await call.run(value=False)
        return (gradient, report) if with_report else gradient

    # -- what a sum of gradients cannot give ---------------------------------------------------------

    @homed
    async def matvec_async(self, x: Any, *, with_report: bool = False, deadline: float | None = None) -> Any:  # noqa: ARG002 - the face of coded data
        """Raise `InputError`: a gradient code gives sums over all rows; products need a data code."""
        raise self._no_product("matvec")

    @homed
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
        call = _Call(self, self._matrix, w, loss, 0.0, reduction, sample_weight, Stop(), None)
        async with call.job(value=True) as job:
            yield job, lambda total: call.finished(total, value=True)

    @homed
    async def close_async(self) -> None:
        """Delete the stored partitions now rather than when the session closes."""
        await self._matrix.remove()

    matvec = blocking(matvec_async)
    rmatvec = blocking(rmatvec_async)
    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)
    close = blocking(close_async)


class _Call:
    """One gradient: checks, the round, regularizer and scaling."""

    def __init__(
        self,
        data: GradientData,
        matrix: PartitionedMatrix,
        w: Any,
        loss: AnyLoss,
        l2: float,
        reduction: Reduction,
        sample_weight: Any,
        stop: Stop,
        deadline: float | None,
    ) -> None:
        if reduction not in {"sum", "mean"}:
            raise InputError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
        if not 0 <= check_number("l2", l2) < np.inf:
            raise InputError(f"l2 must be a finite number of at least 0, got {l2!r}")
        stop.check(data.code)
        self.data = data
        self.matrix = matrix
        self.stop = stop
        self.deadline = deadline
        self.l2 = float(l2)
        self.scale = 1.0 if reduction == "sum" else 1.0 / data.n_rows
        self.weights = None if sample_weight is None else np.asarray(sample_weight)
        own = callable(loss) and not isinstance(loss, losses.Loss)
        self.loss: Any = loss if own else find_loss(loss)
        self.w = check_point(w, "w") if own else check_operand(w, data.n_cols, "w")
        if own:
            self._check_function()
        else:
            self._check_labels()
        if np.iscomplexobj(data.code.row(0)[1]) and (self.matrix.complex or self.w.dtype.kind == "c"):
            raise InputError(f"{data.code.name!r} has complex coefficients and serves real data and w only")

    def _check_function(self) -> None:
        arguments = (None,) * (3 if self.weights is None else 4)
        try:
            signature = inspect.signature(self.loss)
        except ValueError:  # functions written in C may not tell
            return
        try:
            signature.bind(*arguments)
        except TypeError as exc:
            called = "loss(X_part, y_part, w" + (")" if self.weights is None else ", sample_weight)")
            raise InputError(f"loss must be a function that can be called as {called}: {exc}") from None
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights is None:
            return
        n = self.data.n_rows
        if self.weights.shape != (n,) or self.weights.dtype.kind not in "biuf":
            raise InputError(f"sample_weight must be {n} numbers, one a row, got shape {self.weights.shape}")
        good = (self.weights >= 0) & np.isfinite(self.weights)
        if not good.all():
            row = int(np.argmin(good))
            raise InputError(f"sample_weight must be finite and at least 0, got {self.weights[row]} in row {row}")

    def _check_labels(self) -> None:
        if self.data.y is None:
            raise InputError("the data were encoded without y; pass it: session.encode(X, y)")
        kind = complex if self.matrix.complex or self.w.dtype.kind == "c" else float
        first = self.data.y[:1]
        try:
            self.loss.check((self.data.n_rows, *self.w.shape[1:]), self.data.y, self.weights)
            if kind is complex:
                self.loss.value(np.zeros((1, *self.w.shape[1:]), kind), first)
        except ValueError as exc:
            raise InputError(str(exc)) from exc

    @asynccontextmanager
    async def job(self, *, value: bool) -> AsyncIterator[Job]:
        """Lend the job of the round; labels and weights are kept stored meanwhile."""
        data, matrix = self.data, self.matrix
        loss = await self._sent(await matrix.owner.resources())
        layout = await data.layout()
        async with AsyncExitStack() as stack:
            given = [(data.y, "y"), (self.weights, "sample_weight")]
            columns = [await stack.enter_async_context(matrix.column(v, name)) for v, name in given if v is not None]
            yield gradient_job(
                layout,
                columns,
                self.w,
                loss,
                labelled=data.y is not None,
                value=value,
                decoding={"approximate": self.stop.approximate or not data.code.exact},
            )

    async def run(self, *, value: bool) -> tuple[float, Array, Report]:
        """Compute value (0 if not wanted), gradient and report."""
        owner = self.matrix.owner
        async with self.job(value=value) as job:
            total, report = await run_round(await owner.resources(), job, lambda _: self._policy(owner))
        return (*self.finished(total, value=value), self.matrix.reported(report))

    def _policy(self, owner: Owner) -> WaitPolicy:
        code, stop = self.data.code, self.stop
        return owner.policy_for(
            code,
            self.deadline,
            inner=stop.policy(code) if stop.given else None,
            on_expire="close" if stop.on_undecodable == "approximate" else "abort",
        )

    async def _sent(self, res: Resources) -> PartLoss:
        """Store the loss, if it is a function, and say how tasks name it."""
        from serverless_gc.functions import builtin_loss, ship  # loads cloudpickle

        known = builtin_loss(self.loss)
        if known is not None:
            return PartLoss({"loss": known[0], "loss_params": known[1]})
        shipment = await asyncio.to_thread(ship, self.loss)
        key = f"{res.prefix}/functions/{shipment.digest}"
        await res.put_once(key, pack_block(np.frombuffer(shipment.data, np.uint8)))
        return PartLoss({"function": shipment.stamp}, key)

    def finished(self, total: Array, *, value: bool) -> tuple[float, Array]:
        """Scale, regularize and give the gradient its shape."""
        wide = np.result_type(total.dtype, np.float64)
        gradient = total[: self.w.size].astype(wide).reshape(self.w.shape) * self.scale
        loss = self.scale * float(total[-1].real) if value else 0.0
        if self.l2:
            gradient = gradient + self.l2 * self.w
            loss += 0.5 * self.l2 * float(np.vdot(self.w, self.w).real)
        return loss, gradient
