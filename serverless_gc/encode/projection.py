"""What one task will need, projected before anything is stored: memory, objects and time, against the limits.

A projection is a lower bound: what it refuses could not have run. What it lets pass may still fail by other causes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.codes.projective import ProjectiveCode
from serverless_gc.encode import Partition, Source, projected_fill
from serverless_gc.errors import LimitError
from serverless_gc.limits import Limits

__all__ = ["Need", "check_fits", "check_fits_function", "need_of", "need_of_partitions"]

RUNTIME_BYTES = 64 * 2**20
"""Memory of the worker itself: interpreter, NumPy, its BLAS."""

READ_RATE = 100e6
"""Bytes a second that one connection to S3 brings at best ("Performance design patterns for Amazon S3", 2026-11)."""

_CSR_ENTRY = 12  # bytes: a float64 and an int32
SMALLEST_FUNCTION = 128 * 2**20
"""Memory of the smallest function: what fits here need not be asked about."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a task of a product needs at least, in bytes, and what it is made of.

    Attributes
    ----------
    blocks
        Coded blocks that one worker reads.
    block, result
        One object of each kind.
    operand
        What the worker needs of the operand.
    whole
        The operand.
    """

    name: str
    blocks: int
    block: int
    operand: int
    whole: int
    result: int

    @property
    def memory(self) -> int:
        """Bytes of memory that a worker holds at the same time."""
        return RUNTIME_BYTES + self.blocks * self.block + self.operand + self.blocks * self.result

    @property
    def seconds(self) -> float:
        """Seconds that reading takes."""
        return (self.blocks * self.block + self.operand) / READ_RATE

    def excess(self, limits: Limits) -> str:
        """Say which limit is exceeded, with both numbers; empty if none is."""
        for what, size in (("block", self.block), ("operand", self.whole), ("result", self.result)):
            if size > limits.object_bytes:
                return f"one {what} would be {_words(size)}, the largest object is {_words(limits.object_bytes)}"
        if self.memory > limits.function_bytes:
            parts = f"{self.blocks} x {_words(self.block)} of blocks, {_words(self.operand)} of operand"
            return (
                f"a worker would need {_words(self.memory)} of memory ({parts}, {_words(RUNTIME_BYTES)} for itself), "
                f"the function has {_words(limits.function_bytes)}"
            )
        if self.seconds > limits.function_timeout:
            return (
                f"a worker would read for {self.seconds:.3g} s at best, "
                f"the function may run for {limits.function_timeout:g} s"
            )
        return ""


def need_of(source: Source, code: Code, *, axis: int, columns: int = 1, dtype: np.dtype[np.generic]) -> Need:
    """Project what a product with the blocks of one axis needs.

    Parameters
    ----------
    source
        The matrix.
    code
        How it is coded.
    axis
        0 for blocks of its rows, 1 for blocks of its columns.
    columns
        Columns of the operand.
    dtype
        Type that blocks are stored in.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> from serverless_gc.encode import as_source
    >>> code = get("mds", n_workers=8, k=4)
    >>> need_of(as_source(np.ones((1000, 50))), code, axis=0, dtype=np.dtype(np.float64)).block
    100000
    """
    item = _item(source, dtype)
    length = source.shape[1 - axis]
    rows = Partition(source.shape[axis], code.k).b
    width = code.width(length)
    block = rows * width * item
    if source.sparse:
        nnz: int = source.nnz  # type: ignore[attr-defined]  # sparse sources have it
        block = min(block, int(nnz * projected_fill(source, code, axis=axis) / code.n_messages) * _CSR_ENTRY)
    return Need(
        name=f"{code.name} with n_workers={code.n_workers}, k={code.k}, blocks of {'columns' if axis else 'rows'}",
        blocks=max(len(code.placement(worker)) for worker in range(code.n_workers)),
        block=block,
        operand=width * columns * 8,
        whole=length * columns * 8,
        result=rows * columns * 8,
    )


def need_of_partitions(source: Source, code: SumCode, *, columns: int = 1, dtype: np.dtype[np.generic]) -> Need:
    """Project what a gradient by a gradient code needs: the partitions that one worker reads.

    Parameters
    ----------
    source
        The matrix.
    code
        How its partitions are placed.
    columns
        Columns of the weights.
    dtype
        Type that partitions are stored in.
    """
    rows, length = source.shape
    block = rows // code.k * length * _item(source, dtype)
    if source.sparse:
        nnz: int = source.nnz  # type: ignore[attr-defined]  # sparse sources have it
        block = min(block, nnz // code.k * _CSR_ENTRY)
    return Need(
        name=f"{code.name} with n_workers={code.n_workers}, k={code.k} partitions",
        blocks=max(1, _held(code)),
        block=block,
        operand=length * columns * 8,
        whole=length * columns * 8,
        result=length * columns * 8,
    )


def _held(code: SumCode) -> int:
    """Most partitions that one worker reads: in a tree its own, for directional derivatives all of them."""
    if isinstance(code, ProjectiveCode):
        return code.k
    if isinstance(code, CodedReduceCode):
        return int(code.units_each)
    return max(
        len({part for message in code.placement(worker) for part in code.row(message)[0]})
        for worker in range(code.n_workers)
    )


def _item(source: Source, dtype: np.dtype[np.generic]) -> int:
    return max(np.dtype(dtype).itemsize, source.dtype.itemsize if source.dtype.kind == "c" else 0)


def check_fits(needs: Sequence[Need], source: Source, code: Code, limits: Limits) -> None:
    """Raise `LimitError` if a task cannot run within the limits, naming limit, value and what would fit."""
    for axis, need in enumerate(needs):
        excess = need.excess(limits)
        if excess:
            raise LimitError(
                f"{source.name}, {source.shape[0]} x {source.shape[1]}, coded by {need.name}: {excess}. "
                f"Nothing was stored. {_advice(need, source.shape[axis], code, limits)}"
            )


async def check_fits_function(
    needs: Sequence[Need], source: Source, code: Code, limits: Limits, memory: Callable[[], Awaitable[int | None]]
) -> None:
    """`check_fits`, with the memory that the deployed function has, which is asked for only where it matters."""
    check_fits(needs, source, code, limits)
    if max(need.memory for need in needs) > SMALLEST_FUNCTION:
        found = await memory()
        if found is not None and found < limits.function_bytes:
            check_fits(needs, source, code, replace(limits, function_bytes=found))


def _advice(need: Need, length: int, code: Code, limits: Limits) -> str:
    """Name the smallest ``k`` whose blocks fit, at the same rate."""
    rows = Partition(length, code.k).b

    def fits(k: int) -> bool:
        share = Partition(length, k).b / rows
        smaller = replace(need, block=math.ceil(need.block * share), result=math.ceil(need.result * share))
        return not smaller.excess(limits)

    if not fits(length):
        return "No k helps: the operand needs too much; give it fewer columns, or the function more memory or time"
    low, high = code.k, length  # the smallest k that fits is above low, and high does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    workers = math.ceil(high * code.n_workers / code.k)
    return f"k={high} with n_workers={workers} would fit"


def _words(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
