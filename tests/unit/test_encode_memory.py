"""Encoding streams: what it needs beyond the matrix and the blocks it gives is less than a block for each core."""

import tracemalloc

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.encode import encode_rows, scan
from serverless_gc.encode.sources import as_source

CORES = 2
"""Fewer than this test ever runs on."""

CODES = [
    ("ldpc", {"n_workers": 6, "k": 4}),
    ("local-parity", {"n_workers": 9, "k": 4}),
    ("mds", {"n_workers": 6, "k": 4}),
    ("polar", {"n_workers": 8, "k": 4}),
    ("polar", {"n_workers": 8, "k": 4, "systematic": False}),
    ("product", {"n_workers": 9, "k": 4}),
    ("replication", {"n_workers": 8, "k": 4}),
    ("rotation", {"n_workers": 3, "k": 4}),
    ("short-dot", {"n_workers": 6, "k": 4}),
    ("lt", {"n_workers": 2, "k": 4}),
]


@pytest.mark.parametrize("place", ["memory", "file"])
@pytest.mark.parametrize(("name", "params"), CODES, ids=str)
def test_working_memory(name, params, place, tmp_path):
    matrix = np.random.default_rng(0).standard_normal((4 * 2560, 1024))  # blocks of 20 MiB, strips are 32 MiB at most
    block = matrix.nbytes // 4
    if place == "file":
        np.save(tmp_path / "x.npy", matrix)
        matrix = np.load(tmp_path / "x.npy", mmap_mode="r")
    code, source = get(name, **params), as_source(matrix)
    scanned = scan(source)
    tracemalloc.start()
    try:
        made = {id(array): array for _, array in encode_rows(source, code, scanned=scanned, max_bytes=2**40)}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    given = sum(array.nbytes for array in made.values() if not np.shares_memory(array, matrix))
    assert given >= block * (code.n_messages - code.k if name != "replication" else 0)
    assert peak - given < CORES * block
