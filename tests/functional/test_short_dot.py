"""Short-Dot workers store, are sent, and multiply their share of the columns only, on every backend."""

import asyncio
from contextlib import nullcontext

import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.invoke.local import LocalInvoker
from serverless_gc.rounds.operands import INLINE_OPERAND
from serverless_gc.store.memory import MemoryStore
from serverless_gc.wire import Reply, Task, unpack_block

CODE = get("short-dot", n_workers=6, k=2)  # any 4 results, 4 of 6 columns each


class Recording(LocalInvoker):
    """Notes what each task carries and what its worker read."""

    def __init__(self, store):
        super().__init__(store)
        self.store = store
        self.tasks, self.sizes, self.read = [], [], {}

    async def invoke(self, task, payload, *, timeout):
        sent = Task.from_bytes(payload)
        self.tasks.append(sent)
        self.sizes.append(len(payload))
        raw = await super().invoke(task, payload, timeout=timeout)
        self.read[sent.task_id] = Reply.from_bytes(raw).stats.get("bytes_read")
        return raw


@pytest.fixture
def recorded():
    """A session whose tasks are recorded; it waits for all results, so that what is counted does not depend on luck."""
    store = MemoryStore()
    invoker = Recording(store)
    with sgc.Session(store=store, invoker=invoker, policy=lambda _: sgc.policies.WaitAll()) as s:
        yield s, invoker, store.blobs()


def needed(slot, n_cols):
    return CODE.support.columns(slot, n_cols)


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["vector", "matrix"])
def test_each_task_carries_its_share_of_the_operand(recorded, outputs):
    session, invoker, blobs = recorded
    rng = np.random.default_rng(0)
    X, x = rng.standard_normal((31, 120)), rng.standard_normal((120, *outputs))
    z, report = session.encode(X, code=CODE).matvec(x, with_report=True)
    close(z, X @ x)
    assert report.check().used == 6
    assert {task.slot for task in invoker.tasks} == set(range(6))
    for task in invoker.tasks:
        columns = needed(task.slot, 120)
        assert columns.size == 80 == round(CODE.density * 120)
        assert np.array_equal(task.operand, x[columns])
        [key] = task.blocks
        assert unpack_block(blobs.get(key)).shape == (16, 80)
    stored = 6 * 16 * 80
    assert session.encode(X, code=CODE).stored_nnz == stored
    # Blocks and tasks, and nothing besides but what surrounds the numbers.
    numbers = 8 * (stored + 6 * x[:80].size)
    assert numbers < report.bytes_up < numbers + 6 * 1500
    assert report.bytes_up - sum(invoker.sizes) < 8 * stored + 6 * 500


def test_both_products_of_a_gradient_are_short(recorded):
    session, invoker, _ = recorded
    X, y, w, expected = problem("logistic", 90)
    data = session.encode(X, y, code=CODE)
    gradient, report = data.gradient(w, loss="logistic", with_report=True)
    close(gradient, expected)
    assert report.check().rounds == 2
    close(data.rmatvec(y), X.T @ y)
    assert sorted(task.operand.size for task in invoker.tasks) == [3] * 4 + [4] * 2 + [60] * 12
    assert data.stored_nnz == 45 * (3 * 4 + 4 * 2) + 3 * 60 * 6


@pytest.mark.parametrize("outputs", [(), (4,)], ids=["vector", "matrix"])
def test_a_large_operand_is_stored_once_and_read_in_ranges(recorded, outputs):
    session, invoker, blobs = recorded
    rng = np.random.default_rng(1)
    X, x = rng.standard_normal((8, 9000)), rng.standard_normal((9000, *outputs))
    data = session.encode(X, code=CODE)
    data.matvec(-x)  # its report counts the blocks, too
    invoker.tasks.clear()
    z, report = data.matvec(x, with_report=True)
    close(z, X @ x)
    assert x.nbytes < report.bytes_up < x.nbytes + 6 * 3000  # not once for each worker
    for task in invoker.tasks:
        assert task.operand is None
        assert len(task.operand_ranges) <= 2
        share = x.nbytes * 4 // 6
        read = sum(stop - start for start, stop in task.operand_ranges)
        assert share < read < share + 4 * 400
        if outputs:  # else the second round finds its blocks in the worker's cache
            continue
        assert invoker.read[task.task_id] == read
    assert not blobs.exists(invoker.tasks[0].operand_key)


