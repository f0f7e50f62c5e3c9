"""One gradient from partitions, whatever the loss: its checks, the round, regularizer and scaling."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.data.coded import Reduction
from serverless_gc.data.partitions import LABELS, PartitionedMatrix
from serverless_gc.encode import StoredParts
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.policies import approximate_policy
from serverless_gc.prepare import check_number, check_operand, check_point, find_loss
from serverless_gc.rounds.jobs import Job, Layout, PartLoss, gradient_job
from serverless_gc.rounds.lateness import late_workers, regrouped
from serverless_gc.rounds.resources import Owner, Resources
from serverless_gc.types import Array, WaitPolicy
from serverless_gc.wire import pack_block
from serverless_gc.worker import losses

__all__ = ["AnyLoss", "GradientCall", "OnUndecodable", "Stop", "stored_function"]

OnUndecodable = Literal["raise", "approximate"]
AnyLoss: TypeAlias = str | losses.Loss | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Stop:
    """When a round's answer is good enough and how it is decoded, see `GradientData.value_and_gradient`."""

    max_error: float | None = None
    wait: int | None = None
    on_undecodable: OnUndecodable = "raise"
    decoder: str = "optimal"

    def check(self, code: SumCode) -> None:
        """Raise `InputError` if it is not one that the code can meet."""
        if self.max_error is not None and not 0 <= check_number("max_error", self.max_error) < np.inf:
            raise InputError(f"max_error must be a finite number of at least 0, got {self.max_error!r}")
        if self.on_undecodable not in {"raise", "approximate"}:
            raise InputError(f"on_undecodable must be 'raise' or 'approximate', got {self.on_undecodable!r}")
        if not isinstance(code, GradientCode):
            if self != Stop():
                raise InputError(
                    "max_error=, wait=, on_undecodable= and decoder= are for codes that sum partition gradients; "
                    f"{code.name!r} gives the exact gradient or none"
                )
            return
        if self.given:
            self.policy(code)
        if self.decoder != "optimal":
            try:
                code.weights((), self.decoder)
            except InputError as exc:
                raise InputError(f"decoder must be one that {code.name!r} has: {exc}") from None

    def policy(self, code: SumCode) -> WaitPolicy | None:
        """Make the waiting policy that these say; None if they do not say when to close."""
        if not self.given or not isinstance(code, GradientCode):
            return None
        return approximate_policy(code, max_error=self.max_error, wait=self.wait)

    def decoding(self, code: SumCode) -> Mapping[str, Any]:
        """Return the keywords for the code's ``decode``."""
        if not isinstance(code, GradientCode):
            return {}
        return {"approximate": self.approximate or not code.exact, "method": self.decoder}

    @property
    def given(self) -> bool:
        """Whether they say when to close."""
        return self.max_error is not None or self.wait is not None

    @property
    def approximate(self) -> bool:
        """Whether an answer may be approximate because the caller said so."""
        return self.given or self.on_undecodable == "approximate" or self.decoder not in {"optimal", "lstsq"}


async def stored_function(res: Resources, function: Any, name: str = "loss") -> tuple[dict[str, str], str]:
    """Store a user's function, or an object of a class of the user's, and return its stamp and its key.

    ``name`` is as what it was given, for messages.

    Raises
    ------
    InputError, LimitError
        If it cannot be pickled, or is too large.
    """
    from serverless_gc.rounds.functions import ship  # loads cloudpickle

    shipment = await asyncio.to_thread(ship, function, name)
    key = f"{res.prefix}/functions/{shipment.digest}"
    await res.put_once(key, pack_block(np.frombuffer(shipment.data, np.uint8)))
    return shipment.stamp, key


