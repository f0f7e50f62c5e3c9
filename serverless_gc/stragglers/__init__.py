"""Laws of delay, order statistics, and recorded traces."""

from serverless_gc.stragglers.diagnosis import Diagnosis, Persistence, diagnose, persistence
from serverless_gc.stragglers.empirical import Empirical
from serverless_gc.stragglers.families import Bimodal, Erlang, Gamma, LogNormal, Lomax, Uniform, Weibull
from serverless_gc.stragglers.hazard import Hazard, hazard
from serverless_gc.stragglers.injected import Injected, Unanswered
from serverless_gc.stragglers.lambda_like import LambdaLike
from serverless_gc.stragglers.laws import Constant, Exponential, Law, Pareto, ShiftedExponential
from serverless_gc.stragglers.loaded import Loaded
from serverless_gc.stragglers.mixtures import ColdStart, HyperExponential, Mixture, Replicas, Shifted
from serverless_gc.stragglers.order import harmonic, mean_order_stat, normal_order_stat
from serverless_gc.stragglers.parse import laws, parse_law
from serverless_gc.stragglers.presets import lambda_heavy, lambda_mild, lambda_short
from serverless_gc.stragglers.slots import GilbertElliott, HeterogeneousExponentials, PerSlot
from serverless_gc.stragglers.trace import Replay, Trace
from serverless_gc.stragglers.work import Additive, LinearProgress

__all__ = [
    "Additive",
    "Bimodal",
    "ColdStart",
    "Constant",
    "Diagnosis",
    "Empirical",
    "Erlang",
    "Exponential",
    "Gamma",
    "GilbertElliott",
    "Hazard",
    "HeterogeneousExponentials",
    "HyperExponential",
    "Injected",
    "LambdaLike",
    "Law",
    "LinearProgress",
    "Loaded",
    "LogNormal",
    "Lomax",
    "Mixture",
    "Pareto",
    "PerSlot",
    "Persistence",
    "Replay",
    "Replicas",
    "Shifted",
    "ShiftedExponential",
    "Trace",
    "Unanswered",
    "Uniform",
    "Weibull",
    "diagnose",
    "harmonic",
    "hazard",
    "lambda_heavy",
    "lambda_mild",
    "lambda_short",
    "laws",
    "mean_order_stat",
    "normal_order_stat",
    "parse_law",
    "persistence",
]
