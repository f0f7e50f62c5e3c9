"""Will it fit: bytes of blocks, operands, results and requests against the limits of function and store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.errors import InputError
from serverless_gc.plan.platform import Platform
from serverless_gc.plan.rounds import shares

__all__ = ["INLINE_OPERAND", "Pass", "Problem", "Task", "passes", "refusals"]

Task = Literal["gradient", "matvec"]

_KEY_BYTES = 96
"""What one block's key takes in a request."""

_ENVELOPE = 16 * 1024
INLINE_OPERAND = 32 * 1024
"""As in `serverless_gc.rounds.operands`: larger operands are stored once and read by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is computed.

    Parameters
    ----------
    rows, cols
        Of the matrix.
    dtype
        In which its blocks are stored, ``float32`` or ``float64``.
    columns
        Columns of the vector or matrix that multiplies it.
    task
        ``"gradient"`` of a generalized linear loss, or ``"matvec"``.

    Raises
    ------
    InputError
        If a number is out of range or a word is unknown.
    """

    rows: int
    cols: int
    dtype: str = "float64"
    columns: int = 1
    task: Task = "gradient"

    def __post_init__(self) -> None:
        for name in ("rows", "cols", "columns"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), 1))
        try:
            kind = np.dtype(self.dtype)
        except TypeError:
            kind = np.dtype("V")
        if kind not in {np.dtype("float32"), np.dtype("float64")}:
            raise InputError(f"dtype must be float32 or float64, got {self.dtype!r}")
        if self.task not in {"gradient", "matvec"}:
            raise InputError(f"task must be 'gradient' or 'matvec', got {self.task!r}")

    @property
    def itemsize(self) -> int:
        """Bytes of an entry."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return int(self.rows) * int(self.cols) * self.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One coded round of a computation: what one task reads, multiplies and sends, in bytes.

    Attributes
    ----------
    block
        One stored block.
    blocks
        Blocks of the task with the most of them.
    operand
        What the task needs of the vector or matrix that multiplies them.
    whole
        All of it.
    message
        One message of the result.
    messages
        Messages of that task.
    factor
        How often the task goes through its blocks: twice where it computes whole gradients.
    inner
        Share of the results that other tasks read, not the driver.
    """

    block: int
    blocks: int
    operand: int
    whole: int
    message: int
    messages: int
    factor: float = 1.0
    inner: float = 0.0

    @property
    def peak(self) -> int:
        """Bytes that the task needs at once: its blocks, one more being read, operand and result."""
        return (self.blocks + 1) * self.block + self.operand + 2 * self.messages * self.message

    @property
    def request(self) -> int:
        """Bytes of the task's request."""
        inline = self.operand if self.operand <= INLINE_OPERAND else 0
        return _ENVELOPE + _KEY_BYTES * self.blocks + inline * 4 // 3


def passes(problem: Problem, code: Code) -> tuple[Pass, ...]:
    """Return the coded rounds of the computation: one for a product or with a gradient code, else two."""
    messages = max(len(code.placement(worker)) for worker in range(code.n_workers))
    c, result = problem.columns, 8
    if code.kind == "gradient":
        if problem.task != "gradient":
            raise InputError(f"{code.name!r} is a code for gradients, task is {problem.task!r}: take a code of blocks")
        held = round(float(shares(code).max()) * code.k)
        block = math.ceil(problem.rows / code.k) * problem.cols * problem.itemsize
        vector = problem.cols * c * result
        inner = 1 - code.branching / code.n_workers if isinstance(code, CodedReduceCode) else 0.0
        sizes = {"block": block, "operand": vector, "whole": vector, "message": vector}
        return (Pass(**sizes, blocks=held, messages=messages, factor=2.0, inner=inner),)
    each = []
    for split, other in ((problem.rows, problem.cols), (problem.cols, problem.rows)):
        share, width = math.ceil(split / code.k), code.width(other)
        operand, whole = width * c * result, other * c * result
        block, message = share * width * problem.itemsize, share * c * result
        sizes = {"block": block, "operand": operand, "whole": whole, "message": message}
        each.append(Pass(**sizes, blocks=messages, messages=messages))
    return tuple(each[:1] if problem.task == "matvec" else each)


def refusals(problem: Problem, code: Code, platform: Platform) -> tuple[tuple[str, str], ...]:
    """Return the limits that the computation would break: name of the limit, and what to do; empty if it fits.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> big = Problem(rows=10**6, cols=10**4)
    >>> [(limit, why)] = refusals(big, get("mds", n_workers=16, k=12), Platform())
    >>> limit, why[:63]
    ('object_bytes', 'a block has 6.67 GB, one object of the store holds at most 5.37')
    """
    found = dict(_broken(problem, code, platform))
    return tuple(found.items())


def _broken(problem: Problem, code: Code, platform: Platform) -> Iterator[tuple[str, str]]:
    limits = platform.limits
    for step in passes(problem, code):
        for what, nbytes in (("a block", step.block), ("the operand", step.whole)):
            if nbytes > limits.object_bytes:
                most = f"one object of the store holds at most {_gb(limits.object_bytes)}"
                yield "object_bytes", f"{what} has {_gb(nbytes)}, {most}: take more blocks"
                return
        room = (platform.memory_mb - platform.runtime_mb) * 2**20
        if step.peak > room:
            needs = f"a task needs {_gb(step.peak)} beside Python and NumPy"
            has = f"a function of {platform.memory_mb} MB has {_gb(room)}"
            yield "memory", f"{needs}, {has}: take more workers, more memory or float32"
        if step.request > limits.request_bytes:
            has = f"a request that names {step.blocks} blocks has {_gb(step.request)}"
            most = f"the largest is {_gb(limits.request_bytes)}"
            yield "request_bytes", f"{has}, {most}: take fewer blocks for each worker"


def _gb(nbytes: float) -> str:
    if nbytes >= 1e11:
        return f"{nbytes / 1e9:,.0f} GB"
    return f"{nbytes / 1e9:.3g} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.3g} MB"
