"""Codes: linear maps with a tracker and a decoder.

Make one by name with `get`, list the names with `available`; the classes are here too, imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict
from serverless_gc.codes.registry import available, from_manifest, get

if TYPE_CHECKING:
    from serverless_gc.codes.berrut import BerrutCode
    from serverless_gc.codes.lagrange import LagrangeCode
    from serverless_gc.codes.linear import LinearCode
    from serverless_gc.codes.mds import MDSCode
    from serverless_gc.codes.pcr import PCRCode
    from serverless_gc.codes.polar import PolarCode
    from serverless_gc.codes.replication import ReplicationCode
    from serverless_gc.codes.uncoded import UncodedCode

__all__ = [
    "BerrutCode",
    "Certificate",
    "Code",
    "LagrangeCode",
    "LinearCode",
    "MDSCode",
    "PCRCode",
    "PolarCode",
    "ReplicationCode",
    "Tracker",
    "UncodedCode",
    "Verdict",
    "available",
    "from_manifest",
    "get",
]

_CLASSES = {
    "BerrutCode": "berrut",
    "LagrangeCode": "lagrange",
    "LinearCode": "linear",
    "MDSCode": "mds",
    "PCRCode": "pcr",
    "PolarCode": "polar",
    "ReplicationCode": "replication",
    "UncodedCode": "uncoded",
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
