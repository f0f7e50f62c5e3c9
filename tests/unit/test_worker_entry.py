"""The worker's entry: what a task becomes, on good days and on bad ones."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from serverless_gc.errors import StoreError
from serverless_gc.inject import Faults
from serverless_gc.store import CountingStore, FaultyStore, LocalStore, MemoryStore
from serverless_gc.wire import PROTOCOL, CsrBlock, Reply, Task, mismatch, pack, pack_block
from serverless_gc.worker import entry, kernels
from serverless_gc.worker.entry import Warm, handle, run
from serverless_gc.worker.opening import open_blobs

A = np.arange(12.0).reshape(4, 3)
X = np.array([1.0, -1.0, 2.0])


class Bench:
    """A memory store with one block, and tasks on it."""

    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self.blobs = self.store.blobs()
        self.warm = Warm.of(1 << 20)
        self.waits = []
        inner = self.store
        while hasattr(inner, "inner"):
            inner = inner.inner
        inner.blobs().put("run/blocks/3", pack_block(A))
        self.raw = inner.blobs()

    def task(self, **changes):
        task = Task(
            "run", 2, "t7", 3, 0, "matvec", ("run/blocks/3",), "run/results/7", self.store.url, X, inline_limit=1 << 20
        )
        return replace(task, **changes)

    def run(self, task):
        return Reply.from_bytes(run(task.to_bytes(), self.open, warm=self.warm, sleep=self.waits.append))

    def stored(self):
        async def listed():
            return [info.key async for info in self.store.list()]

        return asyncio.run(listed())

    def open(self, url):
        assert url == self.store.url
        return self.blobs


@pytest.fixture
def bench():
    return Bench()


def test_a_task_is_computed_stored_and_answered(bench):
    task = bench.task()
    reply = bench.run(task)
    assert reply.status == "ok"
    assert mismatch(reply, task) == ""
    np.testing.assert_array_equal(reply.value, A @ X)
    stored = Reply.from_bytes(bench.raw.get("run/results/7"))
    np.testing.assert_array_equal(stored.value, A @ X)
    assert mismatch(stored, task) == ""
    assert set(reply.times) == {"read", "compute", "write", "started"}
    assert reply.times["started"] > 1.7e9
    assert reply.stats["numpy"] == np.__version__
    assert reply.stats["python"].startswith("3.")
    assert reply.stats["non_finite"] == 0
    assert reply.stats["bytes_read"] > A.nbytes
    assert isinstance(reply.stats["cold"], bool)
    assert isinstance(reply.stats["pid"], int)


def test_large_values_are_answered_by_key(bench):
    for limit, inline in ((32, True), (31, False)):
        reply = bench.run(bench.task(inline_limit=limit, result_key=f"r/{limit}"))
        assert (reply.value is not None) == inline
        assert reply.result_key == f"r/{limit}"
        np.testing.assert_array_equal(Reply.from_bytes(bench.raw.get(f"r/{limit}")).value, A @ X)


def test_operands_may_be_stored_and_blocks_and_operands_are_kept():
    bench = Bench(CountingStore(MemoryStore()))
    bench.raw.put("run/w", pack_block(X))
    for n in range(3):
        reply = bench.run(bench.task(operand=None, operand_key="run/w", result_key=f"r/{n}"))
        np.testing.assert_array_equal(reply.value, A @ X)
        assert reply.stats["cache_hits"] == (2 if n else 0)
        assert (reply.stats["bytes_read"] == 0) == (n > 0)
    assert bench.store.requests["get"] == 2


@pytest.fixture(params=["memory", "file", "opened"])
def pieces(request, tmp_path):
    """A bench with an object of four blocks, where they begin and end, and a task that needs all but the second."""
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    bench = Bench(CountingStore(store))
    if request.param == "opened":
        bench.blobs = open_blobs(store.url)
    blocks = [pack_block(piece) for piece in (X[1:], np.ones(50), X[:0], X[:1])]
    at = [0, *accumulate(sum(memoryview(part).nbytes for part in block) for block in blocks)]
    bench.raw.put("run/w", [part for block in blocks for part in block])
    return bench, at, bench.task(operand=None, operand_key="run/w", operand_ranges=((at[2], at[4]), (at[0], at[1])))


def test_an_operand_may_be_read_piece_by_piece(pieces):
    bench, at, task = pieces
    bench.run(bench.task(result_key="r/0"))  # reads the block
    reply = bench.run(task)
    np.testing.assert_array_equal(reply.value, A @ X)
    assert reply.stats["bytes_read"] == at[4] - (at[2] - at[1])


def test_damaged_pieces_are_reported_and_never_used(pieces):
    bench, at, task = pieces
    for span in ((at[0], at[1] - 8), (at[0] + 8, at[1]), (at[3], at[4] + 9)):
        reply = bench.run(replace(task, operand_ranges=(span,)))
        assert reply.status == "error"
        assert reply.error["kind"] in {"corrupt", "unavailable"}  # a driver's store refuses what ends too early itself
        assert "run/w" in reply.error["message"]
    assert bench.run(replace(task, operand_key="run/gone")).error["kind"] == "missing"


def test_nothing_is_kept_beyond_the_bytes_allowed():
    bench = Bench(CountingStore(MemoryStore()))
    bench.warm = Warm.of(A.nbytes - 1)
    for n in range(2):
        assert bench.run(bench.task(result_key=f"r/{n}")).stats["cache_hits"] == 0
    assert bench.store.requests["get"] == 2


def test_every_reader_sees_one_value(bench):
    """A11: an original and a duplicate whose results differ."""
    rng = random.Random(5)
    for trial in range(100):
        operands = [X, X + 1.0]
        replies = {}
        barrier = threading.Barrier(2)

        def attempt(number, key, operands=operands, replies=replies, barrier=barrier):
            task = bench.task(attempt=number, operand=operands[number], result_key=key)
            barrier.wait(timeout=10)
            replies[number] = bench.run(task)

        order = [0, 1] if rng.random() < 0.5 else [1, 0]
        threads = [threading.Thread(target=attempt, args=(n, f"race/{trial}")) for n in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = Reply.from_bytes(bench.raw.get(f"race/{trial}"))
        assert sorted(r.duplicate for r in replies.values()) == [False, True]
        winner = next(r for r in replies.values() if not r.duplicate)
        assert stored.attempt == winner.attempt
        np.testing.assert_array_equal(stored.value, A @ operands[winner.attempt])
        for number, reply in replies.items():
            assert reply.attempt == number
            np.testing.assert_array_equal(reply.value, stored.value)


def test_the_same_attempt_run_twice_is_a_duplicate_too(bench):
    first = bench.run(bench.task())
    second = bench.run(bench.task(operand=X * 3))
    assert (first.duplicate, second.duplicate) == (False, True)
    np.testing.assert_array_equal(second.value, A @ X)


def test_a_write_whose_answer_was_lost_is_not_a_duplicate(bench):
    class AnswerLost:
        def __init__(self, inner):
            self.inner = inner
            self.lost = False

        def get(self, key):
            return self.inner.get(key)

        def exists(self, key):
            return self.inner.exists(key)

        def put(self, key, data, *, if_absent=False):
            written = self.inner.put(key, data, if_absent=if_absent)
            if not self.lost:
                self.lost = True
                raise StoreError("connection reset", retryable=True)
            return written

    bench.blobs = AnswerLost(bench.raw)
    reply = bench.run(bench.task())
    assert (reply.status, reply.duplicate, reply.stats["retries"]) == ("ok", False, 1)
    assert len(bench.waits) == 1


def test_a_foreign_object_under_the_results_key_is_not_used(bench):
    other = bench.task(run="another", result_key="")
    bench.raw.put("run/results/7", run(other.to_bytes(), bench.open, warm=bench.warm))
    reply = bench.run(bench.task())
    assert (reply.status, reply.error["kind"]) == ("error", "bad-reply")
    assert "reply of another run" in reply.error["message"]


def test_a_writer_that_was_refused_but_finds_nothing_writes_again(bench):
    class Busy:
        """409: another conditional write was under way, and then failed."""

        def __init__(self, inner):
            self.inner = inner
            self.refusals = 1

        def get(self, key):
            return self.inner.get(key)

        def exists(self, key):
            return self.inner.exists(key)

        def put(self, key, data, *, if_absent=False):
            if self.refusals:
                self.refusals -= 1
                return False
            return self.inner.put(key, data, if_absent=if_absent)

    bench.blobs = Busy(bench.raw)
    reply = bench.run(bench.task())
    assert (reply.status, reply.duplicate) == ("ok", False)
    assert bench.raw.exists("run/results/7")
    assert len(bench.waits) == 1


@pytest.mark.parametrize("how", ["flip", "prefix", "truncate"])
def test_damaged_blocks_are_reported_and_never_used(how):
    """A22."""
    bench = Bench(FaultyStore(MemoryStore(), Faults(corrupt=[3], corrupt_how=how, seed=2)))
    for _ in range(2):  # and not kept either
        reply = bench.run(bench.task())
        assert (reply.status, reply.error["kind"], reply.error["type"]) == ("error", "corrupt", "FrameError")
        assert "run/blocks/3" in reply.error["message"]
        assert reply.value is None
    assert not bench.raw.exists("run/results/7")
    assert len(bench.warm.blocks) == 0


def test_every_flipped_bit_of_a_block_is_found():
    """A22, many positions."""
    for seed in range(60):
        bench = Bench(FaultyStore(MemoryStore(), Faults(corrupt=[3], corrupt_how="flip", seed=seed)))
        assert bench.run(bench.task()).error["kind"] == "corrupt"


def test_slow_downs_are_survived_and_counted():
    """A21, the worker's side: half of all requests are refused until 3 s, sixty waits, have passed."""
    store = FaultyStore(
        MemoryStore(), Faults(slow_down=0.5, slow_down_seconds=3.0, seed=4), clock=lambda: 0.05 * len(bench.waits)
    )
    bench = Bench(store)
    replies = [bench.run(bench.task(task_id=f"t{n}", result_key=f"r/{n}", cancel_key=f"c/{n}")) for n in range(64)]
    assert [r.status for r in replies] == ["ok"] * 64
    total = sum(r.stats["slow_downs"] for r in replies)
    assert total == store.injected["slow_down"] == 60
    assert len(set(bench.waits)) == len(bench.waits) == total  # jittered: no two waits alike
    assert bench.run(bench.task(result_key="r/late")).stats["slow_downs"] == 0


