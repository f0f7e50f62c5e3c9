"""Mean completion times of multi-message codes, from their trackers and simulated prefix arrivals.

n = K = 20 workers; a subtask of worker i takes 0.01 s + Exp(10) s, the same for all its subtasks in one trial; message
j is there after j of them. 400 trials (the figures come from 20,000): agreement within three standard errors, and the
figures' own rounding.
"""

import numpy as np
import pytest

from serverless_gc.codes import get

N, TRIALS = 20, 400


def completions(code, make_tracker):
    rng = np.random.default_rng(7)
    placed = [code.placement(i) for i in range(N)]
    r = len(placed[0])
    times, counts = np.empty(TRIALS), np.empty(TRIALS)
    for trial in range(TRIALS):
        ready = np.outer(0.01 + rng.exponential(0.1, N), np.arange(1, r + 1)).ravel()
        tracker = make_tracker()
        for count, i in enumerate(np.argsort(ready, kind="stable").tolist(), 1):
            if tracker.add(placed[i // r][i % r]):
                times[trial], counts[trial] = ready[i], count
                break
    return times, counts


def agrees(values, expected, rounding):
    error = values.std() / np.sqrt(len(values))
    return abs(values.mean() - expected) <= 3 * error + rounding


TABLE = [
    ("uc-mmc", 2, 0.248, 31),
    ("uc-mmc", 3, 0.205, 37),
    ("uc-mmc", 4, 0.182, 40),
    ("uc-mmc", 5, 0.168, 42),
    ("lcc-mmc", 2, 0.547, 39),
    ("lcc-mmc", 3, 0.212, 39),
    ("lcc-mmc", 4, 0.168, 39),
    ("lcc-mmc", 5, 0.149, 39),
    ("gc-mmc", 2, 0.313, 34),
    ("gc-mmc", 3, 0.283, 44),
    ("gc-mmc", 4, 0.251, 50),
    ("gc-mmc", 5, 0.199, 48),
]


@pytest.mark.parametrize(("name", "r", "seconds", "messages"), TABLE)
def test_completion_times_of_the_literature(name, r, seconds, messages):
    code = get(name, n_workers=N, k=N, r=r, **({"clusters": 4} if name == "gc-mmc" else {}))
    make = code.level_tracker if name == "gc-mmc" else code.tracker  # the published rule counts levels
    times, counts = completions(code, make)
    assert agrees(times, seconds, 0.0005)
    assert agrees(counts, messages, 1.0)  # figures are given in whole messages, rounded or cut


@pytest.mark.parametrize("r", [2, 4])
def test_the_exact_test_closes_earlier_than_counting_levels(r):
    code = get("gc-mmc", n_workers=N, k=N, r=r, clusters=4)
    exact, counted = completions(code, code.tracker)[0], completions(code, code.level_tracker)[0]
    assert (exact <= counted + 1e-12).all()
    assert exact.mean() < 0.85 * counted.mean()
