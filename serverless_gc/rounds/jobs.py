"""What one round computes, whatever the scheme: `pipeline.run_round` runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.codes.projective import ProjectiveCode
from serverless_gc.codes.support import Support
from serverless_gc.encode import EncodedMatrix, StoredParts
from serverless_gc.types import Array, TaskSpec

__all__ = ["Job", "Layout", "PartLoss", "Share", "StoredObjective", "gradient_job", "product_job", "sketch_job"]


def _no_params(spec: TaskSpec) -> Mapping[str, Any]:  # noqa: ARG001 - what a job without parameters says of any task
    return {}


def _no_inputs(spec: TaskSpec) -> Sequence[int]:  # noqa: ARG001 - what a job without them says of any task
    return ()


def _never(slot: int) -> bool:  # noqa: ARG001 - likewise of any slot
    return False


@dataclass(frozen=True, slots=True)
class Job:
    """What one round computes.

    Attributes
    ----------
    code
        Who sends which messages, when they suffice, and how they are decoded.
    label
        What is computed, for progress bars: ``"X w"``.
    kernel
        What workers run, a name of `serverless_gc.worker.kernels`. It returns one message, or for a worker with several
        their stack.
    blocks
        Task to the store keys of what its worker reads.
    shape, dtype
        Of one message.
    operand
        What workers need, such as ``w``; None if nothing.
    support
        Which rows of the operand each worker needs, as the columns of its blocks; None if all.
    params
        Task to the kernel's parameters, JSON types.
    inputs
        Task to the slots whose results its worker reads behind the blocks.
    stays
        Whether a slot's result stays in the store: the driver does not fetch it, other workers may.
    stored
        Dtype in which the blocks are stored: its rounding enters every message.
    scale
        Size of the terms summed in one entry of a message, see `Code.decode`.
    decoding
        Further keywords of `Code.decode`.
    finish
        What `Code.decode` returned, to the answer.
    publish
        After how many messages each a worker with several publishes them; 0 for not before all are done.
    """

    code: Code
    label: str
    kernel: str
    blocks: Callable[[TaskSpec], Sequence[str]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    finish: Callable[[Array], Array]
    stored: np.dtype[Any]
    operand: Array | None = None
    support: Support | None = None
    params: Callable[[TaskSpec], Mapping[str, Any]] = _no_params
    inputs: Callable[[TaskSpec], Sequence[int]] = _no_inputs
    stays: Callable[[int], bool] = _never
    scale: float = 0.0
    decoding: Mapping[str, Any] = field(default_factory=dict)
    publish: int = 0


def _length(operand: Array) -> float:
    """Return the length of a vector, of a matrix the mean one of its columns; finite where its square is not."""
    largest = float(np.abs(operand).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest * float(np.linalg.norm(operand / largest)) / math.sqrt(operand.size / len(operand))


def product_job(matrix: EncodedMatrix, operand: Array, publish: int | None = None) -> Job:
    """Make the job ``M @ operand`` on the coded blocks of ``M``.

    Parameters
    ----------
    matrix
        The encoded ``(m, p)`` matrix.
    operand
        ``(p,)`` or ``(p, c)``; the answer is ``(m,)`` or ``(m, c)``.
    publish
        See `Job`; the code's own choice if None.
    """
    code, join = matrix.code, matrix.partition.join
    dtype = np.result_type(matrix.dtype, operand.dtype)
    complex_by_code = dtype.kind == "c" and matrix.real and operand.dtype.kind != "c"
    return Job(
        code=code,
        label="X.T r" if matrix.axis else "X w",
        kernel="matvec",
        blocks=lambda spec: [matrix.keys[message] for message in code.placement(spec.slot)],
        shape=(matrix.partition.b, *operand.shape[1:]),
        dtype=dtype,
        operand=operand,
        support=code.support,
        stored=np.dtype(matrix.dtype),
        scale=matrix.largest * _length(operand),
        finish=(lambda blocks: np.ascontiguousarray(join(blocks).real)) if complex_by_code else join,
        publish=code.publish if publish is None else publish,
    )


def sketch_job(matrix: EncodedMatrix, buckets: Array, factors: Array, rows: int, publish: int | None = None) -> Job:
    """Make the job ``M @ diag(factors) @ S.T`` with the ``S`` that adds entry ``i`` to entry ``buckets[i]``.

    Workers are sent two numbers for each column of their block rather than the columns of a matrix.

    Parameters
    ----------
    matrix
        The encoded ``(m, n)`` matrix; the answer is ``(m, rows)``.
    buckets, factors
        ``(n,)``, below ``rows``, and real.
    rows
        Columns of the answer.
    publish
        See `Job`; the code's own choice if None.
    """
    product = product_job(matrix, np.stack([buckets, factors], axis=1).astype(np.float64), publish)
    return replace(
        product,
        label="sketch",
        kernel="sketch",
        shape=(matrix.partition.b, rows),
        scale=matrix.largest * float(np.linalg.norm(factors)) / math.sqrt(rows),
        params=lambda _: {"rows": rows},
    )


def normal_job(matrix: EncodedMatrix, code: Code, w: Array, publish: int | None = None) -> Job:
    """Make the job ``X.T @ (X @ w)`` on the coded rows of ``X``, where workers multiply by their block twice.

    Parameters
    ----------
    matrix
        The coded rows.
    code
        The code of this round: workers return a polynomial of degree 2 of their block.
    w
        ``(p,)`` or ``(p, c)``.
    publish
        See `Job`; the code's own choice if None.
    """
    _, p = matrix.block_shape
    terms = matrix.largest**2 * float(np.linalg.norm(w)) / math.sqrt(w.size / len(w))
    return Job(
        code=code,
        label="X.T X w",
        kernel="normal",
        blocks=lambda spec: [matrix.keys[message] for message in code.placement(spec.slot)],
        shape=(p, *w.shape[1:]),
        dtype=np.result_type(matrix.dtype, w.dtype),
        operand=w,
        stored=np.dtype(matrix.dtype),
        scale=terms * matrix.partition.b,
        finish=lambda total: total,
        publish=code.publish if publish is None else publish,
    )


@dataclass(frozen=True, slots=True)
class PartLoss:
    """What workers compute on a partition.

    Attributes
    ----------
    params
        Parameters of the kernel that name the loss.
    key
        Store key of the function, empty for a built-in loss.
    """

    params: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True)
class StoredObjective:
    """A loss on stored partitions.

    Attributes
    ----------
    matrix
        The partitions of ``X``.
    columns
        Those of the labels, if ``labelled``, and of row weights, if there are any.
    loss
        What to compute on a partition.
    labelled
        Whether there are labels.
    """

    matrix: StoredParts
    columns: Sequence[StoredParts]
    loss: PartLoss
    labelled: bool

    def blocks(self, parts: Iterable[int]) -> list[str]:
        """Return the keys of what the kernel ``"gradient"`` reads for these partitions."""
        keys = [stored.keys[part] for part in parts for stored in (self.matrix, *self.columns)]
        return [*keys, self.loss.key] if self.loss.key else keys

    def params(self, parts: Iterable[int]) -> dict[str, Any]:
        """Return that kernel's parameters which say what these are."""
        return {
            **self.loss.params,
            "labelled": self.labelled,
            "weighted": len(self.columns) > self.labelled,
            "parts": [[part, *self.matrix.parts.range(part)] for part in parts],
        }


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker of a gradient code reads and combines.

    Attributes
    ----------
    parts
        The partitions it reads, in the order in which it needs them.
    messages
        Id, places in ``parts`` and coefficients of each of its messages; complex numbers are pairs.
    """

    parts: tuple[int, ...]
    messages: tuple[tuple[int, list[int], list[Any]], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A gradient code laid out on stored partitions; the same for every round.

    Attributes
    ----------
    code
        A gradient code with as many partitions as the matrix was cut into; for directional derivatives every worker
        reads all of them.
    matrix
        The stored partitions.
    shares
        What each worker does.
    own
        Where messages are combined in a tree: what each worker does beside combining those of its children.
    fold
        How many coordinates of a gradient make one number of a message.
    is_complex
        Whether coefficients are complex.
    """

    code: SumCode
    matrix: StoredParts
    shares: tuple[Share, ...]
    own: tuple[Share, ...] = ()
    fold: int = 1
    is_complex: bool = False

    @classmethod
    def of(cls, code: SumCode, matrix: StoredParts) -> Layout:
        """Lay out; partitions without rows add nothing and are left out."""
        if isinstance(code, ProjectiveCode):
            parts = tuple(matrix.keys)
            directions = code.generator.tolist()
            every = [Share(parts, ((i, list(range(len(parts))), [row]),)) for i, row in enumerate(directions)]
            return cls(code, matrix, tuple(every), fold=code.k)
        workers = range(code.n_workers)
        shares = [_share([(i, *code.row(i)) for i in code.placement(slot)], matrix) for slot in workers]
        own: list[Share] = []
        if isinstance(code, CodedReduceCode):
            own = [_share([(node, code.local(node)[0].tolist(), code.local(node)[1])], matrix) for node in workers]
        return cls(code, matrix, tuple(shares), tuple(own), code.fold, bool(np.iscomplexobj(code.row(0)[1])))


