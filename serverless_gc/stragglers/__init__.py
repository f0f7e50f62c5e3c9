"""Laws of delay."""

from serverless_gc.stragglers.injected import Injected
from serverless_gc.stragglers.lambda_like import LambdaLike
from serverless_gc.stragglers.laws import Constant, Exponential, Law, Pareto, ShiftedExponential
from serverless_gc.stragglers.order import harmonic, mean_order_stat
from serverless_gc.stragglers.parse import laws, parse_law

__all__ = [
    "Constant",
    "Exponential",
    "Injected",
    "LambdaLike",
    "Law",
    "Pareto",
    "ShiftedExponential",
    "harmonic",
    "laws",
    "mean_order_stat",
    "parse_law",
]
