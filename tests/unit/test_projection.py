"""Projection before a run: what cannot fit is refused before anything is stored, with what would fit."""

import re
from dataclasses import replace

import boto3
import numpy as np
import pytest
import scipy.sparse as sp

import serverless_gc as sgc
from serverless_gc.encode import as_source
from serverless_gc.encode.projection import RUNTIME_BYTES, check_fits, need_of
from serverless_gc.errors import LimitError
from serverless_gc.limits import Limits
from serverless_gc.store import MemoryStore
from serverless_gc.store.wrappers import CountingStore

FLOAT = np.dtype(np.float64)


def mds(n, k):
    return sgc.codes.get("mds", n_workers=n, k=k)


def test_what_a_task_needs():
    need = need_of(as_source(np.ones((1000, 40))), mds(8, 6), axis=0, columns=3, dtype=FLOAT)
    assert (need.block, need.operand, need.result) == (167 * 40 * 8, 40 * 3 * 8, 167 * 3 * 8)
    assert need.memory == RUNTIME_BYTES + need.block + need.operand + need.result
    other = need_of(as_source(np.ones((1000, 40))), mds(8, 6), axis=1, dtype=np.dtype(np.float32))
    assert (other.block, other.operand, other.result) == (7 * 1000 * 4, 1000 * 8, 7 * 8)


def test_a_code_that_leaves_columns_out_needs_its_share_of_them():
    code = sgc.codes.get("short-dot", n_workers=6, k=2)  # two columns of three
    need = need_of(as_source(np.ones((1000, 42))), code, axis=0, columns=3, dtype=FLOAT)
    assert (need.block, need.operand, need.whole) == (500 * 28 * 8, 28 * 3 * 8, 42 * 3 * 8)
    wide = as_source(np.ones((4, 60_000)))
    task = need_of(wide, code, axis=0, dtype=FLOAT)
    assert task.memory == RUNTIME_BYTES + 40_000 * 8 * 2 + 40_000 * 8 + 2 * 8
    exactly = Limits(function_bytes=task.memory)
    check_fits([task], wide, code, exactly)
    with pytest.raises(LimitError, match="of memory"):
        check_fits([need_of(wide, mds(6, 2), axis=0, dtype=FLOAT)], wide, mds(6, 2), exactly)
    with pytest.raises(LimitError, match=r"one operand would be 468\.8 KiB"):
        check_fits([replace(task, block=0)], wide, code, Limits(object_bytes=479_999))


def test_sparse_blocks_are_projected_from_their_entries():
    X = sp.random_array((4000, 500), density=0.001, rng=np.random.default_rng(0), format="csr")
    need = need_of(as_source(X), sgc.codes.get("replication", n_workers=8, k=4), axis=0, dtype=FLOAT)
    assert need.block < 2 * 12 * X.nnz / 4


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(function_bytes=65 * 2**20), "of memory .*the function has 65 MiB"),
        (Limits(object_bytes=400_000), "one block would be 781.2 KiB, the largest object is 390.6 KiB"),
        (Limits(function_timeout=0.001), "read for 0.00802 s at best, the function may run for 0.001 s"),
    ],
    ids=["memory", "object", "time"],
)
def test_refused_with_limit_and_value_and_nothing_is_stored(limits, said):
    store = CountingStore(MemoryStore())
    X = np.ones((8000, 50) if "memory" in said else (1000, 200))
    with sgc.Session(store=store, limits=limits) as s, pytest.raises(LimitError, match=said) as refused:
        s.encode(X, code="mds", n_workers=4, k=2)
    assert "Nothing was stored" in str(refused.value)
    assert store.requests["put"] == 0


def test_what_is_named_as_fitting_fits_and_the_next_smaller_does_not():
    X, limits = np.ones((8000, 50)), Limits(function_bytes=65 * 2**20)
    source = as_source(X)
    with pytest.raises(LimitError) as refused:
        check_fits([need_of(source, mds(4, 2), axis=0, dtype=FLOAT)], source, mds(4, 2), limits)
    k, n = map(int, re.search(r"k=(\d+) with n_workers=(\d+) would fit", str(refused.value)).groups())
    assert n == 2 * k
    check_fits([need_of(source, mds(n, k), axis=0, dtype=FLOAT)], source, mds(n, k), limits)
    with pytest.raises(LimitError):
        check_fits([need_of(source, mds(n, k - 1), axis=0, dtype=FLOAT)], source, mds(n, k - 1), limits)


def test_where_the_operand_alone_is_too_large_no_k_helps():
    source = as_source(np.ones((4, 2**18)))
    with pytest.raises(LimitError, match="No k helps"):
        check_fits(
            [need_of(source, mds(4, 2), axis=0, dtype=FLOAT)], source, mds(4, 2), Limits(function_bytes=RUNTIME_BYTES)
        )


def test_both_products_are_projected_before_the_first_is_stored():
    """The rows fit, the columns of the gradient's second product do not."""
    store = CountingStore(MemoryStore())
    X = np.ones((3000, 10))
    limits = Limits(object_bytes=20_000)
    with sgc.Session(store=store, limits=limits) as s:
        s.encode(X, code="mds", n_workers=16, k=15)
        before = store.requests["put"]
        with pytest.raises(LimitError, match="blocks of columns"):
            s.encode(X, np.ones(3000), code="mds", n_workers=16, k=15)
        assert store.requests["put"] == before


def test_the_deployed_functions_own_memory_counts(deployed_worker):
    """A function of 256 MB, asked because the blocks are no small ones."""
    with deployed_worker.activated():
        client = boto3.client("lambda", region_name="us-east-1")
        client.update_function_configuration(FunctionName=deployed_worker.function, MemorySize=256)
        try:
            X = np.broadcast_to(np.ones(1), (4000, 8000))  # 256 MB
            with sgc.Session("aws") as s, pytest.raises(LimitError, match=r"the function has 256 MiB.*k=2 with"):
                s.encode(X, code="uncoded", n_workers=1)
        finally:
            client.update_function_configuration(FunctionName=deployed_worker.function, MemorySize=1769)
            client.close()
