"""Codes for the gradient of any loss: sums over partitions of the rows, or derivatives over all rows."""

from __future__ import annotations

from typing import TypeAlias

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.projective import ProjectiveCode

__all__ = ["SumCode"]

SumCode: TypeAlias = GradientCode | ProjectiveCode
"""What workers send is linear in the gradients of the rows, and its sum over all rows is wanted."""