def test_a_store_that_stays_busy_is_an_error():
    bench = Bench(FaultyStore(MemoryStore(), Faults(slow_down=1.0), clock=lambda: 0.0))
    reply = bench.run(bench.task())
    assert (reply.status, reply.error["kind"], reply.error["type"]) == ("error", "unavailable", "StoreError")
    assert reply.stats["retries"] == len(bench.waits) > 3


def test_other_protocols_are_refused_before_any_block_is_read():
    bench = Bench(CountingStore(MemoryStore()))
    for protocol in (-1, PROTOCOL + 1):
        reply = bench.run(bench.task(protocol=protocol))
        assert (reply.status, reply.error["kind"]) == ("error", "protocol")
        assert f"protocol {protocol}" in reply.error["message"]
        assert f"protocol {PROTOCOL}" in reply.error["message"]
        assert (reply.run, reply.round, reply.task_id, reply.slot) == ("run", 2, "t7", 3)
    assert sum(bench.store.requests.values()) == 0
    newer = pack({"kind": "task", "protocol": 99, "everything": "else is new"})
    assert Reply.from_bytes(run(newer)).error["kind"] == "protocol"
    frame = bytearray(bench.task().to_bytes())
    frame[4] = 9  # the frame's own format
    assert Reply.from_bytes(run(frame)).error["kind"] == "protocol"


