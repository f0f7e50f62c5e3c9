"""Whole trainings over encoded data: every step one coded gradient, or stale ones if asked for."""

from serverless_gc.fitting.consensus import DecentralizedFit, Traffic
from serverless_gc.fitting.decentralized import minimize_decentralized, minimize_decentralized_async
from serverless_gc.fitting.minimizing import minimize, minimize_async
from serverless_gc.fitting.result import Account, Fit, Iterate, Reason

__all__ = [
    "Account",
    "DecentralizedFit",
    "Fit",
    "Iterate",
    "Reason",
    "Traffic",
    "minimize",
    "minimize_async",
    "minimize_decentralized",
    "minimize_decentralized_async",
]