def test_what_is_too_large_as_a_whole_may_travel_in_parts(recorded):
    session, invoker, _ = recorded
    X = np.random.default_rng(2).standard_normal((4, 5700))
    x = np.arange(5700.0)
    assert x.nbytes * 4 / 6 < INLINE_OPERAND < x.nbytes
    close(session.encode(X, code=CODE).matvec(x), X @ x)
    assert {task.operand.nbytes for task in invoker.tasks} == {x.nbytes * 4 // 6}


@pytest.mark.parametrize("n_cols", [1, 2, 5])
def test_fewer_columns_than_classes(recorded, n_cols):
    """Some workers need nothing at all, and say so."""
    session, invoker, _ = recorded
    X = np.random.default_rng(3).standard_normal((7, n_cols))
    close(session.encode(X, code=CODE).matvec(np.ones(n_cols)), X.sum(axis=1))
    assert min(task.operand.size for task in invoker.tasks) == max(0, n_cols - 2)


@pytest.mark.parametrize("where", ["local", "simulated", "processes", "aws", "presigned"])
def test_every_backend_with_faults(where, request):
    """Slots that fail are issued again and two workers are slow; small operands travel in tasks, large ones by key."""
    options = {"presigned": True} if where == "presigned" else {}
    on_aws = where in {"aws", "presigned"}
    backend = "aws" if on_aws else where
    faults = sgc.inject.Faults(fail=[0, 3, 5], fail_times=1)
    slow = sgc.inject.Stragglers(fraction=[1, 4], slowdown=50 if where == "simulated" else 3, persistent=True)
    rng = np.random.default_rng(4)
    machine = request.getfixturevalue("running_aws").activated() if on_aws else nullcontext()
    with machine, sgc.Session(backend, inject=[faults, slow], **options) as s:
        for n_cols in (200, 9000):
            A, X, y = rng.standard_normal((21, n_cols)), rng.standard_normal((n_cols, 2)), rng.standard_normal((21, 2))
            data = s.encode(A, y, code=CODE)
            z, report = data.matvec(X, with_report=True)
            close(z, A @ X)
            assert report.check().retries
            close(data.rmatvec(y), A.T @ y)
            close(data.gradient(X), A.T @ (A @ X - y))
        close(data.matvec(X * 1j), A @ X * 1j)
        s.encode(np.eye(6), code="uncoded", n_workers=6).matvec(np.ones(6))  # nobody is at work any more


class Stuck(Recording):
    """Worker 2 does not begin before its task was issued a second time."""

    def __init__(self, store):
        super().__init__(store)
        self.copied = asyncio.Event()

    async def invoke(self, task, payload, *, timeout):
        if task.slot == 2:
            if task.attempt:
                self.copied.set()
            await self.copied.wait()
        return await super().invoke(task, payload, timeout=timeout)


def test_copies_of_slow_tasks_carry_the_same():
    invoker = Stuck(MemoryStore())
    X, x = np.random.default_rng(5).standard_normal((9, 60)), np.linspace(0, 1, 60)

    def speculate(_):
        return sgc.Speculate(sgc.policies.WaitAll(), min_seconds=0.0)

    with sgc.Session(store=invoker.store, invoker=invoker, policy=speculate) as s:
        z, report = s.encode(X, code=CODE).matvec(x, with_report=True)
    close(z, X @ x)
    assert report.check().issued > 6
    for task in invoker.tasks:
        assert np.array_equal(task.operand, x[needed(task.slot, 60)])


def test_training_with_the_gram_matrix_and_without():
    """The coded Gram matrix is short, too."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((400, 12))
    y = X @ np.arange(12.0) + rng.standard_normal(400)
    w = rng.standard_normal(12)
    with sgc.Session() as s:
        data = s.encode(X, y, code="short-dot", n_workers=8, k=3)
        for strategy in ("two-round", "gram"):
            close(data.gradient(w, strategy=strategy), X.T @ (X @ w - y))
