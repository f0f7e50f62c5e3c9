"""Optimizers: what to do with an answer. Pure step rules and iterations, without I/O."""

from serverless_gc.optim.first_order import SGD, Adam, AMSGrad, DualAveraging, ModelAverage, Momentum, Nesterov
from serverless_gc.optim.proximal import FISTA, ProximalGradient, box, l2_ball, soft_threshold
from serverless_gc.optim.schedules import inverse_time, power

__all__ = [
    "FISTA",
    "SGD",
    "AMSGrad",
    "Adam",
    "DualAveraging",
    "ModelAverage",
    "Momentum",
    "Nesterov",
    "ProximalGradient",
    "box",
    "inverse_time",
    "l2_ball",
    "power",
    "soft_threshold",
]
