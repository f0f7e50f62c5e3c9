"""Optimizers: what to do with an answer. Pure step rules and iterations, without I/O."""

from serverless_gc.optim.first_order import SGD, Adam, AMSGrad, DualAveraging, ModelAverage, Momentum, Nesterov
from serverless_gc.optim.line_search import Backtracking
from serverless_gc.optim.proximal import FISTA, ProximalGradient, box, l2_ball, soft_threshold
from serverless_gc.optim.quasi_newton import QuasiNewton
from serverless_gc.optim.schedules import inverse_time, power

__all__ = [
    "FISTA",
    "SGD",
    "AMSGrad",
    "Adam",
    "Backtracking",
    "DualAveraging",
    "ModelAverage",
    "Momentum",
    "Nesterov",
    "ProximalGradient",
    "QuasiNewton",
    "box",
    "inverse_time",
    "l2_ball",
    "power",
    "soft_threshold",
]