def test_cancelled_tasks_stop_before_reading_and_before_computing(monkeypatch):
    bench = Bench(CountingStore(MemoryStore()))
    bench.raw.put("run/cancel", b"")
    reply = bench.run(bench.task(cancel_key="run/cancel"))
    assert (reply.status, reply.value) == ("cancelled", None)
    assert bench.store.requests == {"head": 1}

    bench = Bench()
    get = bench.blobs.get

    class MarkedWhileReading:
        def get(self, key):
            bench.raw.put("run/cancel", b"")
            return get(key)

        def exists(self, key):
            return bench.raw.exists(key)

        def put(self, *_, **__):
            raise AssertionError

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(kernels, "KERNELS", {"matvec": never})
    bench.blobs = MarkedWhileReading()
    assert bench.run(bench.task(cancel_key="run/cancel")).status == "cancelled"


def test_what_the_function_raises_comes_back_in_words(bench):
    reply = bench.run(bench.task(operand=np.ones(5)))
    assert reply.status == "error"
    assert mismatch(reply, bench.task()) == ""
    assert reply.error["kind"] == "function"
    assert reply.error["type"] == "ValueError"
    assert "operand of shape (3,)" in reply.error["message"]
    assert "Traceback" in reply.error["traceback"]
    assert "kernels.py" in reply.error["traceback"]
    assert bench.run(bench.task(kernel="magic")).error["kind"] == "function"
    assert not bench.raw.exists("run/results/7")


