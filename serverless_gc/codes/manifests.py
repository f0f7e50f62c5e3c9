"""Manifests as bytes: what is written next to coded blocks, JSON with the arrays inside."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["manifest_from_bytes", "manifest_to_bytes"]


def manifest_to_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Serialize a manifest as JSON; arrays become base64 with dtype and shape."""

    def default(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
            return {"__array__": data, "dtype": value.dtype.str, "shape": list(value.shape)}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"cannot store {type(value).__name__} in a manifest")

    return json.dumps(dict(manifest), default=default).encode("utf-8")


def manifest_from_bytes(data: bytes) -> dict[str, Any]:
    """Inverse of `manifest_to_bytes`."""

    def hook(obj: dict[str, Any]) -> Any:
        if "__array__" in obj:
            raw = base64.b64decode(obj["__array__"])
            return np.frombuffer(raw, dtype=np.dtype(obj["dtype"])).reshape(obj["shape"]).copy()
        return obj

    loaded: dict[str, Any] = json.loads(data, object_hook=hook)
    return loaded
