"""Cost of one arrival in the tracker of every registered code, as additions to a set in the same run.

The goal is 5 microseconds.
"""

import numpy as np
import pytest
from measured import additions, goal_in_additions

from serverless_gc.codes import available, get

GOAL_US = 5.0
REPEATS = 10


@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
@pytest.mark.parametrize("name", [info.name for info in available() if info.kind == "data"])
def test_arrival(benchmark, hold, name, n):
    if name == "linear":
        if n > 64:
            pytest.skip("the reference takes O(k * rank) per arrival: it is for small codes and for tests")
        code = get(name, generator=get("mds", n_workers=n).generator)
    else:
        try:
            code = get(name, n_workers=n)
        except ModuleNotFoundError as missing:
            pytest.skip(f"{missing.name} is not there")
    order = np.random.default_rng(0).permutation(n).tolist()

    def arrivals(tracker):
        for count, i in enumerate(order, 1):
            if tracker.add(i):
                return count
        return n

    count = arrivals(code.tracker())

    def measure():
        trackers = [code.tracker() for _ in range(REPEATS)]
        return additions(lambda: arrivals(trackers.pop()), REPEATS, count)

    benchmark.pedantic(arrivals, setup=lambda: ((code.tracker(),), {}), rounds=3)
    hold(f"{name} tracker, n={n}: an arrival in additions to a set", measure, at_most=goal_in_additions(GOAL_US))