def test_a_kernel_that_returns_no_numbers_is_at_fault_itself(bench, monkeypatch):
    monkeypatch.setattr(kernels, "KERNELS", {"words": lambda *_: np.array(["a"])})
    reply = bench.run(bench.task(kernel="words"))
    assert (reply.error["kind"], reply.error["type"]) == ("function", "TypeError")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (PermissionError("no credentials"), "denied"),
        (ValueError("cannot open"), "missing"),
    ],
)
def test_a_store_that_does_not_open_is_an_error_reply(bench, raised, kind):
    def opening(_url):
        raise raised

    reply = Reply.from_bytes(run(bench.task().to_bytes(), opening))
    assert (reply.status, reply.error["kind"], reply.error["message"]) == ("error", kind, str(raised))


def test_missing_objects_are_named(bench):
    reply = bench.run(bench.task(blocks=("run/blocks/9",)))
    assert (reply.status, reply.error["kind"]) == ("error", "missing")
    assert "run/blocks/9" in reply.error["message"]


def test_a_sparse_operand_is_refused(bench):
    sparse = CsrBlock(np.ones(1), np.zeros(1, int), np.array([0, 1]), (1, 1))
    bench.raw.put("run/w", pack_block(sparse))
    reply = bench.run(bench.task(operand=None, operand_key="run/w"))
    assert (reply.error["kind"], "sparse" in reply.error["message"]) == ("corrupt", True)


def test_non_finite_results_are_reported_not_hidden(bench):
    reply = bench.run(bench.task(operand=np.array([1.0, np.nan, 2.0])))
    assert (reply.status, reply.stats["non_finite"]) == ("ok", 4)
    assert np.isnan(reply.value).all()


def test_damaged_tasks_are_error_replies(bench):
    raw = bytearray(bench.task().to_bytes())
    raw[-1] ^= 1
    for payload in (raw, b"", b"rubbish", pack({"kind": "reply"}), raw[:-1]):
        reply = Reply.from_bytes(run(bytes(payload)))
        assert reply.status == "error"
        assert reply.error["kind"] in {"corrupt", "protocol"}


def test_the_face_for_lambda(tmp_path):
    store = LocalStore(tmp_path / "s")
    store.blobs().put("run/blocks/3", pack_block(A))
    task = Task("run", 0, "t", 3, 0, "matvec", ("run/blocks/3",), "r/0", store.url, X, inline_limit=100)
    answer = handle({"sgc": base64.b64encode(task.to_bytes()).decode()}, None)
    assert set(answer) == {"sgc"}
    reply = Reply.from_bytes(base64.b64decode(answer["sgc"], validate=True))
    np.testing.assert_array_equal(reply.value, A @ X)
    assert store.blobs().exists("r/0")
    for event in ({}, {"key1": "value1"}, [], "text", {"sgc": 7}):
        with pytest.raises(TypeError, match="called by the serverless_gc driver"):
            handle(event, None)


def test_cold_is_said_once():
    task = Task("r", 0, "t", 0, 0, "noop", (), "", "file:///nowhere")
    run(task.to_bytes())
    assert Reply.from_bytes(run(task.to_bytes())).stats["cold"] is False


@pytest.mark.parametrize("publish", [0, 1])
def test_a_task_that_took_long_stores_nothing_when_its_run_is_gone(monkeypatch, publish):
    """Nobody would delete it: the session has swept what it had stored."""
    params = {"publish": publish, "n_messages": 2} if publish else {}
    blocks = ("run/blocks/3",) * (2 if publish else 1)
    bench = Bench(CountingStore(MemoryStore()))
    task = bench.task(alive_key="run/alive/0000", params=params, blocks=blocks)
    assert bench.run(task).status == "ok"  # a quick one does not even look
    assert bench.store.requests["head"] == 0
    monkeypatch.setattr(entry, "LOOK_AGAIN", 0.0)
    late = replace(task, result_key="run/results/8")
    before = bench.stored()
    assert bench.run(late).status == "cancelled"
    assert bench.stored() == before
    bench.raw.put("run/alive/0000", b"")
    assert bench.run(late).status == "ok"
    assert bench.raw.exists("run/results/8")
    assert bench.run(bench.task(result_key="run/results/9")).status == "ok"  # a driver that leaves no such mark
