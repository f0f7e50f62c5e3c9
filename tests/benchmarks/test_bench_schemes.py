"""What the schemes cost the driver: policies next to plain K-sync, compressors next to a copy of the array."""

import time

import numpy as np
import pytest

from serverless_gc.aggregate import GradientTable, Mean, PrecisionWeightedMean, WeightedMean
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.policies import (
    AdaSync,
    Anytime,
    Cutoff,
    DitheredUniform,
    FreshK,
    GlobalBatch,
    Groups,
    KalmanLog,
    KSync,
    Sign,
    StochasticRounding,
    TopK,
)
from serverless_gc.stragglers import ShiftedExponential
from serverless_gc.transforms import DelayCompensation, GapAware, StepLimit
from serverless_gc.types import Arrival, TaskSpec, UpdateContext

N, ROUNDS = 64, 100
POLICIES = {
    "adasync": lambda: AdaSync(48, interval=1.0),
    "anytime": lambda: Anytime(1.0),
    "cutoff-kalman": lambda: Cutoff(KalmanLog()),
    "fresh-k": lambda: FreshK(48),
    "global-batch": lambda: GlobalBatch(48),
    "groups": lambda: Groups([range(4 * g, 4 * g + 4) for g in range(16)]),
}


def simulate(policy):
    engine = Engine(policy, N, keep_records=False)
    engine.loss_estimate = 1.0
    outcomes = list(VirtualHost(ShiftedExponential(0.1, 1.0)).simulate(engine, ROUNDS))
    return sum(o.counts.issued + o.counts.used for o in outcomes)


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.parametrize("name", POLICIES)
def test_policy_per_task_event(benchmark, name):
    """The ratio is to plain K-sync, per issue or arrival."""
    events = simulate(KSync(48))
    plain = min(timed(lambda: simulate(KSync(48))) for _ in range(5)) / events
    events = benchmark.pedantic(lambda: simulate(POLICIES[name]()), rounds=5, warmup_rounds=1)
    ours = benchmark.stats.stats.min / events
    benchmark.extra_info.update(microseconds_per_event=ours * 1e6, ratio_to_ksync=ours / plain)


@pytest.mark.parametrize(
    "compressor", [DitheredUniform(0.5), StochasticRounding(0.5), Sign(), TopK(10_000)], ids=lambda c: type(c).__name__
)
def test_compress_and_restore(benchmark, compressor):
    """A million numbers there and back; the ratio is to one copy."""
    g = np.random.default_rng(0).standard_normal(1_000_000)
    copy = min(timed(g.copy) for _ in range(10))
    benchmark.pedantic(lambda: compressor.decode(compressor.encode(g, 1), 1), rounds=3, warmup_rounds=1)
    benchmark.extra_info.update(
        ratio_to_copy=benchmark.stats.stats.min / copy, bits_per_number=8 * len(compressor.encode(g, 1)) / g.size
    )


CORRECTIONS = {
    "gap-aware": (GapAware(0.1), Mean()),
    "step-limit": (StepLimit(1.0, 0.1), Mean()),
    "delay": (DelayCompensation(1.0), WeightedMean()),
    "precision": (None, PrecisionWeightedMean()),
    "table": (None, GradientTable(32)),
}


@pytest.mark.parametrize("name", CORRECTIONS)
def test_correct_and_aggregate(benchmark, name):
    """An update of 32 stale gradients of 100,000 numbers; the ratio is to one pass over them, ``np.mean``."""
    transform, aggregator = CORRECTIONS[name]
    rng = np.random.default_rng(0)
    bodies, x, then = rng.standard_normal((32, 100_000)), np.zeros(100_000), rng.standard_normal(100_000)
    ctx = UpdateContext(x, 1, 0.0, rng, lambda _: then)
    arrivals = [
        Arrival(TaskSpec(f"0-{i}", i, 0, payload={"group": i}), 0.0, 1.0, 8.0, body, {"sum_of_squares": 9 * body**2})
        for i, body in enumerate(bodies)
    ]
    bare = min(timed(lambda: bodies.mean(axis=0)) for _ in range(5))

    def update():
        corrected = arrivals if transform is None else [transform(a, ctx) for a in arrivals]
        return aggregator.combine(corrected, ctx)

    benchmark.pedantic(update, rounds=5, warmup_rounds=1)
    benchmark.extra_info["ratio_to_mean"] = benchmark.stats.stats.min / bare
