"""Data sets kept under a name of their own: found again by another process, on another day.

Below ``kept/{name}/``: ``begun`` says what the set is to be and is written first, so that two matrices never mix
under one name; then come the objects; ``manifest`` is written last, and a set without it is not whole.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.encode.documents import read_document, write_document
from serverless_gc.errors import CorruptObject, InputError, ObjectNotFound, StoreError
from serverless_gc.store.base import ObjectInfo, Store

__all__ = [
    "KEPT",
    "Kept",
    "begin_kept",
    "check_name",
    "delete_kept",
    "describe",
    "finish_kept",
    "list_kept",
    "read_kept",
]

KEPT = "kept"
"""First part of the keys of all kept data sets."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_KIND = "kept-data"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a kept data set without opening it.

    Attributes
    ----------
    name
        Under which it was stored.
    what
        Shape, type and code in words; empty if its upload was begun by another version.
    whole
        Whether it was stored to the end. Storing the same data under the same name again goes on where it stopped.
    objects, bytes
        How many there are, and their size.
    modified
        When it was last written to, in seconds since the epoch.
    """

    name: str
    what: str
    whole: bool
    objects: int
    bytes: int
    modified: float


def check_name(name: Any) -> str:
    """Return the name if a data set can have it.

    Raises
    ------
    InputError
        If it is not made of letters, digits, dots, dashes and underscores, or too long.

    Examples
    --------
    >>> check_name("flights-2013")
    'flights-2013'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"name must be up to 100 letters, digits, dots, dashes and underscores, the first a letter or digit, "
            f"got {name!r}"
        )
    return name


async def begin_kept(store: Store, name: str, identity: Mapping[str, Any]) -> bool:
    """Take a name for a data set, or go on with the same data set under it.

    Parameters
    ----------
    store
        Where it is to be.
    name
        Its name.
    identity
        What it is: JSON types and arrays.

    Returns
    -------
    bool
        Whether the name was free.

    Raises
    ------
    InputError
        If the name is another data set's. Nothing was written then.
    CorruptObject
        If what is there cannot be read.
    """
    key = f"{KEPT}/{name}/begun"
    for _ in range(2):  # two may take a name at once: one of them finds the other's at the second look
        try:
            there = await _read(store, name, "begun")
        except ObjectNotFound:
            if await write_document(store, key, _document(identity), if_absent=True):
                return True
            continue
        _check_same(name, identity, there["identity"])
        return False
    raise StoreError(f"the name {name!r} is being taken and given up by others; try again", key=key)


async def finish_kept(store: Store, name: str, identity: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Say that a data set is whole, after its last object; ``extra`` is given back by `read_kept`."""
    key = f"{KEPT}/{name}/manifest"
    if await store.head(key) is None:
        await write_document(store, key, _document(identity) | {"extra": dict(extra)})


async def read_kept(store: Store, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the identity and the extra of a whole data set.

    Raises
    ------
    InputError
        If there is none of that name, or it is not whole.
    CorruptObject
        If its manifest is damaged or of another version.
    """
    try:
        found = await _read(store, check_name(name), "manifest")
    except ObjectNotFound:
        there = {kept.name: kept async for kept in list_kept(store)}
        if name in there:
            raise InputError(
                f"data set {name!r} was not stored to the end: encode the same data with name={name!r} again, which "
                "goes on where it stopped, or delete it"
            ) from None
        others = ", ".join(sorted(n for n, kept in there.items() if kept.whole)[:10]) or "none"
        raise InputError(f"no data set {name!r} is kept in {store.url}; there are: {others}") from None
    return found["identity"], found["extra"]


async def list_kept(store: Store) -> AsyncIterator[Kept]:
    """Iterate over the kept data sets, whole or not, by name."""
    infos: dict[str, list[ObjectInfo]] = {}
    async for info in store.list(f"{KEPT}/"):
        infos.setdefault(info.key.split("/")[1], []).append(info)
    for name, objects in sorted(infos.items()):
        keys = {info.key for info in objects}
        begun = f"{KEPT}/{name}/begun"
        yield Kept(
            name=name,
            what=await _described(store, name) if begun in keys else "",
            whole=f"{KEPT}/{name}/manifest" in keys,
            objects=len(objects),
            bytes=sum(info.size for info in objects),
            modified=max(info.modified for info in objects),
        )


async def delete_kept(store: Store, name: str) -> int:
    """Delete a kept data set, whole or not; the manifest first, so that it is never opened half-deleted.

    Returns
    -------
    int
        How many objects there were.

    Raises
    ------
    InputError
        If there is none of that name.
    StoreError
        If an object could not be deleted; the message names it.
    """
    prefix = f"{KEPT}/{check_name(name)}"
    keys = [info.key async for info in store.list(f"{prefix}/")]
    if not keys:
        raise InputError(f"no data set {name!r} is kept in {store.url}")
    first, last = f"{prefix}/manifest", f"{prefix}/begun"
    for batch in ([first], [key for key in keys if key not in {first, last}], [last]):
        failed = await store.delete(batch)
        if failed:
            key, why = next(iter(failed.items()))
            raise StoreError(f"{len(failed)} objects of data set {name!r} were not deleted, the first {key}: {why}")
    return len(keys)


def _document(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "version": _VERSION,
        # For who looks into it by hand. Not imported: the package's own module names all others.
        "package": sys.modules[__package__.partition(".")[0]].__version__,
        "identity": dict(identity),
    }


def _check_same(name: str, wanted: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    other = [
        field
        for field in dict.fromkeys((*wanted, *there))
        if manifest_to_bytes({"": wanted.get(field)}) != manifest_to_bytes({"": there.get(field)})
    ]
    if other:
        raise InputError(
            f"the name {name!r} is that of another data set: it has another {' and another '.join(other)} "
            f"({describe(there)}, not {describe(wanted)}). Choose another name, or delete that one: "
            f"session.delete({name!r}) or serverless-gc data delete {name}"
        )


def describe(identity: Mapping[str, Any]) -> str:
    """Say what a data set is, in one line."""
    rows, columns = identity["shape"]
    code = identity["code"]
    return (
        f"{rows:,} x {columns:,} {np.dtype(identity['dtype'])}, {code['code']} with {code['n_workers']} workers and "
        f"k = {code['k']}, fingerprint {identity['fingerprint'][:12]}"
    )


async def _read(store: Store, name: str, document: str) -> dict[str, Any]:
    try:
        return await read_document(store, f"{KEPT}/{name}/{document}", _KIND, _VERSION)
    except CorruptObject as error:
        raise CorruptObject(
            f"what the data set {name!r} is cannot be read: {error}, after session.delete({name!r}) or "
            f"serverless-gc data delete {name}",
            key=error.key,
        ) from error


async def _described(store: Store, name: str) -> str:
    try:
        return describe((await _read(store, name, "begun"))["identity"])
    except StoreError:
        return ""
