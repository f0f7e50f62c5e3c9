"""Many calls: nothing is encoded twice, nothing is left behind, from any thread, loop or process."""

import asyncio
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.api import KEPT_DATA_SETS
from serverless_gc.session import default_session
from serverless_gc.store import CountingStore, MemoryStore


def problem(seed=0, n=200, p=24):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)), rng.standard_normal(n), rng.standard_normal(p)


def stored(store):
    async def sizes():
        return {info.key: info.size async for info in store.list("")}

    return asyncio.run(sizes())


def blocks(store):
    return {key for key in stored(store) if "/data/" in key}


def test_second_call_with_the_same_data_uploads_nothing():
    X, y, w = problem()
    store = CountingStore(MemoryStore())
    with sgc.Session(store=store):
        sgc.coded_gradient(X, y, w)
        written = blocks(store)
        assert len(written) == 2 * (16 + 1)  # rows and columns: a block per worker and a manifest
        sent = store.bytes["put"]
        sgc.coded_gradient(X.copy(order="F"), y, w + 1)
        assert blocks(store) == written
        assert store.bytes["put"] - sent < sent / 4  # the workers' results, no blocks
        X[3, 4] += 1.0  # changed in place: other content, encoded again
        g = sgc.coded_gradient(X, y, w)
        assert len(blocks(store)) == 2 * len(written)
    np.testing.assert_allclose(g, X.T @ (X @ w - y), rtol=1e-10)


def test_closing_removes_every_object():
    X, y, w = problem()
    store = MemoryStore()
    with sgc.Session(store=store, inject=sgc.inject.Stragglers(fraction=0.2, slowdown=5, base=0.001)) as s:
        s.encode(X, y, code="polar").gradient(w)

    assert stored(store) == {}


def test_two_hundred_iterations_leave_threads_sockets_and_memory_where_they_were():
    X, y, w = problem()
    store = MemoryStore()
    with sgc.Session(store=store) as s:
        data = s.encode(X, y, code="mds", n_workers=12, k=9)
        for _ in range(20):
            data.gradient(w)

        def state():
            gc.collect()
            return threading.active_count(), len(os.listdir("/proc/self/fd")), sum(stored(store).values())

        before = state()
        for _ in range(200):
            w = w - 1e-4 * data.gradient(w)
        after = state()
    assert after[0] == before[0]
    assert after[1] == before[1]
    assert after[2] <= before[2] * 1.01 + 20_000


LEAN = """
import sys, time
t = time.perf_counter(); import numpy; base = time.perf_counter() - t
t = time.perf_counter(); import serverless_gc; extra = time.perf_counter() - t
heavy = {"boto3", "botocore", "aiobotocore", "scipy", "cloudpickle", "pandas", "numba"} & set(sys.modules)
print(len(heavy), base, extra)
"""


def test_import_is_lean():
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=True)
    heavy, numpy_seconds, extra = map(float, done.stdout.split())
    assert heavy == 0
    assert extra < max(0.15, 2 * numpy_seconds)


def test_local_face_loads_no_aws_client():
    code = LEAN.replace("print(", "serverless_gc.coded_gradient(numpy.eye(4), numpy.ones(4), numpy.ones(4)); print(")
    code = code.replace("heavy = {", "serverless_gc.Session; heavy = {")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[0]) == 0


def test_a_closed_session_says_so():
    s = sgc.Session()
    data = s.encode(np.eye(4), np.ones(4))
    s.close()
    s.close()
    with pytest.raises(sgc.ServerlessGCError, match="closed"):
        data.gradient(np.ones(4))


def test_calls_without_a_session_keep_the_last_few_data_sets_only():
    session = default_session("local")

    def kept():
        return {key.split("/")[3] for key in blocks(background.run(session.resources()).store)}

    others = kept()  # some may be held by whoever used the session before
    for seed in range(KEPT_DATA_SETS + 3):
        X, y, w = problem(seed)
        np.testing.assert_allclose(sgc.coded_gradient(X, y, w), X.T @ (X @ w - y), rtol=1e-9)
    assert len(kept() - others) == KEPT_DATA_SETS
    held = session.encode(X, y)
    for seed in range(100, 100 + KEPT_DATA_SETS + 1):
        sgc.coded_gradient(*problem(seed))
    np.testing.assert_allclose(held.gradient(w), X.T @ (X @ w - y), rtol=1e-9)  # what somebody holds is not forgotten


def test_calls_go_on_after_somebody_closed_their_session():
    X, y, w = problem()
    sgc.coded_gradient(X, y, w)
    default_session("local").close()
    np.testing.assert_allclose(sgc.coded_gradient(X, y, w), X.T @ (X @ w - y), rtol=1e-9)
