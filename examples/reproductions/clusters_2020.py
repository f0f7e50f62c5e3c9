"""Buyukates, Ozfatura, Ulukus, Gunduz, "Gradient Coding with Dynamic Clustering", arXiv:2011.01922 and 2103.01206.

Stragglers stay slow for a while (Gilbert-Elliott). At one load, waiting for all but one worker is slowest; clusters of
four that each spare one are faster; forming them anew, late workers spread evenly, is fastest.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes import get
from serverless_gc.codes.gradient import StragglerPredictor

WORKERS, CLUSTERS, ROUNDS = 20, 5, 200
TO_SLOW, TO_FAST, FAST, SLOW = 0.05, 0.2, 10.0, 0.5


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    times: dict  # scheme -> seconds of every round
    seconds: dict
    slow_share: float
    burst: float


def states(rng):
    """Whether each worker is slow, round by round: shape ``(ROUNDS, WORKERS)``."""
    slow = rng.random(WORKERS) < TO_SLOW / (TO_SLOW + TO_FAST)
    chain = []
    for _ in range(ROUNDS):
        chain.append(slow)
        change = rng.random(WORKERS) < np.where(slow, TO_FAST, TO_SLOW)
        slow = slow ^ change
    return np.array(chain)


def completion(code, times):
    """Time of the arrival that makes the sum decodable."""
    tracker = code.tracker()
    for worker in np.argsort(times).tolist():
        if tracker.add(worker):
            return float(times[worker])
    raise AssertionError("all workers together decode")


def figures():
    rng = np.random.default_rng(1)
    slow = states(rng)
    times = (1.0 + rng.standard_exponential(slow.shape)) / np.where(slow, SLOW, FAST)
    whole = get("cyclic", n_workers=WORKERS, stragglers=1)
    static = get("clustered", n_workers=WORKERS, clusters=CLUSTERS, stragglers=1, inner="cyclic")
    moving = get("clustered", n_workers=WORKERS, clusters=CLUSTERS, stragglers=1, inner="cyclic", flexibility=CLUSTERS)
    predictor = StragglerPredictor(WORKERS)
    late = predictor.update([])
    found = {"one code": [], "static clusters": [], "dynamic clusters": []}
    for today in times:
        found["one code"].append(completion(whole, today))
        found["static clusters"].append(completion(static, today))
        found["dynamic clusters"].append(completion(moving.with_assignment(moving.assign(late)), today))
        late = predictor.update(np.flatnonzero(today > 2 * np.median(today) + 0.5).tolist())
    bursts = (np.diff(slow.astype(int), axis=0) == -1).sum()
    return Figures(
        {name: np.array(values) for name, values in found.items()},
        {name: float(np.mean(values)) for name, values in found.items()},
        float(slow.mean()),
        float(slow.sum() / bursts),
    )


def picture(found, path):
    running = {name: (range(ROUNDS), np.cumsum(values)) for name, values in found.times.items()}
    draw(
        path,
        f"Dynamic clusters 2020: {WORKERS} workers, load 2, slow in bursts",
        [
            Panel("mean", "seconds per iteration", bars=found.seconds),
            Panel("time so far", "seconds", running, x="iteration"),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
