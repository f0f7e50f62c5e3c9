"""Teng, Wood, "Bayesian Distributed Stochastic Gradient Descent", NeurIPS 2018: how many will be worth waiting for.

Run times are forecast and the step is cut off where gradients per second are most. The paper's deep generative model
is replaced by a small filter for each slot; where run times are not what it models, the best fixed number is better.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.policies import Cutoff, KalmanLog
from serverless_gc.types import Timing

N, SHOWN = 20, 150
COUNTS = np.arange(1, N + 1)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    rate: dict  # gradients per second by (law of run times, method)
    cut: dict  # number awaited in each of the first rounds of the correlated law


class Given:
    """Times known in advance: entry ``[round, slot]``."""

    def __init__(self, times):
        self.times = times

    def sample(self, slot, k, work, rng):  # noqa: ARG002 - the arguments of the protocol
        """Look up the time of one task."""
        return Timing(compute=self.times[k, slot])


def correlated_times(rounds, rng):
    """Log times follow an autoregression; now and then half of the slots are three times slower for a while."""
    level, slow = 0.35 * rng.standard_normal(N), False
    times = np.empty((rounds, N))
    for k in range(rounds):
        level = 0.95 * level + 0.35 * np.sqrt(1 - 0.95**2) * rng.standard_normal(N)
        slow ^= rng.random() < 0.02
        times[k] = np.exp(level + 0.08 * rng.standard_normal(N))
        times[k, : N // 2] *= 3.0 if slow else 1.0
    return times


def laws():
    rng = np.random.default_rng(1)
    shape = (1500, N)
    return {
        "correlated": correlated_times(2000, np.random.default_rng(0)),
        "lognormal": np.exp(0.3 * rng.standard_normal(shape)),
        "shifted exponential": 1 + rng.standard_exponential(shape),
        "rare stragglers": np.exp(0.1 * rng.standard_normal(shape)) * np.where(rng.random(shape) < 0.05, 10.0, 1.0),
    }


def predicted(times):
    """Gradients per second, and the number awaited in each round."""
    host = VirtualHost(Given(times))
    engine = Engine(Cutoff(KalmanLog()), N, keep_records=False)
    awaited = [len(outcome.arrivals) for outcome in host.simulate(engine, len(times))]
    return sum(awaited) / host.now, np.array(awaited)


def known(times):
    """Gradients per second, and the number awaited in each round, of whoever knows the times."""
    ordered = np.sort(times, axis=1)
    best = 9 + np.argmax(COUNTS[9:] / ordered[:, 9:], axis=1)
    return np.sum(best + 1) / ordered[np.arange(len(times)), best].sum(), best + 1


def figures():
    rate, cut = {}, {}
    for law, times in laws().items():
        ours, awaited = predicted(times)
        oracle, best = known(times)
        rate[law, "wait for all"] = N / times.max(axis=1).mean()
        rate[law, "best fixed number"] = np.max(COUNTS[9:] / np.sort(times, axis=1).mean(axis=0)[9:])
        rate[law, "forecast"], rate[law, "times known"] = ours, oracle
        if law == "correlated":
            cut = {"times known": best[:SHOWN], "forecast": awaited[:SHOWN]}
    return Figures(rate, cut)


def picture(found, path):
    laws = dict.fromkeys(law for law, _ in found.rate)
    relative = {law: found.rate[law, "forecast"] / found.rate[law, "best fixed number"] for law in laws}
    correlated = {method: rate for (law, method), rate in found.rate.items() if law == "correlated"}
    cut = {name: (np.arange(len(counts)), counts) for name, counts in found.cut.items()}
    draw(
        path,
        f"BDSGD 2018: {N} workers",
        [
            Panel("correlated run times", "gradients per second", bars=correlated),
            Panel("where steps are cut", "gradients awaited", x="step", lines=cut),
            Panel("forecast against the best fixed number", "ratio of gradients per second", bars=relative),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
