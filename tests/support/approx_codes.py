"""Approximate gradient codes small enough to try every set of arrivals."""

import itertools

import numpy as np

from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.bernoulli import BernoulliCode, RegularizedBernoulliCode
from serverless_gc.codes.gradient.bibd import BIBDCode
from serverless_gc.codes.gradient.block_model import StochasticBlockCode
from serverless_gc.codes.gradient.erasure_head import ErasureHeadCode
from serverless_gc.codes.gradient.expander import ExpanderCode
from serverless_gc.codes.gradient.graph import GraphCode
from serverless_gc.codes.gradient.heterogeneous import HeterogeneousCode
from serverless_gc.codes.gradient.ignore import IgnoreStragglersCode
from serverless_gc.codes.gradient.product import ProductGradientCode
from serverless_gc.codes.gradient.soft_bibd import SoftBIBDCode

TRIANGLE = {"code": "graph", "n_workers": 3, "graph": "cycle"}
PAIRS = {"code": "erasurehead", "n_workers": 2, "load": 2}
CASES = {
    "ignore": lambda: IgnoreStragglersCode(6, 6, wait=4),
    "erasurehead": lambda: ErasureHeadCode(8, 8, load=2),
    "erasurehead-stacked": lambda: ErasureHeadCode(6, 4, load=3, layout="stacked"),
    "bgc": lambda: BernoulliCode(8, 8, load=2.5, seed=4),
    "bgc-wide": lambda: BernoulliCode(7, 10, load=3, seed=1),
    "rbgc": lambda: RegularizedBernoulliCode(8, 8, load=2, seed=2),
    "sbc": lambda: StochasticBlockCode(8, 8, load=2, within=0.7, seed=3),
    "expander": lambda: ExpanderCode(8, 8, seed=1),
    "expander-margulis": lambda: ExpanderCode(9, 9, graph="margulis"),
    "bibd": lambda: BIBDCode(7),
    "bibd-affine": lambda: BIBDCode(4),
    "bibd-affine-9": lambda: BIBDCode(9, wait=5),
    "bibd-reversed": lambda: BIBDCode(6, reverse=True),
    "bibd-dual": lambda: BIBDCode(7, reverse=True),
    "bibd-given": lambda: BIBDCode(design=[[1, 1, 0], [1, 0, 1], [0, 1, 1]]),
    "soft-bibd": lambda: SoftBIBDCode(8, 8, load=3, proposals=200),
    "product": lambda: ProductGradientCode(outer=TRIANGLE, inner=TRIANGLE),
    "product-mixed": lambda: ProductGradientCode(outer=PAIRS, inner={"code": "bibd", "n_workers": 4}),
    "graph": lambda: GraphCode(9, 6, seed=2),
    "graph-cycle": lambda: GraphCode(8, graph="cycle"),
    "graph-given": lambda: GraphCode(graph=[[1, 0], [1, 2], [2, 0], [3, 0], [3, 1], [2, 3]]),
    "heterogeneous": lambda: HeterogeneousCode(5, 6, p=[0.1, 0.4, 0.2, 0.0, 0.3]),
}


def subsets(n, sizes=None):
    for size in range(n + 1) if sizes is None else sizes:
        yield from itertools.combinations(range(n), size)


def generic(code):
    """The same matrix, decoded and tracked by nothing but linear algebra."""
    return LinearGradientCode(code.generator, exact=code.exact)


def errors(code, stragglers, method="optimal"):
    """Errors for every set of so many stragglers."""
    n = code.n_workers
    sets = itertools.combinations(range(n), n - stragglers)
    return np.array([code.weights(arrived, method).error for arrived in sets])


def mean_within(samples, expected, sigmas=3.0, extra=0.0):
    """Whether a sample mean agrees with a value that is itself known up to ``extra``."""
    samples = np.asarray(samples)
    spread = samples.std(ddof=1) / np.sqrt(len(samples))
    return abs(samples.mean() - expected) <= sigmas * np.hypot(spread, extra)


def random_errors(code, arrived, trials, seed, method="optimal"):
    rng = np.random.default_rng(seed)
    n = code.n_workers
    return [code.weights(rng.permutation(n)[:arrived].tolist(), method).error for _ in range(trials)]
