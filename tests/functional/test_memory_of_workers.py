"""What workers in this process remember of blocks ends with the data set that the blocks belong to."""

import gc
import tracemalloc

import numpy as np
import pytest

import serverless_gc as sgc

MEGABYTE = 2**20


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize(("code", "stored"), [("mds", 5.4), ("frc", 2.0)])
def test_fresh_data_in_a_loop_does_not_pile_up(backend, code, stored):
    rng = np.random.default_rng(0)

    def one_more():
        X = rng.standard_normal((16384, 16))  # 2 MiB: so many are stored of it
        sgc.coded_gradient(X, X[:, 0], np.zeros(16), code=code, n_workers=4, backend=backend)

    for _ in range(6):  # as many as are kept for the next call, and then some
        one_more()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(12):  # each takes the place of one that was allocated before
            one_more()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 6 * stored * MEGABYTE  # those of four data sets and what is under way, not those of twelve


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_closing_a_data_set_frees_its_blocks(backend):
    X = np.random.default_rng(0).standard_normal((65536, 16))  # 8 MiB
    w = np.zeros(16)
    with sgc.Session(backend) as s:
        s.encode(X[:64], X[:64, 0], code="mds", n_workers=4).gradient(w)  # what the session itself needs
        gc.collect()
        tracemalloc.start()
        try:
            data = s.encode(X, X[:, 0], code="mds", n_workers=4)
            data.gradient(w)
            holding, _ = tracemalloc.get_traced_memory()
            data.close()
            del data
            gc.collect()
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert holding > 16 * MEGABYTE
    assert left < 4 * MEGABYTE
