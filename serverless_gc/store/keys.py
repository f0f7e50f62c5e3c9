"""What a key and a range may look like, the same for every store, so that what runs locally runs on S3."""

from __future__ import annotations

from collections.abc import Sequence

from serverless_gc.errors import InputError, StoreError
from serverless_gc.limits import KEY_BYTES
from serverless_gc.types import Buffer

__all__ = ["SCRATCH", "check_key", "check_range", "joined", "part_of", "parts_of"]

SCRATCH = ".tmp"
"""First part of a key that no object may have: local stores write there before they give a file its name."""
_MOST_PART_BYTES = 255  # file systems' limit on one name


def check_key(key: str) -> str:
    """Return the key if every store can keep an object under it.

    Raises
    ------
    InputError
        If it is empty, absolute, too long, or has an empty, ``.`` or ``..`` part.

    Examples
    --------
    >>> check_key("run-1/blocks/0007")
    'run-1/blocks/0007'
    >>> check_key("../secret")
    Traceback (most recent call last):
    ...
    serverless_gc.errors.InputError: key '../secret' ...
    """
    parts = key.split("/")
    rule = ""
    if any(part in {"", ".", ".."} for part in parts):
        rule = "must be non-empty parts joined by single slashes, none of them '.' or '..'"
    elif "\0" in key:
        rule = "must not contain a zero character"
    elif parts[0] == SCRATCH:
        rule = f"must not begin with {SCRATCH!r}"
    elif len(key.encode()) > KEY_BYTES or any(len(part.encode()) > _MOST_PART_BYTES for part in parts):
        rule = f"must have at most {KEY_BYTES} bytes, and {_MOST_PART_BYTES} in each part"
    if rule:
        raise InputError(f"key {key!r} {rule}")
    return key


def check_range(start: int, stop: int) -> None:
    """Raise `InputError` unless the range from ``start`` to ``stop`` holds a byte."""
    if not 0 <= start < stop:
        raise InputError(f"a range must have 0 <= start < stop, got start={start}, stop={stop}")


def part_of(key: str, data: Buffer, start: int, stop: int) -> memoryview:
    """Return a range of an object's bytes, without a copy.

    Raises
    ------
    StoreError
        If the object is shorter.
    """
    view = memoryview(data).cast("B")
    if stop > view.nbytes:
        raise StoreError(f"object {key!r} has {view.nbytes} bytes, the range {start}..{stop} is not inside", key=key)
    return view[start:stop]


def parts_of(data: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """Return the data as a sequence of buffers."""
    return (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data


def joined(data: Buffer | Sequence[Buffer]) -> bytes:
    """Return the data as one bytes object that nobody else can change; bytes are not copied."""
    return data if isinstance(data, bytes) else b"".join(parts_of(data))
