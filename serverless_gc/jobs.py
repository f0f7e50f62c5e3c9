"""What one round computes, whatever the scheme: `pipeline.run_round` runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.encode import EncodedMatrix
from serverless_gc.types import Array, TaskSpec

__all__ = ["Job", "product_job"]


def _no_params(spec: TaskSpec) -> Mapping[str, Any]:  # noqa: ARG001 - what a job without parameters says of any task
    return {}


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
        Slot to the store keys of what its worker reads.
    shape, dtype
        Of one message.
    operand
        What every worker needs, such as ``w``; None if nothing.
    params
        Task to the kernel's parameters, JSON types.
    stored
        Dtype in which the blocks are stored: its rounding enters every message.
    scale
        Size of the terms summed in one entry of a message, see `Code.decode`.
    decoding
        Further keywords of `Code.decode`.
    finish
        What `Code.decode` returned, to the answer.
    """

    code: Code
    label: str
    kernel: str
    blocks: Callable[[int], Sequence[str]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    finish: Callable[[Array], Array]
    stored: np.dtype[Any]
    operand: Array | None = None
    params: Callable[[TaskSpec], Mapping[str, Any]] = _no_params
    scale: float = 0.0
    decoding: Mapping[str, Any] = field(default_factory=dict)


def product_job(matrix: EncodedMatrix, operand: Array) -> Job:
    """Make the job ``M @ operand`` on the coded blocks of ``M``.

    Parameters
    ----------
    matrix
        The encoded ``(m, p)`` matrix.
    operand
        ``(p,)`` or ``(p, c)``; the answer is ``(m,)`` or ``(m, c)``.
    """
    code, join = matrix.code, matrix.partition.join
    dtype = np.result_type(matrix.dtype, operand.dtype)
    complex_by_code = dtype.kind == "c" and matrix.real and operand.dtype.kind != "c"
    return Job(
        code=code,
        label="X.T r" if matrix.axis else "X w",
        kernel="matvec",
        blocks=lambda slot: [matrix.keys[message] for message in code.placement(slot)],
        shape=(matrix.partition.b, *operand.shape[1:]),
        dtype=dtype,
        operand=operand,
        stored=np.dtype(matrix.dtype),
        scale=matrix.largest * float(np.linalg.norm(operand)) / math.sqrt(operand.size / len(operand)),
        finish=(lambda blocks: np.ascontiguousarray(join(blocks).real)) if complex_by_code else join,
    )
