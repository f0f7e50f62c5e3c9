"""Before anything runs: how long a code will take, what it will cost, and whether it fits."""

from serverless_gc.plan.advisor import Advice, Choice, Refusal, recommend
from serverless_gc.plan.cost import Cost, price
from serverless_gc.plan.memory import Problem, refusals
from serverless_gc.plan.methods import Method, method
from serverless_gc.plan.montecarlo import sample_rounds
from serverless_gc.plan.platform import Platform
from serverless_gc.plan.prices import PRICES, Prices
from serverless_gc.plan.rounds import Rounds
from serverless_gc.plan.simulate import simulate

__all__ = [
    "PRICES",
    "Advice",
    "Choice",
    "Cost",
    "Method",
    "Platform",
    "Prices",
    "Problem",
    "Refusal",
    "Rounds",
    "method",
    "price",
    "recommend",
    "refusals",
    "sample_rounds",
    "simulate",
]
