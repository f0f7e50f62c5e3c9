"""Whole trainings over encoded data: every step one coded gradient, or stale ones if asked for."""

from serverless_gc.fitting.minimizing import minimize, minimize_async
from serverless_gc.fitting.result import Account, Fit, Iterate, Reason

__all__ = ["Account", "Fit", "Iterate", "Reason", "minimize", "minimize_async"]
