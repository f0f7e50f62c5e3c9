"""Cost of one arrival in the tracker of every registered code; the goal is 5 microseconds."""

import sys

import numpy as np
import pytest

from serverless_gc.codes import available, get

GOAL_US = 5.0


def tell(capsys, text):
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


@pytest.mark.parametrize("n", [64, 256, 1024])
@pytest.mark.parametrize("name", [info.name for info in available() if info.kind == "data"])
def test_arrival(benchmark, capsys, name, n):
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
    benchmark.pedantic(arrivals, setup=lambda: ((code.tracker(),), {}), rounds=20, warmup_rounds=2)
    each = float(np.median(benchmark.stats.stats.data)) / count * 1e6
    benchmark.extra_info.update(us_per_arrival=round(each, 3), goal=GOAL_US)
    tell(capsys, f"{name}, n={n}: {each:.2f} us per arrival, goal {GOAL_US}")
