"""Run one task somewhere, one attempt."""

from serverless_gc.invoke.aws import LambdaInvoker
from serverless_gc.invoke.base import Invoker, InvokerStats
from serverless_gc.invoke.local import LocalInvoker
from serverless_gc.invoke.processes import ProcessInvoker
from serverless_gc.invoke.retry import RetryingInvoker, RetryPolicy
from serverless_gc.invoke.simulated import SimulatedInvoker
from serverless_gc.invoke.throttle import AdaptiveLimit
from serverless_gc.invoke.warm import Warmth, warm
from serverless_gc.invoke.wrappers import FaultyInvoker, StragglingInvoker, inject

__all__ = [
    "AdaptiveLimit",
    "FaultyInvoker",
    "Invoker",
    "InvokerStats",
    "LambdaInvoker",
    "LocalInvoker",
    "ProcessInvoker",
    "RetryPolicy",
    "RetryingInvoker",
    "SimulatedInvoker",
    "StragglingInvoker",
    "Warmth",
    "inject",
    "warm",
]
