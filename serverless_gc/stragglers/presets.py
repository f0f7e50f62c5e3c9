"""Laws after published figures of Lambda jobs: for tests and experiments, not claims about today's service."""

from __future__ import annotations

from serverless_gc.stragglers.families import LogNormal
from serverless_gc.stragglers.lambda_like import LambdaLike
from serverless_gc.stragglers.laws import Pareto
from serverless_gc.stragglers.mixtures import Mixture

__all__ = ["lambda_heavy", "lambda_mild", "lambda_short"]


def lambda_heavy() -> Mixture:
    """Tasks of 40 s, 5 % of them above 100 s with a Pareto tail: after figure 1 of OverSketch (Gupta et al. 2018).

    The exponent follows from 5 % above 100 s and 2 of 3000 above 375 s: ``log(75) / log(3.75)``.

    Examples
    --------
    >>> law = lambda_heavy()
    >>> round(law.mean_order_stat(2820, 3000)), round(law.mean_order_stat(2880, 3000))
    (51, 107)
    """
    return Mixture((LogNormal(40.0, 0.1), Pareto(100.0, 3.27)), (0.95, 0.05))


def lambda_mild() -> Mixture:
    """Tasks of 135 s, 2 % of them of 180 s and more: after the figure of Gupta et al. 2020 with 3600 workers."""
    return Mixture((LogNormal(135.0, 0.05), LogNormal(180.0, 0.1, folded=True)), (0.98, 0.02))


def lambda_short() -> LambdaLike:
    """Many short steps: warm start 25 ms, 1 % cold starts of 0.5 s, store requests of 30 ms, 0.1 s of computation."""
    return LambdaLike()
