"""Gradient codes: each worker sends a few combinations of partition gradients, the driver recovers their sum.

One scheme per file; `base` holds what they share: the model, the generic tracker and the decoders.
"""

from serverless_gc.codes.gradient.base import GradientCode, GradientTracker, Weights
from serverless_gc.codes.gradient.clustered import ClusteredCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.codes.gradient.cyclic import CyclicRepetitionCode
from serverless_gc.codes.gradient.cyclic_mds import CyclicMDSCode
from serverless_gc.codes.gradient.dynamic_clusters import StragglerPredictor
from serverless_gc.codes.gradient.frc import FractionalRepetitionCode
from serverless_gc.codes.gradient.linear import LinearGradientCode
from serverless_gc.codes.gradient.nested import NestedCode
from serverless_gc.codes.gradient.worst import WorstCase, worst_case
from serverless_gc.codes.gradient.ye_abbe import YeAbbeCode

__all__ = [
    "ClusteredCode",
    "CodedReduceCode",
    "CyclicMDSCode",
    "CyclicRepetitionCode",
    "FractionalRepetitionCode",
    "GradientCode",
    "GradientTracker",
    "LinearGradientCode",
    "NestedCode",
    "StragglerPredictor",
    "Weights",
    "WorstCase",
    "YeAbbeCode",
    "worst_case",
]
