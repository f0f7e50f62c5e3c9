"""`EncodedData`: least squares on encoded data, with whichever workers answer first.

Worker ``i`` holds ``X_i = S_i X / sqrt(beta)`` of a tight frame and sends ``X_i.T (X_i w)``; ``X_i.T y_i`` stays here.
For coordinate descent it holds ``X S_i.T`` instead, the frame being over the columns.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.base import Certificate, Code
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.encoded.frames import Frame
from serverless_gc.codes.gradient.linear import LinearGradientCode
from serverless_gc.codes.received import receive
from serverless_gc.data.coded import Reduction
from serverless_gc.data.holding import Holding
from serverless_gc.data.least_squares import LeastSquares
from serverless_gc.data.objective import Differentiable
from serverless_gc.data.partitions import PartitionedMatrix
from serverless_gc.encode import Source, StoredParts, array_digest, as_source
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.optim.encoded import AskGradients, AskNorms, AskSteps, Iterate, Iteration
from serverless_gc.pipeline import run_round
from serverless_gc.policies import FirstK
from serverless_gc.refusals import known_arguments
from serverless_gc.rounds.jobs import Job
from serverless_gc.rounds.resources import Location, Owner
from serverless_gc.types import Array, FloatArray

__all__ = ["EncodedData", "Moments", "encode_columns", "encode_rows", "read_whole", "run_iteration", "steps_of"]


@dataclass(frozen=True, slots=True)
class Moments:
    """What stays of the targets: ``X_i.T y_i`` and ``||y_i||**2`` of every part, and a digest that tells them apart."""

    products: Sequence[FloatArray]
    squares: Sequence[float]
    digest: str


class _Each(LinearGradientCode):
    """Gives the messages that arrived one by one, in order of their ids, instead of their sum."""

    def __init__(self, n: int) -> None:
        super().__init__(np.eye(n), exact=False)

    def decode(self, values: Mapping[int, Array], **options: Any) -> tuple[Array, Certificate]:
        """Stack the messages; ``used`` says whose they are."""
        del options
        got = receive(values, self.n_messages)
        return np.stack([got.values[i] for i in got.ids]), Certificate("copy", used=got.ids)


class EncodedData(Holding, Differentiable):
    """A data set encoded for optimization without decoding, made by `Session.encode` with ``code="encoded"``.

    Every method has an ``_async`` twin with the same signature.

    Attributes
    ----------
    code
        The code, with frame and redundancy.
    frame
        The frame over the rows.
    n_rows, n_cols
        Shape of ``X``.
    """

    def __init__(self, parts: PartitionedMatrix, code: EncodedCode, frame: Frame, moments: Moments | None) -> None:
        self._parts = self._holder = parts
        self._moments = moments
        self.code = code
        self.frame = frame
        parts.holders.add(self)

    @property
    def moments(self) -> Moments | None:
        """What stays of the targets; None without ``y``."""
        return self._moments

    @property
    def targets(self) -> str:
        """Name of the content of ``y``; empty without."""
        return "" if self._moments is None else self._moments.digest

    @property
    def n_rows(self) -> int:
        """Number of rows of ``X``."""
        return self.frame.n

    @property
    def n_cols(self) -> int:
        """Number of columns of ``X``."""
        return int(self._parts.shape[1])

    @property
    def fingerprint(self) -> str:
        """Name of the content of ``X``: equal content, equal name."""
        return self._parts.location.key.partition("-")[0]

    def __repr__(self) -> str:
        return f"EncodedData({self.n_rows} x {self.n_cols}, {self.code!r})"

    @homed
    @known_arguments
    async def value_and_gradient_async(
        self,
        w: Any,
        *,
        loss: str = "squared",
        l2: float = 0.0,
        reduction: Reduction = "sum",
        wait: int | None = None,
        with_report: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """Estimate the squared loss and its gradient from the workers that answer first.

        Parameters
        ----------
        w
            ``(n_cols,)``.
        loss
            ``"squared"``.
        l2
            Adds ``0.5 * l2 * ||w||**2``.
        reduction
            ``"sum"`` over the rows or ``"mean"``.
        wait
            How many workers to wait for; by default what the code says.
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
            If fewer workers answered (in time).
        """
        call = LeastSquares.checked(w, self.n_cols, self.n_rows, loss, l2, reduction)
        moments = self._of_targets()
        products, report = await self._products(call.w, wait, deadline)
        factor = self.code.n_workers / len(products)
        product = factor * np.sum([products[i] for i in sorted(products)], axis=0)
        of_targets = factor * np.sum([moments.products[i] for i in sorted(products)], axis=0)
        squares = factor * math.fsum(moments.squares[i] for i in products)
        value, gradient = call.finish(product, of_targets, squares)
        return (value, gradient, report) if with_report else (value, gradient)

    @homed
    async def gradient_async(self, w: Any, *, with_report: bool = False, **options: Any) -> Any:
        """Estimate the gradient; parameters as for `value_and_gradient`.

        Returns
        -------
        array or (array, Report)
            ``(n_cols,)``, fresh and writable.
        """
        _, gradient, report = await self.value_and_gradient_async(w, with_report=True, **options)
        return (gradient, report) if with_report else gradient

    async def answer(self, ask: AskGradients | AskNorms, wait: int) -> tuple[dict[int, Array], Report]:
        """Answer what an iteration of `serverless_gc.optim.encoded` asks, by the first ``wait`` workers."""
        root = self.frame.beta  # iterations reckon with S itself, the parts are divided by the root of beta
        if isinstance(ask, AskGradients):
            products, report = await self._products(ask.w, wait, None)
            moments = self._of_targets().products
            return {i: root * (products[i] - moments[i]) for i in products}, report
        products, report = await self._products(ask.d, wait, None)
        return {i: np.asarray(root * float(ask.d @ product)) for i, product in products.items()}, report

    def _of_targets(self) -> Moments:
        if self._moments is None:
            raise InputError("the data were encoded without y; pass it: session.encode(X, y)")
        return self._moments

    async def _products(self, w: Array, wait: int | None, deadline: float | None) -> tuple[dict[int, Array], Report]:
        awaited = self.code.awaited if wait is None else wait
        stored = await self._parts.parts()
        products, report = await _ask(self._parts.owner, stored, "normal", w, w.shape, awaited, deadline)
        return products, self._parts.reported(report)

    value_and_gradient = blocking(value_and_gradient_async)
    gradient = blocking(gradient_async)


def read_whole(source: Source) -> FloatArray:
    """Read a dense real matrix as one array.

    Raises
    ------
    InputError
        If it is sparse or complex.
    """
    if source.sparse or source.dtype.kind == "c":
        raise InputError(
            f"{source.name} must be dense and real for encoded optimization: its rows are mixed by a frame"
        )
    return np.asarray(source.rows(0, source.shape[0]), dtype=float)


async def encode_rows(
    owner: Owner, X: FloatArray, y: Array | None, code: EncodedCode, location: Location, dtype: np.dtype[Any]
) -> EncodedData:
    """Mix the rows of ``X`` by the code's frame and store the workers' parts."""
    if y is not None and y.ndim != 1:
        raise InputError(f"y must have shape ({len(X)},) for encoded optimization, got {y.shape}")
    frame = code.frame_for(len(X))
    coded = await asyncio.to_thread(lambda: frame.encode(X) / math.sqrt(frame.beta))
    parts = PartitionedMatrix(owner, as_source(coded), code.k, location, dtype)
    stored = await parts.parts()
    moments = None
    if y is not None:
        targets = frame.encode(y.astype(float)) / math.sqrt(frame.beta)
        pieces = [slice(*stored.parts.range(i)) for i in range(code.k)]
        moments = Moments(
            [coded[piece].T @ targets[piece] for piece in pieces],
            [float(targets[piece] @ targets[piece]) for piece in pieces],
            array_digest(y),
        )
    return EncodedData(parts, code, frame, moments)


async def encode_columns(
    owner: Owner, X: FloatArray, code: EncodedCode, name: str
) -> tuple[PartitionedMatrix, dict[int, FloatArray]]:
    """Mix the columns of ``X`` and store ``(X S_i.T).T`` for each worker; also return the ``S_i``."""
    frame = code.frame_for(X.shape[1])
    coded = await asyncio.to_thread(lambda: frame.matrix @ X.T)
    parts = PartitionedMatrix(owner, as_source(coded), code.k, Location(name), np.dtype(float))
    stored = await parts.parts()
    ranges = [stored.parts.range(i) for i in range(code.k)]
    return parts, {i: frame.matrix[lo:hi] for i, (lo, hi) in enumerate(ranges) if lo < hi}


async def run_iteration(
    iteration: Iteration,
    rounds: int,
    answer: Callable[[Any], Any],
    on_step: Callable[[Iterate, Report], None],
) -> None:
    """Drive an iteration: carry what it asks to the workers and what they answer back, for so many steps."""
    ask = next(iteration)
    cost = Report(rounds=0)
    while rounds:
        if isinstance(ask, Iterate):
            on_step(ask, cost)
            cost = Report(rounds=0)
            rounds -= 1
            ask = iteration.send({})
        else:
            answers, report = await answer(ask)
            cost = cost.merge(report)
            ask = iteration.send(answers)
    iteration.close()


async def steps_of(
    parts: PartitionedMatrix, ask: AskSteps, wait: int, n_rows: int, largest: int
) -> tuple[dict[int, Array], Report]:
    """Answer a question of coordinate descent."""
    stored = await parts.parts()
    shape = (largest + n_rows,)
    return await _ask(parts.owner, stored, "coordinates", ask.r, shape, wait, None, {"size": largest})


async def _ask(
    owner: Owner,
    stored: StoredParts,
    kernel: str,
    operand: Array,
    shape: tuple[int, ...],
    wait: int | None,
    deadline: float | None,
    params: Mapping[str, Any] | None = None,
) -> tuple[dict[int, Array], Report]:
    """Have every worker run a kernel on its part, and take the first answers one by one."""
    res = await owner.resources()
    code = _Each(stored.parts.k)
    if wait is not None and not 1 <= wait <= code.n_workers:
        raise InputError(f"wait must be in 1..{code.n_workers}, got {wait}")
    job = Job(
        code=code,
        label="encoded",
        kernel=kernel,
        blocks=lambda spec: [stored.keys[spec.slot]],
        shape=shape,
        dtype=np.dtype(float),
        operand=operand,
        params=lambda _: params or {},
        stored=np.dtype(float),
        finish=lambda stack: stack,
    )

    def first(_: Code) -> Any:
        return owner.policy_for(code, deadline, inner=FirstK(wait or code.n_workers))

    stack, report = await run_round(res, job, first)
    assert report.certificate is not None  # noqa: S101 - decoded rounds have one
    return dict(zip(report.certificate.used, stack, strict=True)), report
