"""Blocks as objects: a dense array, or a matrix in compressed sparse rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire.frame import FrameError, pack_parts, unpack

__all__ = ["Block", "CsrBlock", "pack_block", "unpack_block"]


@dataclass(frozen=True, slots=True)
class CsrBlock:
    """A sparse matrix in compressed sparse rows, without SciPy.

    ``data`` and ``indices`` have one entry per stored element, ``indptr`` has ``shape[0] + 1`` entries.
    """

    data: NDArray[Any]
    indices: NDArray[np.integer[Any]]
    indptr: NDArray[np.integer[Any]]
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return int(self.data.nbytes + self.indices.nbytes + self.indptr.nbytes)


Block: TypeAlias = NDArray[Any] | CsrBlock


def pack_block(block: Block, meta: Mapping[str, Any] | None = None) -> list[bytes | memoryview]:
    """Pack a block into buffers whose concatenation is the object; array bytes are not copied."""
    head: dict[str, Any] = {"kind": "block", "meta": dict(meta or {})}
    if isinstance(block, CsrBlock):
        head |= {"format": "csr", "shape": list(block.shape)}
        return pack_parts(head, (block.data, block.indices, block.indptr))
    return pack_parts(head | {"format": "dense"}, (block,))


def unpack_block(buffer: bytes | bytearray | memoryview, *, verify: bool = True) -> Block:
    """Unpack a block; arrays are read-only views of the buffer.

    Raises
    ------
    FrameError
        If the bytes are not an intact block.
    """
    frame = unpack(buffer, verify=verify)
    if frame.header.get("kind") != "block":
        raise FrameError(f"expected a block, found {frame.header.get('kind')!r}", "header")
    if frame.header["format"] == "csr":
        data, indices, indptr = frame.arrays
        rows, cols = frame.header["shape"]
        return CsrBlock(data, indices, indptr, (rows, cols))
    return frame.arrays[0]