def _share(rows: Iterable[tuple[int, Sequence[int], Array]], matrix: StoredParts) -> Share:
    """Make the share of a worker from its messages, the partitions in them and their coefficients."""
    place: dict[int, int] = {}
    messages = []
    for message, partitions, coefficients in rows:
        held = [i for i, part in enumerate(partitions) if part in matrix.keys]
        support = [place.setdefault(partitions[i], len(place)) for i in held]
        factors = coefficients[held]
        if np.iscomplexobj(factors):
            factors = np.stack([factors.real, factors.imag], axis=-1)
        messages.append((message, support, factors.tolist()))
    return Share(tuple(place), tuple(messages))


def gradient_job(
    layout: Layout,
    columns: Sequence[StoredParts],
    w: Array,
    loss: PartLoss,
    *,
    labelled: bool,
    value: bool,
    decoding: Mapping[str, Any],
    measure: Mapping[str, Any] | None = None,
) -> Job:
    """Make the job "sum of all partition gradients at ``w``", in one round.

    Parameters
    ----------
    layout
        Who reads and combines what. A task whose payload names ``"children"`` (slot to weight) computes its worker's
        own part and adds the stored results of these.
    columns
        The stored partitions of labels, if ``labelled``, and of row weights, if there are any.
    w
        The point, of any shape.
    loss
        What to compute on a partition.
    labelled
        Whether there are labels.
    value
        Whether the sum of the losses goes along: the answer then has one more entry behind the gradient's.
    decoding
        Keywords of the code's ``decode``.
    measure
        What to sum up instead of gradients, or behind them, see `serverless_gc.worker.kernels.gradient_messages`.
    """
    code, matrix = layout.code, layout.matrix
    objective = StoredObjective(matrix, columns, loss, labelled)
    single_complex = [np.dtype(np.complex64)] if layout.is_complex or w.dtype.kind == "c" else []
    dtype = np.result_type(matrix.dtype, *single_complex)
    size = w.size + value if measure is None or measure["behind"] else 0
    size += 0 if measure is None else int(measure["size"])
    common = {
        "fold": layout.fold,
        "alike": isinstance(code, ProjectiveCode),
        "value": value,
        "complex": layout.is_complex,
        "dtype": dtype.str,
        **({} if measure is None else {"measure": measure}),
    }

    def share_of(spec: TaskSpec) -> Share:
        return (layout.own if "children" in spec.payload else layout.shares)[spec.slot]

    def params(spec: TaskSpec) -> Mapping[str, Any]:
        share = share_of(spec)
        added = list(spec.payload.get("children", {}).values())
        return {**common, **objective.params(share.parts), "messages": share.messages, "added": added}

    def finish(total: Array) -> Array:
        # The blocks of directional derivatives: block u has the coordinates u, u + k, u + 2 k, ...
        return (total.T if isinstance(code, ProjectiveCode) else total).reshape(-1)[:size]

    return Job(
        code=code,
        label="gradient" if measure is None else "curvature",
        kernel="gradient" if measure is None else "curvature",
        blocks=lambda spec: objective.blocks(share_of(spec).parts),
        shape=(-(-size // layout.fold),),
        dtype=dtype,
        operand=w,
        params=params,
        inputs=lambda spec: list(spec.payload.get("children", ())),
        stays=(lambda slot: code.parent(slot) is not None) if isinstance(code, CodedReduceCode) else _never,
        stored=dtype,
        publish=code.publish,
        decoding=decoding,
        finish=finish,
    )
