"""Whole trainings over encoded data: by coded gradients, by nodes among themselves, or by stochastic schemes."""

from serverless_gc.fitting.consensus import DecentralizedFit, Traffic
from serverless_gc.fitting.decentralized import minimize_decentralized, minimize_decentralized_async
from serverless_gc.fitting.minimizing import minimize, minimize_async
from serverless_gc.fitting.result import Account, Fit, Iterate, Reason
from serverless_gc.fitting.schemes import Scheme
from serverless_gc.fitting.stochastic import minimize_stochastic, minimize_stochastic_async

__all__ = [
    "Account",
    "DecentralizedFit",
    "Fit",
    "Iterate",
    "Reason",
    "Scheme",
    "Traffic",
    "minimize",
    "minimize_async",
    "minimize_decentralized",
    "minimize_decentralized_async",
    "minimize_stochastic",
    "minimize_stochastic_async",
]
