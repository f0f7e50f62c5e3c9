"""Which code, how much redundancy, and what it costs: asked before anything is stored or billed."""

import numpy as np

import serverless_gc as sgc
from serverless_gc.codes import available, get
from serverless_gc.codes.threshold import arrivals_needed
from serverless_gc.plan import method, simulate

# What there is, as records.
exact = [info.name for info in available() if info.kind == "data" and info.exact]
print("exact codes for products:", ", ".join(exact))

# How many results a code waits for.
for name in ("replication", "mds", "polar", "product"):
    code = get(name, n_workers=64, k=32)
    found = arrivals_needed(code, trials=300)
    print(f"{name:<12} {found.mean:.1f} of {code.n_workers} results on average, {found.p95:.0f} in 95 % of rounds")

# How long that takes under a law of delay: rounds in virtual time, nothing is computed.
law = sgc.stragglers.parse_law("shifted-exponential:shift=1,rate=1")
for name in ("uncoded", "replication", "mds"):
    rounds = simulate(method(name, n_workers=64, k=32), law, rounds=200)
    print(f"{name:<12} {rounds.mean:.2f} s a round, p99 {rounds.p99:.2f} s, {rounds.billed.mean():.0f} s billed")

# And what to take, for a matrix of this size.
advice = sgc.recommend(1_000_000, 1000, n_workers=64, goal="p99")
print(advice)

# The choice is a code to encode with.
rng = np.random.default_rng(0)
A, x = rng.standard_normal((1000, 20)), rng.standard_normal(20)
with sgc.Session() as s:
    z = s.encode(A, code=advice.best.code).matvec(x)
assert np.allclose(z, A @ x)

# What cannot work is refused with the limit that it would break.
try:
    sgc.recommend(50_000_000, 20_000, n_workers=8)
except sgc.ServerlessGCError as error:
    print(error)
