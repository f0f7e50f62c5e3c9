"""One update from the results of a round."""

from serverless_gc.aggregate.decode import Decode
from serverless_gc.aggregate.means import Mean, SumOver, WeightedMean
from serverless_gc.aggregate.meta import AverageStats, KeepSlots, StackStats
from serverless_gc.aggregate.models import AverageModels, merge_late
from serverless_gc.aggregate.precision import PrecisionWeightedMean
from serverless_gc.aggregate.table import GradientTable

__all__ = [
    "AverageModels",
    "AverageStats",
    "Decode",
    "GradientTable",
    "KeepSlots",
    "Mean",
    "PrecisionWeightedMean",
    "StackStats",
    "SumOver",
    "WeightedMean",
    "merge_late",
]
