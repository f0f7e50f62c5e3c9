"""Predicted cut-offs: results per second against waiting for all, the best fixed number, and an oracle."""

import numpy as np
import pytest

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.policies import Cutoff, KalmanLog
from serverless_gc.types import Timing

N = 20
COUNTS = np.arange(1, N + 1)


class Given:
    """Times known in advance: entry ``[round, slot]``."""

    def __init__(self, times):
        self.times = times

    def sample(self, slot, k, work, rng):  # noqa: ARG002
        return Timing(compute=self.times[k, slot])


def correlated(rounds, rng):
    """Log times follow an autoregression; now and then half of the slots are three times slower for a while."""
    level, slow = 0.35 * rng.standard_normal(N), False
    times = np.empty((rounds, N))
    for k in range(rounds):
        level = 0.95 * level + 0.35 * np.sqrt(1 - 0.95**2) * rng.standard_normal(N)
        slow ^= rng.random() < 0.02
        times[k] = np.exp(level + 0.08 * rng.standard_normal(N))
        times[k, : N // 2] *= 3.0 if slow else 1.0
    return times


def rate(policy, times):
    engine = Engine(policy, N, keep_records=False)
    host = VirtualHost(Given(times))
    used = sum(len(o.arrivals) for o in host.simulate(engine, len(times)))
    return used / host.now


def best_static(times):
    return np.max(COUNTS[9:] / np.sort(times, axis=1).mean(axis=0)[9:])


def waiting(times):
    return N / times.max(axis=1).mean()


def oracle(times):
    ordered = np.sort(times, axis=1)
    best = 9 + np.argmax(COUNTS[9:] / ordered[:, 9:], axis=1)
    return np.sum(best + 1) / ordered[np.arange(len(times)), best].sum()


def test_following_each_slot_beats_the_best_fixed_number():
    times = correlated(2000, np.random.default_rng(0))
    ours = rate(Cutoff(KalmanLog()), times)
    assert oracle(times) > ours >= 1.08 * best_static(times)
    assert best_static(times) >= 1.2 * waiting(times)


@pytest.mark.parametrize("law", ["lognormal", "shifted-exponential"])
def test_nothing_is_lost_where_there_is_nothing_to_follow(law):
    rng = np.random.default_rng(1)
    shape = (1500, N)
    times = np.exp(0.3 * rng.standard_normal(shape)) if law == "lognormal" else 1 + rng.standard_exponential(shape)
    ratio = rate(Cutoff(KalmanLog()), times) / best_static(times)
    assert ratio >= 0.95


def test_rare_large_stragglers_are_not_what_the_filter_models():
    rng = np.random.default_rng(2)
    times = np.exp(0.1 * rng.standard_normal((1500, N))) * np.where(rng.random((1500, N)) < 0.05, 10.0, 1.0)
    ours = rate(Cutoff(KalmanLog()), times)
    assert ours > 3 * waiting(times)
    assert ours < best_static(times)
