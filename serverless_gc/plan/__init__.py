"""Before anything runs: how long a code takes, what it costs, how exact it is, and whether it fits."""

from serverless_gc.plan.advisor import recommend
from serverless_gc.plan.choice import Choice, Refusal
from serverless_gc.plan.compare import Comparison, compare
from serverless_gc.plan.cost import Cost, price
from serverless_gc.plan.errors import ErrorCurve, error_curve
from serverless_gc.plan.explain import Advice
from serverless_gc.plan.memory import Problem, refusals
from serverless_gc.plan.methods import Method, method
from serverless_gc.plan.montecarlo import sample_rounds
from serverless_gc.plan.platform import Platform
from serverless_gc.plan.prices import PRICES, Prices
from serverless_gc.plan.results import Rounds
from serverless_gc.plan.rounds import shares, simulated_rounds
from serverless_gc.plan.simulate import simulate
from serverless_gc.plan.sizes import Sized, sized

__all__ = [
    "PRICES",
    "Advice",
    "Choice",
    "Comparison",
    "Cost",
    "ErrorCurve",
    "Method",
    "Platform",
    "Prices",
    "Problem",
    "Refusal",
    "Rounds",
    "Sized",
    "compare",
    "error_curve",
    "method",
    "price",
    "recommend",
    "refusals",
    "sample_rounds",
    "shares",
    "simulate",
    "simulated_rounds",
    "sized",
]