class Partitions(Protocol):
    """The data of a gradient: a `serverless_gc.data.gradient.GradientData`."""

    y: Array | None

    @property
    def n_rows(self) -> int: ...
    @property
    def n_cols(self) -> int: ...
    @property
    def code(self) -> SumCode: ...
    @property
    def latest(self) -> SumCode:
        """The code as the last round used it."""
        ...

    async def layout(self, code: SumCode) -> Layout:
        """Return who reads and combines what."""
        ...


class GradientCall:
    """One gradient: checks, the round, regularizer and scaling."""

    def __init__(
        self,
        data: Partitions,
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
        mixes = isinstance(data.code, GradientCode) and np.iscomplexobj(data.code.row(0)[1])
        if mixes and (self.matrix.complex or self.w.dtype.kind == "c"):
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
    async def job(self, code: SumCode, *, value: bool, measure: Mapping[str, Any] | None = None) -> AsyncIterator[Job]:
        """Lend the job of the round; labels and weights are kept stored meanwhile."""
        layout = await self.data.layout(code)
        async with self.stored() as (columns, loss):
            yield gradient_job(
                layout,
                columns,
                self.w,
                loss,
                labelled=self.data.y is not None,
                value=value,
                decoding=self.stop.decoding(code),
                measure=measure,
            )

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[tuple[list[StoredParts], PartLoss]]:
        """Lend the stored labels and weights, as far as there are any, and say how tasks name the loss."""
        data, matrix = self.data, self.matrix
        loss = await self._sent(await matrix.owner.resources())
        async with AsyncExitStack() as stack:
            given = [(data.y, LABELS), (self.weights, "sample_weight")]
            yield [await stack.enter_async_context(matrix.column(v, name)) for v, name in given if v is not None], loss

    async def run(self, *, value: bool) -> tuple[float, Array, Report]:
        """Compute value (0 if not wanted), gradient and report."""
        total, _, report = await self.summed(value=value)
        return (*self.finished(total, value=value), report)

    async def summed(
        self, *, value: bool = False, measure: Mapping[str, Any] | None = None
    ) -> tuple[Array, float, Report]:
        """Sum over the partitions; also say which share of them entered, in the mean square."""
        owner = self.matrix.owner
        code, note = regrouped(self.data.code, self.data.latest, owner.late)
        async with self.job(code, value=value, measure=measure) as job:
            total, report = await run_round(await owner.resources(), job, lambda _: self._policy(owner, code))
        n = code.n_workers
        owner.late[n] = late_workers(report.spans, owner.late.get(n, frozenset()))
        if note:
            report = replace(report, notes=(*report.notes, note))
        # The best weights miss by the same as what they count: other decoders count every partition once on average.
        counted = 1.0 - report.error_per_partition if self.stop.decoder in {"optimal", "lstsq"} else 1.0
        return total, counted, self.matrix.reported(report)

    def _policy(self, owner: Owner, code: SumCode) -> WaitPolicy:
        return owner.policy_for(
            code,
            self.deadline,
            inner=self.stop.policy(code),
            on_expire="close" if self.stop.on_undecodable == "approximate" else "abort",
        )

    async def _sent(self, res: Resources) -> PartLoss:
        """Store the loss, if it is a function, and say how tasks name it."""
        from serverless_gc.rounds.functions import builtin_loss  # loads cloudpickle

        known = builtin_loss(self.loss)
        if known is not None:
            return PartLoss({"loss": known[0], "loss_params": known[1]})
        stamp, key = await stored_function(res, self.loss)
        return PartLoss({"function": stamp}, key)

    def finished(self, total: Array, *, value: bool) -> tuple[float, Array]:
        """Scale, regularize and give the gradient its shape."""
        wide = np.result_type(total.dtype, np.float64)
        gradient = total[: self.w.size].astype(wide).reshape(self.w.shape) * self.scale
        loss = self.scale * float(total[-1].real) if value else 0.0
        if self.l2:
            gradient = gradient + self.l2 * self.w
            loss += 0.5 * self.l2 * float(np.vdot(self.w, self.w).real)
        return loss, gradient
