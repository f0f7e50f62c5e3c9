"""Objects as a worker sees them: read, written once, looked for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

__all__ = ["BlobError", "BlobNotFound", "Blobs", "Buffer", "FileBlobs", "buffers"]

Buffer: TypeAlias = bytes | bytearray | memoryview


class BlobError(Exception):
    """An object could not be read or written.

    Attributes
    ----------
    kind
        ``"missing"``, ``"denied"`` or ``"unavailable"``.
    retryable
        Whether the same request may succeed later.
    status
        HTTP status of the answer; 0 if there was none.
    code
        The service's own error code, such as ``NoSuchBucket``.
    """

    def __init__(
        self, message: str, *, kind: str = "unavailable", retryable: bool = False, status: int = 0, code: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.status = status
        self.code = code


class BlobNotFound(BlobError, KeyError):
    """No object is stored under that key."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message, kind="missing", status=status, code=code)

    def __str__(self) -> str:
        return str(self.args[0])


class Blobs(Protocol):
    """What a worker needs of a store; `serverless_gc.store.base.Blobs` has the same shape."""

    def get(self, key: str) -> Buffer:
        """Read one object."""
        ...

    def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read the bytes of one object from ``start`` up to, not including, ``stop``; fewer where it ends before."""
        ...

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; False if ``if_absent`` and there was one."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        ...


def buffers(data: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """Return the data as a sequence of buffers."""
    return [data] if isinstance(data, (bytes, bytearray, memoryview)) else data


class FileBlobs:
    """Objects as files below a directory, laid out as `serverless_gc.store.LocalStore` does.

    A file is written under ``.tmp`` and then given its name, so a reader sees all of it or none.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, key: str) -> Path:
        if not key or any(part in {"", ".", ".."} for part in key.split("/")):
            raise BlobError(f"not a key: {key!r}", kind="missing")
        return self._root / key

    def get(self, key: str) -> bytes:
        """Read one object."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise BlobNotFound(f"no object {key!r} under {self._root}") from None

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Read a part of one object, and no more of the file."""
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise BlobNotFound(f"no object {key!r} under {self._root}") from None

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; a hard link cannot replace a file, which makes the first writer win."""
        path = self._path(key)
        temporary = self._root / ".tmp" / uuid.uuid4().hex
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb", buffering=0) as file:
                for part in buffers(data):
                    view = memoryview(part).cast("B")
                    while view:
                        view = view[file.write(view) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            if not if_absent:
                temporary.replace(path)
                return True
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            return True
        finally:
            temporary.unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        return self._path(key).is_file()
