"""Codes: linear maps with a tracker and a decoder.

Make one by name with `get`, list the names with `available`; the classes are here too, imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from serverless_gc.codes import catalog as catalog
from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict
from serverless_gc.codes.registry import available, from_manifest, get

if TYPE_CHECKING:
    from serverless_gc.codes.lagrange.berrut import BerrutCode
    from serverless_gc.codes.lagrange.code import LagrangeCode
    from serverless_gc.codes.lagrange.pcr import PCRCode
    from serverless_gc.codes.linear import LinearCode
    from serverless_gc.codes.mds.code import MDSCode
    from serverless_gc.codes.peeling.ldpc import LDPCCode
    from serverless_gc.codes.peeling.lt import LTCode
    from serverless_gc.codes.polar.code import PolarCode
    from serverless_gc.codes.product.code import ProductCode
    from serverless_gc.codes.product.local_parity import LocalParityCode
    from serverless_gc.codes.projective import ProjectiveCode
    from serverless_gc.codes.replication import ReplicationCode
    from serverless_gc.codes.short_dot import ShortDotCode
    from serverless_gc.codes.uncoded import UncodedCode

__all__ = [
    "BerrutCode",
    "Certificate",
    "Code",
    "LDPCCode",
    "LTCode",
    "LagrangeCode",
    "LinearCode",
    "LocalParityCode",
    "MDSCode",
    "PCRCode",
    "PolarCode",
    "ProductCode",
    "ProjectiveCode",
    "ReplicationCode",
    "ShortDotCode",
    "Tracker",
    "UncodedCode",
    "Verdict",
    "available",
    "from_manifest",
    "get",
]

_CLASSES = {
    "BerrutCode": "lagrange.berrut",
    "LagrangeCode": "lagrange.code",
    "LDPCCode": "peeling.ldpc",
    "LTCode": "peeling.lt",
    "LinearCode": "linear",
    "LocalParityCode": "product.local_parity",
    "MDSCode": "mds.code",
    "PCRCode": "lagrange.pcr",
    "PolarCode": "polar.code",
    "ProductCode": "product.code",
    "ProjectiveCode": "projective",
    "ReplicationCode": "replication",
    "ShortDotCode": "short_dot",
    "UncodedCode": "uncoded",
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
