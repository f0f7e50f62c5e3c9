"""A store in a directory, for workers on this machine or on a shared file system."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from serverless_gc.errors import InputError, ObjectNotFound, StoreError
from serverless_gc.store.base import Blobs, ObjectInfo, Store
from serverless_gc.store.keys import SCRATCH, check_key, check_range, parts_of
from serverless_gc.types import Buffer

__all__ = ["LocalStore"]

_NAMING_ATTEMPTS = 100


class _Files:
    """Objects as files: the key is the path below the root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise ObjectNotFound(f"no object {key!r} under {self.root}", key=key) from None
        except OSError as error:
            raise StoreError(f"cannot read {key!r} under {self.root}: {error.strerror}", key=key) from error

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise ObjectNotFound(f"no object {key!r} under {self.root}", key=key) from None
        except OSError as error:
            raise StoreError(f"cannot read {key!r} under {self.root}: {error.strerror}", key=key) from error
        if len(data) < stop - start:
            raise StoreError(f"object {key!r} ends before byte {stop}", key=key)
        return data

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        path = self._path(key)
        try:
            temporary = self._scratch(parts_of(data))
            try:
                return self._name(temporary, path, if_absent=if_absent)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {key!r} under {self.root}: {error.strerror}", key=key) from error

    def _scratch(self, parts: Sequence[Buffer]) -> Path:
        """Write the whole object where no reader looks."""
        folder = self.root / SCRATCH
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / uuid.uuid4().hex
        with path.open("xb", buffering=0) as file:
            for part in parts:
                view = memoryview(part).cast("B")
                while view:
                    view = view[file.write(view) :]
        return path

    @staticmethod
    def _name(temporary: Path, path: Path, *, if_absent: bool) -> bool:
        """Give a finished file its name: at once and whole, and with ``if_absent`` only if the name is free."""
        for _ in range(_NAMING_ATTEMPTS):
            try:
                if if_absent:
                    os.link(temporary, path)  # unlike a rename it never replaces
                else:
                    temporary.replace(path)
            except FileExistsError:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, "it is the folder of other objects") from None
                return False
            except FileNotFoundError:  # no such folder yet, or a delete has just removed it as empty
                path.parent.mkdir(parents=True, exist_ok=True)
            else:
                return True
        raise FileNotFoundError(errno.ENOENT, "its folder is removed again and again")

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectInfo(key, status.st_size, status.st_mtime) if path.is_file() else None

    def delete(self, keys: Iterable[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        folders: set[Path] = set()
        for key in keys:
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue  # a part of the key is a file, so there is no such object
            except OSError as error:
                failed[key] = error.strerror or type(error).__name__
            folders.add(path.parent)
        for folder in folders:
            self._remove_empty(folder)
        return failed

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or gone already
            folder = folder.parent

    def list(self, prefix: str) -> list[ObjectInfo]:
        folder = self.root / prefix.rpartition("/")[0]
        found = (info for info in self._walk(folder) if info.key.startswith(prefix))
        return sorted(found, key=lambda info: info.key)  # folder order is not key order: "a-b" < "a/b" < "a0"

    def _walk(self, folder: Path) -> Iterator[ObjectInfo]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir():
                if path != self.root / SCRATCH:
                    yield from self._walk(path)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            yield ObjectInfo(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)


class LocalStore(Store):
    """Objects as files below a directory, which is made when the first one is written.

    A reader sees a whole object or none, and of several writers with ``if_absent`` exactly one wins, among
    processes too. One limit that S3 does not have: no key may be another key's folder.

    Parameters
    ----------
    root
        The directory.

    Examples
    --------
    >>> LocalStore("/tmp/my blocks").url
    'file:///tmp/my%20blocks'
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._files = _Files(Path(root).absolute())

    @classmethod
    def open(cls, url: str) -> LocalStore:
        """Open a ``file:///dir`` URL.

        Raises
        ------
        InputError
            If it is not one.
        """
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
            raise InputError(f"store URL must look like file:///absolute/dir, got {url!r}")
        return cls(unquote(parts.path))

    @property
    def url(self) -> str:
        """The directory as a URL."""
        return self._files.root.as_uri()

    async def get(self, key: str) -> Buffer:
        """Read one object."""
        return await asyncio.to_thread(self._files.get, key)

    async def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read a part of one object, and no more of the file."""
        check_range(start, stop)
        return await asyncio.to_thread(self._files.get_range, key, start, stop)

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; several buffers are written one after the other, not joined."""
        return await asyncio.to_thread(self._files.put, key, data, if_absent=if_absent)

    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        return await asyncio.to_thread(self._files.head, key)

    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects, and the folders that are empty then."""
        return await asyncio.to_thread(self._files.delete, list(keys))

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over the objects that are there now."""
        for info in await asyncio.to_thread(self._files.list, prefix):
            yield info

    def blobs(self) -> Blobs:
        """Return the same objects for workers in this process."""
        return self._files
