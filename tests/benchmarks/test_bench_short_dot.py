"""Short-Dot: what it saves for each worker against MDS, and what encoding costs in copies of what it gives.

Run with ``pytest --benchmark-only -s tests/benchmarks/test_bench_short_dot.py``.
"""

import sys
import time

import numpy as np

from serverless_gc.codes import get
from serverless_gc.encode import as_source, encode_rows, scan

ROWS, COLUMNS = 1200, 20_000
CODE = get("short-dot", n_workers=16, k=4, threshold=12)  # half of the columns each
GOAL = 8  # copies, on two idle cores: each class of columns is a strided read, a small product and a strided write


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def test_encoding_and_shares(benchmark, capsys):
    source = as_source(np.random.default_rng(0).standard_normal((ROWS, COLUMNS)))
    scanned, made, copies = scan(source), [], []

    def encode():
        made[:] = [block for _, block in encode_rows(source, CODE, scanned=scanned)]

    def copy():
        copies.append(seconds(lambda: [block.copy() for block in made]))

    encode()
    benchmark.pedantic(encode, setup=copy, rounds=5, iterations=1)
    ratio = float(np.median(benchmark.stats.stats.data) / np.median(copies))
    whole = COLUMNS * 8
    share = max(block.shape[1] for block in made) * 8 / whole
    benchmark.extra_info.update(ratio_to_copy=round(ratio, 2), goal=GOAL, share_of_operand=share)
    with capsys.disabled():
        sys.stdout.write(
            f"\nshort-dot(16, 4) of any 12: {share:.0%} of x and of a block for each worker; "
            f"encoding {ratio:.1f} x copy, goal {GOAL}\n"
        )
    assert share == CODE.density == 0.5
