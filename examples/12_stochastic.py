"""Stochastic training: mini-batches in workers, and whose results an update waits for.

A scheme is a choice of plug-ins: when a round closes, what a task does, what becomes of its results. Each of these runs
on threads, on Lambda and, as here, on a simulated clock, which tells how long they would take.
"""

import numpy as np

import serverless_gc as sgc
from serverless_gc.aggregate import WeightedMean
from serverless_gc.inject import Stragglers
from serverless_gc.optim import Momentum
from serverless_gc.policies import Anytime, DitheredUniform

rng = np.random.default_rng(0)
X = rng.standard_normal((800, 10))
truth = rng.standard_normal(10)
y = (rng.random(800) < 1 / (1 + np.exp(-X @ truth))).astype(float)
objective = {"loss": "logistic", "l2": 1e-2}


def rate(k):
    return 2.0 / (1 + 0.05 * k)


with sgc.Session("local") as s:
    data = s.encode(X, y, code="ignore-stragglers", n_workers=8)
    best = sgc.minimize(data, np.zeros(10), reduction="mean", max_rounds=300, **objective).w


def train(scheme, **asked):
    """Train in simulated time; one task in ten takes ten times as long."""
    with sgc.Session("simulated", inject=Stragglers(fraction=0.1, slowdown=10)) as session:
        data = session.encode(X, y, code="ignore-stragglers", n_workers=8)
        fit = sgc.minimize_stochastic(
            data, np.zeros(10), scheme=scheme, **{"lr": rate, "batch": 20, "rounds": 80, **objective, **asked}
        )
    away = np.linalg.norm(fit.w - best) / np.linalg.norm(best)
    cost = fit.account
    print(f"{fit.method:<18} {cost.seconds:6.1f} s  {cost.billed_seconds:6.1f} s billed  {100 * away:5.1f} % away")
    return fit


wait = train("sync")
train("k-sync", k=6)
train("k-async", k=2)
train("gap-aware", rounds=200)
train("anytime-minibatch", compute_seconds=1.0, lr=1.0)
train("non-blocking", mini_batches=4, batch=5)
train("hybrid-federated", k=6, lr=0.2)
lazy = train("cada", weight=0.3, lr=0.05, batch=None)
print(f"CADA: {lazy.account.used} answers, of which {lazy.account.samples / 100:.0f} brought a gradient of 100 rows\n")

# Gradients in a few bits a number: unbiased, with an error whose variance is known.
small = train("sync", compressor=DitheredUniform(0.05))
print(f"{small.account.bytes_down} bytes came down instead of {wait.account.bytes_down}\n")

# A scheme of one's own: everybody computes for a second, the mean over all samples is stepped along with momentum.
mine = sgc.Scheme(name="mine", policy=Anytime(1.0, guard=5.0), aggregator=WeightedMean(), optimizer=Momentum(0.5))
fit = train(mine, rounds=50)
print(f"{fit.account.samples / 50:.0f} samples an update")

assert np.linalg.norm(fit.w - best) < 0.2 * np.linalg.norm(best)
assert small.account.bytes_down < wait.account.bytes_down
