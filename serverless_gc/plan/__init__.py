"""Before anything runs: what a code will cost and how exact it will be, found by simulation and closed forms."""

from serverless_gc.plan.compare import Comparison, compare
from serverless_gc.plan.errors import ErrorCurve, error_curve
from serverless_gc.plan.rounds import shares, simulated_rounds
from serverless_gc.plan.sizes import Sized, sized

__all__ = ["Comparison", "ErrorCurve", "Sized", "compare", "error_curve", "shares", "simulated_rounds", "sized"]
