"""Optimizers: what to do with an answer. Pure step rules and iterations, without I/O."""

from serverless_gc.optim.first_order import SGD, Adam, AMSGrad, DualAveraging, ModelAverage, Momentum, Nesterov
from serverless_gc.optim.lbfgs import LBFGS
from serverless_gc.optim.line_search import Backtracking
from serverless_gc.optim.natural import NaturalGradient, learned_precision
from serverless_gc.optim.proximal import FISTA, ProximalGradient, box, l2_ball, soft_threshold
from serverless_gc.optim.quasi_newton import QuasiNewton
from serverless_gc.optim.schedules import inverse_time, power
from serverless_gc.optim.searched import Searched
from serverless_gc.optim.sketched import SketchedNewton

__all__ = [
    "FISTA",
    "LBFGS",
    "SGD",
    "AMSGrad",
    "Adam",
    "Backtracking",
    "DualAveraging",
    "ModelAverage",
    "Momentum",
    "NaturalGradient",
    "Nesterov",
    "ProximalGradient",
    "QuasiNewton",
    "Searched",
    "SketchedNewton",
    "box",
    "inverse_time",
    "l2_ball",
    "learned_precision",
    "power",
    "soft_threshold",
]
