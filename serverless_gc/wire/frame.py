"""The one format of everything that crosses the network: a small JSON header and raw array bytes.

Layout, little-endian::

    0   4s  magic "SGCF"
    4   H   format version
    6   H   reserved, zero
    8   I   length of the JSON header in bytes
    12  I   CRC-32 of the JSON header
    16  Q   length of the whole frame in bytes
    24  ..  JSON header, UTF-8; its key "arrays" lists [dtype, shape, offset, nbytes] of each array,
            its key "crc" is the CRC-32 of everything after the header
    ..  ..  zero padding so that each array starts at a multiple of 64, then the arrays, C order

Blocks, operands, tasks, replies and manifests are frames. Unpacking copies nothing: arrays are read-only
views of the buffer. Nothing received is ever unpickled.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "MAGIC",
    "STAMP_BYTES",
    "Frame",
    "FrameError",
    "pack",
    "pack_parts",
    "split",
    "stamp",
    "unpack",
]

FORMAT_VERSION = 1
ALIGNMENT = 64
_PREFIX = struct.Struct("<4sHHIIQ")
STAMP_BYTES = _PREFIX.size
"""By how many of its first bytes two frames can be told apart, see `stamp`."""
MAGIC = b"SGCF"
"""What every frame begins with."""
_KINDS = frozenset("biufc")
_MOST_ITEM_BYTES = {"c": 16}  # a long double means another number on another processor
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=True)


class FrameError(ValueError):
    """The bytes are not an intact frame. ``reason`` is one word: magic, version, length, header, checksum."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Frame:
    """An unpacked frame."""

    header: dict[str, Any]
    arrays: tuple[NDArray[Any], ...]


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def pack_parts(header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> list[bytes | memoryview]:
    """Pack into a list of buffers whose concatenation is the frame; array bytes are not copied.

    Raises
    ------
    TypeError
        If an array's dtype is not boolean, integer, floating or complex, or is a long double.
    """
    parts: list[bytes | memoryview] = []
    table: list[list[Any]] = []
    crc = 0
    offset = 0
    for item in arrays:
        a = np.ascontiguousarray(item)
        if a.ndim != item.ndim:
            a = a.reshape(item.shape)  # ascontiguousarray promotes 0-d to 1-d
        if a.dtype.kind not in _KINDS or a.dtype.itemsize > _MOST_ITEM_BYTES.get(a.dtype.kind, 8):
            raise TypeError(f"cannot put dtype {a.dtype} on the wire")
        if a.dtype.byteorder == ">" or (a.dtype.byteorder == "=" and not np.little_endian):
            a = a.astype(a.dtype.newbyteorder("<"))
        start = _aligned(offset)
        if start != offset:
            pad = bytes(start - offset)
            parts.append(pad)
            crc = zlib.crc32(pad, crc)
        raw = a.reshape(-1).view(np.uint8).data if a.size else memoryview(b"")
        table.append([a.dtype.str, list(a.shape), start, raw.nbytes])
        parts.append(raw)
        crc = zlib.crc32(raw, crc)
        offset = start + raw.nbytes
    text = _ENCODER.encode({**header, "arrays": table, "crc": crc}).encode("utf-8")
    body_start = _aligned(_PREFIX.size + len(text))
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, 0, len(text), zlib.crc32(text), body_start + offset)
    head = prefix + text + bytes(body_start - _PREFIX.size - len(text))
    return [head, *parts]


def pack(header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> bytes:
    """Pack a header and arrays into one bytes object."""
    return b"".join(pack_parts(header, arrays))


def stamp(start: bytes | bytearray | memoryview) -> str:
    """Return what tells a frame from others: its length and the checksum of its header, which has that of its arrays.

    Parameters
    ----------
    start
        The frame, or its first `STAMP_BYTES` or more.
    """
    return bytes(memoryview(start).cast("B")[:STAMP_BYTES]).hex()


def unpack(buffer: bytes | bytearray | memoryview, *, verify: bool = True) -> Frame:
    """Unpack a frame without copying.

    Parameters
    ----------
    buffer
        The whole frame.
    verify
        Whether to check the checksum of the array bytes; everything else is always checked.

    Raises
    ------
    FrameError
        If the bytes are not an intact frame of this format version.
    """
    view = memoryview(buffer)
    if view.ndim != 1 or view.itemsize != 1:
        view = view.cast("B")
    if view.nbytes < _PREFIX.size:
        raise FrameError(f"{view.nbytes} bytes are too few for a frame", "length")
    magic, version, reserved, header_len, header_crc, total = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise FrameError(f"not a frame: it starts with {bytes(view[:4])!r}", "magic")
    if version != FORMAT_VERSION:
        raise FrameError(f"frame format {version}, this side reads {FORMAT_VERSION}", "version")
    if total != view.nbytes:
        raise FrameError(f"frame should be {total} bytes long, {view.nbytes} are there", "length")
    text = view[_PREFIX.size : _PREFIX.size + header_len]
    body_start = _aligned(_PREFIX.size + header_len)
    padding = view[_PREFIX.size + header_len : body_start]
    if text.nbytes != header_len or zlib.crc32(text) != header_crc or reserved or any(padding):
        raise FrameError("frame header is damaged", "header")
    body = view[body_start:]
    try:
        header = json.loads(bytes(text))
        crc, table = header["crc"], header["arrays"]
        arrays = tuple(_array(body, *entry) for entry in table)
    except (ValueError, TypeError, LookupError) as error:
        raise FrameError(f"frame header makes no sense: {error}", "header") from error
    if verify and zlib.crc32(body) != crc:
        raise FrameError("checksum of the array bytes does not match", "checksum")
    return Frame(header, arrays)


def split(buffer: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Cut a buffer that holds one frame after another into the frames; `unpack` tells whether one is intact.

    Examples
    --------
    >>> [len(frame) for frame in split(pack({"kind": "a"}) + pack({"kind": "b"}, [np.zeros(8)]))]
    [64, 192]
    """
    view = memoryview(buffer).cast("B")
    while view:
        whole = _PREFIX.unpack_from(view)[-1] if view.nbytes >= _PREFIX.size else 0
        end = whole if _PREFIX.size <= whole <= view.nbytes else view.nbytes
        yield view[:end]
        view = view[end:]


def _array(body: memoryview, dtype: str, shape: list[int], offset: int, nbytes: int) -> NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS:
        raise ValueError(f"dtype {dtype!r}")
    a = np.frombuffer(body[offset : offset + nbytes], dtype=kind).reshape(shape)
    a.setflags(write=False)
    return a
