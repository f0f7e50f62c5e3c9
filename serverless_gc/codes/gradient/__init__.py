"""Gradient codes: each worker sends a few combinations of partition gradients, the driver recovers their sum.

One scheme per file; `base` holds what they share: the model, the generic tracker and the decoders.
"""

from serverless_gc.codes.gradient.base import GradientCode, GradientTracker, Weights
from serverless_gc.codes.gradient.linear import LinearGradientCode

__all__ = ["GradientCode", "GradientTracker", "LinearGradientCode", "Weights"]
