"""What is done to single results before they are aggregated: staleness is punished, compensated or tolerated."""

from serverless_gc.transforms.delay import DelayCompensation, PseudoGradient
from serverless_gc.transforms.gap import GapAware
from serverless_gc.transforms.messages import SumMessages
from serverless_gc.transforms.staleness import StalenessAware, StepLimit, TokenDecay

__all__ = [
    "DelayCompensation",
    "GapAware",
    "PseudoGradient",
    "StalenessAware",
    "StepLimit",
    "SumMessages",
    "TokenDecay",
]
