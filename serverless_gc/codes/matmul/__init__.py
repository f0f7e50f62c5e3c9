"""Codes for matrix-matrix products: both operands coded, each worker multiplies one block of each.

`base` holds what they share: how the operands are cut, their two generators, and the code of the products.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from serverless_gc.codes.matmul.base import MatmulCode, Operand, Split

if TYPE_CHECKING:
    from serverless_gc.codes.matmul.khatri_rao import KhatriRaoCode
    from serverless_gc.codes.matmul.matdot import MatDotCode, OrthoMatDotCode
    from serverless_gc.codes.matmul.polar import PolarMatmulCode
    from serverless_gc.codes.matmul.polynomial import ComplexPolynomialCode, EntangledCode, PolynomialCode
    from serverless_gc.codes.matmul.product import ProductMatmulCode

__all__ = [
    "ComplexPolynomialCode",
    "EntangledCode",
    "KhatriRaoCode",
    "MatDotCode",
    "MatmulCode",
    "Operand",
    "OrthoMatDotCode",
    "PolarMatmulCode",
    "PolynomialCode",
    "ProductMatmulCode",
    "Split",
]

_CLASSES = {
    "ComplexPolynomialCode": "polynomial",
    "EntangledCode": "polynomial",
    "KhatriRaoCode": "khatri_rao",
    "MatDotCode": "matdot",
    "OrthoMatDotCode": "matdot",
    "PolarMatmulCode": "polar",
    "PolynomialCode": "polynomial",
    "ProductMatmulCode": "product",
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
