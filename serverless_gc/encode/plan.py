"""Everything about an encoding that is decided before a byte is stored."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.encode.blocks import BlockMaker, DenseBlocks
from serverless_gc.encode.dense import DenseSource
from serverless_gc.encode.encoded import axis_name
from serverless_gc.encode.fingerprint import Scan
from serverless_gc.encode.partition import Partition
from serverless_gc.encode.source import Source
from serverless_gc.errors import InputError, LimitError
from serverless_gc.limits import DEFAULT_LIMITS, Limits

__all__ = ["Group", "Plan", "check_usable", "first_alike", "make_plan", "stored_dtype"]


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that are made together. ``blocks`` are their source blocks, or empty when they are combinations."""

    messages: tuple[int, ...]
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a source is encoded.

    Attributes
    ----------
    first
        For each message the first message of the same content; only those are made.
    """

    source: Source
    code: Code
    axis: int
    dtype: np.dtype[Any]
    partition: Partition
    maker: BlockMaker
    first: tuple[int, ...]
    limits: Limits = DEFAULT_LIMITS

    def groups(self, budget: int) -> Iterator[Group]:
        """Split the distinct messages into groups of at most ``budget`` bytes: plain source blocks first."""
        distinct = [i for i, first in enumerate(self.first) if i == first]
        plain = {block: i for i in distinct if (block := self.code.source_of(i)) is not None}
        for blocks in self.maker.source_groups(sorted(plain), budget):
            yield Group(tuple(plain[j] for j in blocks), tuple(blocks))
        carried = set(plain.values())
        for messages in self.maker.coded_groups([i for i in distinct if i not in carried], budget):
            yield Group(tuple(messages))

    def make(self, group: Group) -> list[Any]:
        """Compute the blocks of a group."""
        return self.maker.sources(group.blocks) if group.blocks else self.maker.coded(group.messages)

    def check_range(self, scan: Scan) -> None:
        """Raise `InputError` if a coded block could overflow the stored type."""
        growth = self.code.growth
        most = float(np.finfo(self.dtype).max)
        if scan.largest * max(1.0, growth) > most:
            raise InputError(
                f"{self.source.name} holds values up to {scan.largest:.3g} and the code adds them up to {growth:.3g} "
                f"times that: more than {self.dtype} can hold ({most:.3g}). Scale the matrix down"
                + ("" if self.dtype.itemsize in {8, 16} and self.dtype.kind == "f" else " or use dtype=float64")
            )


def make_plan(
    source: Source,
    code: Code,
    *,
    axis: int,
    dtype: Any,
    limits: Limits = DEFAULT_LIMITS,
    stop: threading.Event | None = None,
) -> Plan:
    """Check everything and decide partition, type and which messages share content.

    Setting ``stop`` gives up what is being computed by the plan.

    Raises
    ------
    InputError
        If the axis, the type or the kind of code cannot be used.
    LimitError
        If one block would exceed the largest object of the store.
    """
    axis_name(axis)
    check_usable(code, source)
    stored = stored_dtype(source, dtype, code)
    partition = Partition(source.shape[axis], code.k)
    maker: BlockMaker
    if isinstance(source, DenseSource):
        dense = DenseBlocks(source, code, partition, axis, stored, stop)
        if dense.nbytes > limits.object_bytes:
            raise LimitError(
                f"one block of {source.name} is {dense.stored[0]} x {dense.stored[1]} {stored}, {dense.nbytes} bytes; "
                f"the largest object is {limits.object_bytes} bytes. Use a code with more blocks (larger k)"
            )
        maker = dense
    else:
        from serverless_gc.encode.sparse import SparseSource
        from serverless_gc.encode.sparse_blocks import SparseBlocks

        if not isinstance(source, SparseSource):
            raise InputError(f"{source.name} is neither a dense nor a sparse source: {source!r}")
        maker = SparseBlocks(source, code, partition, axis, stored, stop)
    return Plan(source, code, axis, stored, partition, maker, first_alike(code, partition), limits)


def check_usable(code: Code, source: Source) -> None:
    """Raise `InputError` unless blocks of the source can be encoded with this code."""
    if code.kind not in {"data", "multi-message"}:
        raise InputError(f"{code.name} is a {code.kind} code; rows are encoded with a data code (polar, mds, ...)")
    if source.sparse and code.needs_whole_rows:
        raise InputError(
            f"{code.name} places its own zeros by column and fills all others: {source.name} is sparse, "
            "use code='replication', or convert it to a dense matrix"
        )


def stored_dtype(source: Source, dtype: Any, code: Code | None = None) -> np.dtype[Any]:
    """Return the type in which a source is stored: that precision, complex for complex data or a complex code.

    Raises
    ------
    InputError
        If it is no such type, or a complex one for real data.
    """
    try:
        wanted: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise InputError(f"dtype must be float32 or float64, got {dtype!r}") from error
    allowed = {np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128)}
    if wanted not in allowed:
        raise InputError(f"dtype must be float32 or float64 (complex64, complex128 for complex data), got {wanted}")
    summed = source.dtype if code is None else np.result_type(source.dtype, code.combination(0)[1])
    if summed.kind == "c" and wanted.kind == "f":
        return np.dtype(np.complex64 if wanted.itemsize == 4 else np.complex128)
    if summed.kind == "f" and wanted.kind == "c":
        raise InputError(f"dtype is {wanted} but {source.name} is real; use float32 or float64")
    return wanted


def first_alike(code: Code, partition: Partition) -> tuple[int, ...]:
    """Return for each message the first of the same content: equal generator rows over the blocks that hold rows."""
    if code.needs_whole_rows:  # equal coefficients may meet other columns
        return tuple(range(code.n_messages))
    seen: dict[bytes, int] = {}
    alike = []
    for i in range(code.n_messages):
        blocks, coefficients = code.combination(i)
        filled = np.searchsorted(blocks, partition.n_filled)
        digest = hashlib.sha256(blocks[:filled].astype(np.int64).tobytes())
        digest.update(coefficients[:filled].tobytes())
        alike.append(seen.setdefault(digest.digest(), i))
    return tuple(alike)
