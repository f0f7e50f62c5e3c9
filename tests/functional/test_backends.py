"""The same gradients over S3 and Lambda (stood in for on this machine, nothing patched) and over processes."""

import asyncio
import dataclasses
import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from gradient_cases import CODES, LOSSES, close, layouts, problem, size

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.store import LocalStore

SESSIONS = ("aws", "aws-stragglers", "processes", "processes-stragglers")
ROWS = (4, 6, 7, 40)
SLOW = sgc.inject.Stragglers(fraction=0.15, slowdown=4, seed=1, base=0.005)


@pytest.fixture(scope="module", autouse=True)
def activated(running_aws):
    """Offline AWS for the whole module: its sessions outlive single tests, and each other in any order."""
    with running_aws.activated():
        yield


@pytest.fixture(scope="module", params=SESSIONS)
def session(request):
    """One session for all its tests, so that every matrix is encoded once."""
    name, _, slow = request.param.partition("-")
    with sgc.Session(name, inject=SLOW if slow else ()) as session:
        yield session, SESSIONS.index(request.param)
        # Workers that lost the race may still be writing: they are done once every slot has been served again.
        session.encode(np.eye(6), code="uncoded", n_workers=6).matvec(np.ones(6))


@pytest.fixture(scope="module")
def aws_session():
    with sgc.Session("aws") as session:
        yield session


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("code", "params"), CODES, ids=str)
def test_equals_numpy(session, code, params, loss):
    """In each session each code meets every loss and every number of rows; all their pairs over the sessions."""
    where, shift = session
    X, y, w, expected = problem(loss, ROWS[(LOSSES.index(loss) + shift) % len(ROWS)])
    data = where.encode(X, y, code=code, **size(code), **params)
    g, report = data.gradient(w, loss=loss, with_report=True)
    close(g, expected)
    assert report.balanced
    assert report.failed == 0


SOME = ("C", "F", "strided", "big-endian", "list", "float32", "uint16", "bool", "complex", "csr", "csc")


@pytest.mark.parametrize("code", ["uncoded", "mds", "polar"])
@pytest.mark.parametrize(("name", "X"), [pytest.param(name, X, id=name) for name, X in layouts() if name in SOME])
@pytest.mark.filterwarnings("ignore::serverless_gc.encode.SparseFillWarning")
def test_layouts_and_dtypes_over_s3(aws_session, name, X, code):
    dense = X.toarray() if name in {"csr", "csc"} else np.asarray(X)
    dense = dense.astype(complex if dense.dtype.kind == "c" else float)
    y, w = np.linspace(-1, 1, 30), np.linspace(1, 2, 6)
    g = sgc.coded_gradient(X, y, w, code=code, session=aws_session, allow_fill=True, **size(code))
    close(g, dense.conj().T @ (dense @ w - y))


@pytest.mark.parametrize("backend", ["aws", "processes"])
@pytest.mark.usefixtures("aws")
def test_results_and_operands_by_reference(backend):
    """Neither a large operand nor a large result fits an invocation: both travel through the store."""
    rng = np.random.default_rng(3)
    A, x = rng.standard_normal((60, 40)), rng.standard_normal((40, 200))
    assert x.nbytes > 32 * 1024
    limits = dataclasses.replace(DEFAULT_LIMITS, reply_bytes=30_000)
    with sgc.Session(backend, limits=limits) as s:
        data = s.encode(A, code="mds", n_workers=8, k=6)
        small, by_value = data.matvec(x[:, :2], with_report=True)
        z, report = data.matvec(x, with_report=True)
    close(z, A @ x)
    close(small, A @ x[:, :2])
    assert report.by_reference >= 6
    assert by_value.by_reference == 0
    assert x.nbytes < report.bytes_up < x.nbytes + 8 * 2_000  # the operand was sent once, not with each request
    assert report.failed == by_value.failed == 0


@pytest.mark.usefixtures("aws")
def test_nothing_is_left_in_the_bucket(list_bucket):
    X, y, w, expected = problem("squared", 40)
    with sgc.Session("aws", inject=SLOW) as s:
        data = s.encode(X, y, code="polar", n_workers=8, k=6)
        for _ in range(3):
            close(data.gradient(w), expected)
        prefix = f"sgc/runs/{background.run(s.resources()).run}/"
        assert len([key for key in list_bucket(prefix) if "/data/" in key]) == 2 * (8 + 1)
        s.encode(np.eye(6), code="uncoded", n_workers=6).matvec(np.ones(6))  # nobody is at work any more
    assert list_bucket(prefix) == []


def test_nothing_is_left_in_the_temporary_directory():
    X, y, w, expected = problem("squared", 40)
    with sgc.Session("processes") as s:
        close(s.encode(X, y, code="mds", n_workers=8, k=6).gradient(w), expected)
        store = background.run(s.resources()).store.inner
        assert isinstance(store, LocalStore)
        folder = Path(store.url.removeprefix("file://"))
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.usefixtures("aws")
def test_fifty_iterations_leave_sockets_threads_and_tasks_where_they_were(list_bucket):
    X, y, w, expected = problem("logistic", 40)
    with sgc.Session("aws", inject=SLOW) as s:
        data = s.encode(X, y, code="mds", n_workers=8, k=6)

        async def settled():
            await (await s.resources()).settle()
            return len(asyncio.all_tasks())

        def state():
            tasks = background.run(settled())
            gc.collect()
            return tasks, threading.active_count(), len(os.listdir("/proc/self/fd")), len(list_bucket())

        for _ in range(10):
            data.gradient(w, loss="logistic")
        before = state()
        for _ in range(50):
            close(data.gradient(w, loss="logistic"), expected)
        after = state()
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] <= before[2] + 8  # a connection pool may have one more connection for each worker
    assert after[3] <= before[3] + 2 * 50 + 2 * 8  # a cancel mark for each round; objects of the last one
