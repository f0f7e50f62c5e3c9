"""Decentralized training: nodes that know a part of the data step in workers and talk to a few neighbours.

No worker sees all data and the driver sees no model before the end: states and mail are objects in the store. The same
rounds give the same models on threads, on the simulated clock and on Lambda.
"""

import numpy as np

import serverless_gc as sgc
from serverless_gc.inject import Faults, Stragglers

rng = np.random.default_rng(0)
X = rng.standard_normal((800, 10))
truth = rng.standard_normal(10)
y = (rng.random(800) < 1 / (1 + np.exp(-X @ truth))).astype(float)
objective = {"loss": "logistic", "l2": 1e-2, "batch": 50, "seed": 1}


def rate(k):
    return 4.0 / (1 + 0.1 * k)


# Eight nodes, one partition each. In each round a node hands half of its mass to one other.
def push(session, **more):
    data = session.encode(X, y, code="ignore-stragglers", n_workers=8)
    return sgc.minimize_decentralized(data, np.zeros(10), method="push-sum", lr=rate, rounds=40, **objective, **more)


with sgc.Session("local") as s:
    fit = push(s)
    best = sgc.minimize(
        s.encode(X, y, code="polar"), np.zeros(10), loss="logistic", l2=1e-2, reduction="mean", max_rounds=300
    )
print(fit.summary())
print(f"distance from the minimum over all data: {np.linalg.norm(fit.w - best.w):.3f}\n")

# Lost replies and failures change the account, not one bit of a model.
with sgc.Session("local", inject=Faults(lose_reply=0.1, fail=0.02)) as s:
    stormy = push(s)
print(f"with faults: {stormy.report.retries} retries, {stormy.report.recovered} lost replies recovered")
assert stormy.models.tobytes() == fit.models.tobytes()

# Who waits for whom: everybody for the mail of the last round, or for that of two or eight rounds before it.
for tau in (0, 2, 8):
    with sgc.Session("simulated", inject=Stragglers(fraction=0.05, slowdown=20)) as s:
        late = push(s, tau=tau)
    excess = np.linalg.norm(late.w - best.w)
    print(f"tau={tau}: {late.account.seconds:5.1f} simulated s, {excess:.3f} from the minimum")

assert np.linalg.norm(fit.w - best.w) < 0.2 * np.linalg.norm(best.w)
