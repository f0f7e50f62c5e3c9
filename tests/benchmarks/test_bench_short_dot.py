"""Short-Dot: what it saves for each worker against MDS, and what encoding costs in copies of what it gives.

Run with ``pytest --benchmark-only -s tests/benchmarks/test_bench_short_dot.py``.
"""

import numpy as np
from measured import ratio

from serverless_gc.codes import get
from serverless_gc.encode import as_source, encode_rows, scan

ROWS, COLUMNS = 1200, 20_000
CODE = get("short-dot", n_workers=16, k=4, threshold=12)  # half of the columns each
GOAL = 8  # copies, on two idle cores: each class of columns is a strided read, a small product and a strided write


def test_encoding_and_shares(benchmark, hold):
    source = as_source(np.random.default_rng(0).standard_normal((ROWS, COLUMNS)))
    scanned = scan(source)

    def encode():
        return [block for _, block in encode_rows(source, CODE, scanned=scanned)]

    made = benchmark.pedantic(encode, rounds=3)
    share = max(block.shape[1] for block in made) / COLUMNS
    hold("short-dot (16, 4) of any 12: share of the operand for each worker", share, at_most=0.5, tolerance=1)
    hold(
        "short-dot (16, 4) encode, in copies of the coded bytes",
        lambda: ratio(encode, lambda: [block.copy() for block in made]),
        at_most=GOAL,
    )
    assert share == CODE.density
