"""Small documents beside the blocks: frames, which have checksums, around the JSON of `manifest_to_bytes`.

Those that describe blocks are written after all of them, so what has such a document is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import CorruptObject
from serverless_gc.store.base import Store
from serverless_gc.wire import FrameError, pack, unpack

__all__ = ["read_document", "write_document"]

_FRAME = "manifest"


async def write_document(store: Store, key: str, document: Mapping[str, Any], *, if_absent: bool = False) -> bool:
    """Write a document of JSON types and arrays; it names its ``"kind"`` and ``"version"``.

    Returns
    -------
    bool
        False if ``if_absent`` and there is one already.
    """
    text = np.frombuffer(manifest_to_bytes(document), dtype=np.uint8)
    return await store.put(key, pack({"kind": _FRAME}, (text,)), if_absent=if_absent)


async def read_document(store: Store, key: str, kind: str, version: int) -> dict[str, Any]:
    """Read a document.

    Raises
    ------
    ObjectNotFound
        If there is none.
    CorruptObject
        If it is damaged, or of another kind or version.
    """
    data = await store.get(key)
    try:
        frame = unpack(data)
    except FrameError as error:
        raise CorruptObject(f"the manifest {key} is damaged ({error}); encode again", key=key) from error
    found = manifest_from_bytes(frame.arrays[0].tobytes()) if frame.header.get("kind") == _FRAME else {}
    if (found.get("kind"), found.get("version")) != (kind, version):
        raise CorruptObject(f"{key} is not a manifest of version {version}; encode again", key=key)
    return found
