"""An encoded matrix in a store: which object holds which message, and the manifest that says so, written last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.encode.documents import read_document, write_document
from serverless_gc.encode.partition import Partition
from serverless_gc.encode.uploads import check_objects
from serverless_gc.errors import InputError
from serverless_gc.store.base import Store

__all__ = ["EncodedMatrix", "MakeCode", "axis_name", "load_encoded", "manifest_key", "read_manifest", "write_manifest"]

MakeCode: TypeAlias = Callable[[Mapping[str, Any]], Code]

_KIND = "encoded-matrix"
_VERSION = 3  # 2: blocks hold the columns that their messages need, see codes.support; 3: stamps of the objects


@dataclass(frozen=True, slots=True)
class EncodedMatrix:
    """A matrix whose coded blocks are in a store.

    Attributes
    ----------
    n_rows, n_cols
        Shape of the matrix as given.
    axis
        0: blocks are rows of the matrix; 1: blocks are rows of its transpose.
    partition
        How the rows (or columns) were cut.
    code
        The code.
    keys
        Object key of each message. Messages of equal content share one object.
    dtype
        Type of the stored entries.
    real
        Whether the matrix is real: a complex code stores complex blocks of it all the same.
    sparse
        Whether the blocks are compressed rows.
    fingerprint
        Content of the matrix, see `serverless_gc.encode.fingerprint`.
    largest
        Largest magnitude of an entry.
    prefix
        Where the objects are.
    nbytes
        Bytes of all objects, the manifest excluded.
    stored_nnz
        Entries stored in all objects (for dense blocks: all entries).
    sizes
        Bytes of each object.
    stamps
        What tells each object from others, see `serverless_gc.wire.stamp`.
    sent
        Bytes of the objects that this call wrote; the others were there already.
    """

    n_rows: int
    n_cols: int
    axis: int
    partition: Partition
    code: Code
    keys: tuple[str, ...]
    dtype: np.dtype[Any]
    real: bool
    sparse: bool
    fingerprint: str
    largest: float
    prefix: str
    nbytes: int
    stored_nnz: int
    sizes: Mapping[str, int]
    stamps: Mapping[str, str]
    sent: int

    @property
    def uploaded(self) -> bool:
        """Whether this call wrote an object."""
        return self.sent > 0

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix as given."""
        return self.n_rows, self.n_cols

    @property
    def block_shape(self) -> tuple[int, int]:
        """Shape of one coded block, of the widest if they differ."""
        return self.partition.b, self.code.width(self.n_rows if self.axis else self.n_cols)

    @property
    def manifest_key(self) -> str:
        """Key of the manifest object."""
        return manifest_key(self.prefix, self.axis)

    def objects(self) -> tuple[str, ...]:
        """Return the keys of all objects, each once; the manifest first, so that deleting in order never misleads."""
        return (self.manifest_key, *dict.fromkeys(self.keys))

    def manifest(self) -> dict[str, Any]:
        """Return everything that `load_encoded` needs: JSON types and arrays."""
        return {
            "kind": _KIND,
            "version": _VERSION,
            "code": self.code.manifest(),
            "m": self.n_rows,
            "p": self.n_cols,
            "b": self.partition.b,
            "axis": self.axis,
            "dtype": self.dtype.str,
            "real": self.real,
            "sparse": self.sparse,
            "fingerprint": self.fingerprint,
            "largest": self.largest,
            "keys": list(self.keys),
            "sizes": dict(self.sizes),
            "stamps": dict(self.stamps),
            "stored_nnz": self.stored_nnz,
        }


def axis_name(axis: int) -> str:
    """Return the part of a key that says what the blocks are: ``"rows"`` or ``"columns"``."""
    if axis not in {0, 1}:
        raise InputError(f"axis must be 0 (blocks of rows) or 1 (blocks of columns), got {axis!r}")
    return ("rows", "columns")[axis]


def manifest_key(prefix: str, axis: int) -> str:
    """Return the key of the manifest of an encoding under ``prefix``."""
    return f"{prefix}/{axis_name(axis)}/manifest"


async def write_manifest(store: Store, encoded: EncodedMatrix) -> None:
    """Write the manifest; call it when every block is stored."""
    await write_document(store, encoded.manifest_key, encoded.manifest())


async def read_manifest(store: Store, prefix: str, *, axis: int = 0) -> dict[str, Any]:
    """Read the manifest of an encoding.

    Raises
    ------
    ObjectNotFound
        If there is none: nothing was encoded there, or not to the end.
    CorruptObject
        If it is damaged or of another version.
    """
    return await read_document(store, manifest_key(prefix, axis), _KIND, _VERSION)


async def load_encoded(
    store: Store,
    prefix: str,
    code: Code | MakeCode,
    *,
    axis: int = 0,
    stamped: bool = False,
) -> EncodedMatrix:
    """Open an encoding that is in the store.

    Parameters
    ----------
    store, prefix, axis
        Where it is.
    code
        The code it was made with, or what rebuilds one from its manifest.
    stamped
        Whether to compare the objects' stamps, beside their sizes: a small request each, beside one per thousand.

    Raises
    ------
    ObjectNotFound
        If there is no manifest, or an object it names is missing or another one.
    CorruptObject
        If the manifest is damaged.
    InputError
        If ``code`` is not the code it was made with.
    """
    manifest = await read_manifest(store, prefix, axis=axis)
    made = manifest["code"]
    actual = code if isinstance(code, Code) else code(made)
    if not same_code(actual, made):
        raise InputError(
            f"{manifest_key(prefix, axis)} was encoded with {made['code']} (n_workers={made['n_workers']}, "
            f"k={made['k']}), not with {actual!r}; use another prefix"
        )
    sizes, stamps = dict(manifest["sizes"]), dict(manifest["stamps"])
    await check_objects(store, f"{prefix}/{axis_name(axis)}/", sizes, stamps if stamped else {})
    return EncodedMatrix(
        n_rows=manifest["m"],
        n_cols=manifest["p"],
        axis=axis,
        partition=Partition(manifest["p"] if axis else manifest["m"], actual.k),
        code=actual,
        keys=tuple(manifest["keys"]),
        dtype=np.dtype(manifest["dtype"]),
        real=manifest["real"],
        sparse=manifest["sparse"],
        fingerprint=manifest["fingerprint"],
        largest=manifest["largest"],
        prefix=prefix,
        nbytes=sum(sizes.values()),
        stored_nnz=manifest["stored_nnz"],
        sizes=sizes,
        stamps=stamps,
        sent=0,
    )


def same_code(code: Code, manifest: Mapping[str, Any]) -> bool:
    """Whether ``code`` is the code that ``manifest`` describes, its generator included where it is random."""
    return manifest_to_bytes(code.manifest()) == manifest_to_bytes(manifest)
