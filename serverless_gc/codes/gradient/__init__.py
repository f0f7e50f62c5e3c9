"""Gradient codes: each worker sends a few combinations of partition gradients, the driver recovers their sum.

One scheme per file; `base` holds what all share, `approximate` what those share that are never meant to be exact. Make
one by name with `serverless_gc.codes.get`; the classes are here too, imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from serverless_gc.codes.gradient.base import GradientCode, GradientTracker, Weights

if TYPE_CHECKING:
    from serverless_gc.codes.gradient.approximate import ApproximateCode
    from serverless_gc.codes.gradient.bernoulli import BernoulliCode, RegularizedBernoulliCode
    from serverless_gc.codes.gradient.bibd import BIBDCode
    from serverless_gc.codes.gradient.block_model import StochasticBlockCode
    from serverless_gc.codes.gradient.clustered import ClusteredCode
    from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
    from serverless_gc.codes.gradient.cyclic import CyclicRepetitionCode
    from serverless_gc.codes.gradient.cyclic_mds import CyclicMDSCode
    from serverless_gc.codes.gradient.dynamic_clusters import StragglerPredictor
    from serverless_gc.codes.gradient.erasure_head import ErasureHeadCode
    from serverless_gc.codes.gradient.expander import ExpanderCode
    from serverless_gc.codes.gradient.frc import FractionalRepetitionCode
    from serverless_gc.codes.gradient.graph import GraphCode
    from serverless_gc.codes.gradient.heterogeneous import HeterogeneousCode, allocate
    from serverless_gc.codes.gradient.ignore import IgnoreStragglersCode
    from serverless_gc.codes.gradient.linear import LinearGradientCode
    from serverless_gc.codes.gradient.nested import NestedCode
    from serverless_gc.codes.gradient.product import ProductGradientCode
    from serverless_gc.codes.gradient.soft_bibd import SoftBIBDCode
    from serverless_gc.codes.gradient.spectral import spectral_bound
    from serverless_gc.codes.gradient.worst import WorstCase, worst_case
    from serverless_gc.codes.gradient.ye_abbe import YeAbbeCode

_HOMES = {
    "ApproximateCode": "approximate",
    "BIBDCode": "bibd",
    "BernoulliCode": "bernoulli",
    "ClusteredCode": "clustered",
    "CodedReduceCode": "coded_reduce",
    "CyclicMDSCode": "cyclic_mds",
    "CyclicRepetitionCode": "cyclic",
    "ErasureHeadCode": "erasure_head",
    "ExpanderCode": "expander",
    "FractionalRepetitionCode": "frc",
    "GraphCode": "graph",
    "HeterogeneousCode": "heterogeneous",
    "IgnoreStragglersCode": "ignore",
    "LinearGradientCode": "linear",
    "NestedCode": "nested",
    "ProductGradientCode": "product",
    "RegularizedBernoulliCode": "bernoulli",
    "SoftBIBDCode": "soft_bibd",
    "StochasticBlockCode": "block_model",
    "StragglerPredictor": "dynamic_clusters",
    "WorstCase": "worst",
    "YeAbbeCode": "ye_abbe",
    "allocate": "heterogeneous",
    "spectral_bound": "spectral",
    "worst_case": "worst",
}

__all__ = [
    "ApproximateCode",
    "BIBDCode",
    "BernoulliCode",
    "ClusteredCode",
    "CodedReduceCode",
    "CyclicMDSCode",
    "CyclicRepetitionCode",
    "ErasureHeadCode",
    "ExpanderCode",
    "FractionalRepetitionCode",
    "GradientCode",
    "GradientTracker",
    "GraphCode",
    "HeterogeneousCode",
    "IgnoreStragglersCode",
    "LinearGradientCode",
    "NestedCode",
    "ProductGradientCode",
    "RegularizedBernoulliCode",
    "SoftBIBDCode",
    "StochasticBlockCode",
    "StragglerPredictor",
    "Weights",
    "WorstCase",
    "YeAbbeCode",
    "allocate",
    "spectral_bound",
    "worst_case",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
