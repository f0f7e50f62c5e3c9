"""Arrays of small integers as bytes: a header with the shape, then equally wide fields of bits."""

from __future__ import annotations

import math
import struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "pack_shape", "unpack", "unpack_shape"]

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
Buffer: TypeAlias = bytes | bytearray | memoryview

_WIDEST = 62


def pack_shape(shape: tuple[int, ...]) -> bytes:
    """Return a shape as bytes."""
    return struct.pack(f"<B{len(shape)}I", len(shape), *shape)


def unpack_shape(data: Buffer) -> tuple[tuple[int, ...], memoryview]:
    """Return the shape at the beginning of ``data``, and the rest."""
    view = memoryview(data)
    ndim = view[0]
    end = 1 + 4 * ndim
    return struct.unpack(f"<{ndim}I", view[1:end]), view[end:]


def pack(values: FloatArray) -> bytes:
    """Return whole numbers as bytes, each with as many bits as the largest needs.

    Raises
    ------
    ValueError
        If a value is not finite, or needs more than 62 bits.

    Examples
    --------
    >>> len(pack(np.array([0.0, -1.0, 2.0, 1.0])))  # 3 bits each, width and shape
    8
    """
    values = np.asarray(values)
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) >= 2.0 ** (_WIDEST - 1):
        raise ValueError("values must be finite and below 2**61 steps: take a longer step")
    whole = values.astype(np.int64).ravel()
    folded = np.where(whole >= 0, 2 * whole, -2 * whole - 1).astype(np.uint64)
    width = int(folded.max(initial=0)).bit_length()
    bits = np.empty((folded.size, width), np.uint8)
    for place in range(width):
        bits[:, place] = (folded >> np.uint64(place)) & np.uint64(1)
    return pack_shape(values.shape) + bytes([width]) + np.packbits(bits.ravel()).tobytes()


def unpack(data: Buffer) -> FloatArray:
    """Return what was packed.

    Examples
    --------
    >>> unpack(pack(np.array([[0.0, -1.0], [2.0, 1.0]])))
    array([[ 0., -1.],
           [ 2.,  1.]])
    """
    shape, rest = unpack_shape(data)
    width, size = rest[0], math.prod(shape)
    bits = np.unpackbits(np.frombuffer(rest[1:], np.uint8), count=size * width).reshape(size, width)
    folded = np.zeros(size, np.int64)
    for place in range(width):
        folded |= bits[:, place].astype(np.int64) << np.int64(place)
    whole: Array = np.where(folded % 2 == 0, folded // 2, -(folded + 1) // 2)
    return np.asarray(whole.reshape(shape), dtype=np.float64)
