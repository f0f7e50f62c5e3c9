"""The small exact codes that trees and clusters are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from serverless_gc.codes.gradient.cyclic import CyclicRepetitionCode
from serverless_gc.codes.gradient.frc import FractionalRepetitionCode
from serverless_gc.errors import InputError

__all__ = ["Inner", "InnerCode", "inner_code", "inner_from_manifest"]

InnerCode: TypeAlias = CyclicRepetitionCode | FractionalRepetitionCode
Inner: TypeAlias = Literal["auto", "cyclic", "frc"] | InnerCode


def inner_code(inner: Inner, size: int, stragglers: int, seed: int) -> InnerCode:
    """Make the inner code for ``size`` workers and as many partitions, or check the one given.

    ``"auto"`` is ``"frc"`` where ``stragglers + 1`` divides ``size``, ``"cyclic"`` otherwise.

    Raises
    ------
    InputError
        If the name is unknown, or the sizes or the stragglers of a given code differ.
    """
    if isinstance(inner, CyclicRepetitionCode | FractionalRepetitionCode):
        if (inner.n_workers, inner.k, inner.tolerated) != (size, size, stragglers):
            raise InputError(f"inner must be a code with n_workers=k={size} and stragglers={stragglers}, got {inner!r}")
        return inner
    if inner == "auto":
        inner = "cyclic" if size % (stragglers + 1) else "frc"
    if inner == "cyclic":
        return CyclicRepetitionCode(size, size, stragglers=stragglers, seed=seed)
    if inner == "frc":
        return FractionalRepetitionCode(size, size, stragglers=stragglers)
    raise InputError(f"inner must be 'auto', 'cyclic', 'frc' or such a code, got {inner!r}")


def inner_from_manifest(manifest: Mapping[str, Any]) -> InnerCode:
    """Rebuild an inner code from its manifest."""
    if manifest["code"] == CyclicRepetitionCode.name:
        return CyclicRepetitionCode.from_manifest(manifest)
    return FractionalRepetitionCode(manifest["n_workers"], manifest["k"], **manifest["params"])
