"""A worker that publishes its messages while it works on the next ones."""

from dataclasses import replace

import numpy as np
import pytest

from serverless_gc.store import CountingStore, MemoryStore
from serverless_gc.wire import Reply, Task, mismatch, pack_block
from serverless_gc.worker import kernels
from serverless_gc.worker.entry import Warm, run

BLOCKS = np.arange(60.0).reshape(5, 4, 3)
X = np.array([1.0, -1.0, 2.0])
PRODUCTS = BLOCKS @ X


class Bench:
    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self.blobs = self.store.blobs()
        self.waits = []
        for i, block in enumerate(BLOCKS):
            self.blobs.put(f"b/{i}", pack_block(block))

    def task(self, publish=1, n=5, **changes):
        params = changes.pop("params", {})
        return Task(
            run="run",
            round=2,
            task_id="t7",
            slot=3,
            attempt=changes.pop("attempt", 0),
            kernel=changes.pop("kernel", "matvec"),
            blocks=tuple(f"b/{i}" for i in range(n)),
            result_key="round/00003",
            store=self.store.url,
            operand=X,
            inline_limit=1 << 20,
            cancel_key="round/cancel",
            params={"publish": publish, "n_messages": n, **params},
        )

    def run(self, task):
        payload = task.to_bytes()
        return Reply.from_bytes(run(payload, lambda _: self.blobs, warm=Warm.of(1 << 20), sleep=self.waits.append))

    def parts(self):
        found = {}
        for first in range(9):
            key = f"round/00003.{first:04d}"
            if self.blobs.exists(key):
                found[first] = Reply.from_bytes(self.blobs.get(key))
        return found


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.parametrize(
    ("publish", "n", "firsts"), [(1, 5, [0, 1, 2, 3]), (2, 5, [0, 2]), (2, 4, [0]), (3, 5, [0]), (5, 5, []), (1, 1, [])]
)
def test_parts_come_first_and_the_result_holds_everything(bench, publish, n, firsts):
    task = bench.task(publish, n)
    reply = bench.run(task)
    parts = bench.parts()
    assert list(parts) == firsts
    assert task.part_keys() == [task.part_key(first) for first in firsts]
    for first, part in parts.items():
        assert mismatch(part, task) == ""
        assert part.result_key == task.part_key(first)
        np.testing.assert_array_equal(part.value, PRODUCTS[first : first + publish])
    np.testing.assert_array_equal(reply.value, PRODUCTS[:n] if n > 1 else PRODUCTS[0])
    assert (reply.stats["published"], reply.stats["resumed"]) == (len(firsts), 0)
    assert Reply.from_bytes(bench.blobs.get("round/00003")).value.shape == reply.value.shape


def test_without_publish_nothing_is_published(bench):
    reply = bench.run(bench.task(publish=0))
    assert bench.parts() == {}
    np.testing.assert_array_equal(reply.value, PRODUCTS)
    assert "published" not in reply.stats
    assert bench.task(publish=0).part_keys() == []


def test_the_cancel_mark_is_seen_between_messages(bench):
    blobs, task = bench.blobs, bench.task()

    class MarkedLater:
        get, put = blobs.get, blobs.put

        def exists(self, key):
            return key == "round/cancel" and blobs.exists("round/00003.0001")

    bench.blobs = MarkedLater()
    reply = bench.run(task)
    assert reply.status == "cancelled"
    bench.blobs = blobs
    assert list(bench.parts()) == [0, 1]
    assert not bench.blobs.exists("round/00003")


def test_a_retry_takes_up_where_the_first_attempt_stopped(bench, monkeypatch):
    computed = []
    multiply = kernels.multiply

    def counted(block, operand):
        computed.append(int(block[0, 0]) // 12)
        if len(computed) == 4:
            raise MemoryError("killed")
        return multiply(block, operand)

    monkeypatch.setattr(kernels, "multiply", counted)
    assert bench.run(bench.task()).error["kind"] == "function"
    assert list(bench.parts()) == [0, 1, 2]
    reply = bench.run(bench.task(attempt=1))
    assert computed == [0, 1, 2, 3, 3, 4]
    assert (reply.stats["resumed"], reply.stats["published"]) == (3, 1)
    np.testing.assert_array_equal(reply.value, PRODUCTS)


def test_looking_for_earlier_parts_costs_one_request_and_a_first_attempt_none():
    bench = Bench(CountingStore(MemoryStore()))
    gets = []
    for attempt in (0, 1):
        before = bench.store.requests["get"]
        bench.run(replace(bench.task(5, attempt=attempt), result_key=f"round/{attempt}"))
        gets.append(bench.store.requests["get"] - before)
    assert gets == [5, 5]  # nothing is published at all: there is nothing to look for
    before = bench.store.requests["get"]
    bench.run(replace(bench.task(1, attempt=1), result_key="round/9"))
    assert bench.store.requests["get"] - before == 6


def test_parts_that_are_damaged_or_foreign_are_computed_again(bench):
    bench.run(bench.task())
    first = bench.parts()[0]
    for bad in (b"rubbish", replace(first, run="other").to_bytes(), replace(first, value=PRODUCTS[:3]).to_bytes()):
        bench.blobs.put("round/00003.0000", bad)
        reply = bench.run(bench.task(attempt=1))
        assert reply.status == "ok"
        assert reply.stats["resumed"] == 0
        np.testing.assert_array_equal(reply.value, PRODUCTS)


def test_two_attempts_at_once_write_each_part_once(bench):
    bench.run(bench.task())
    before = {first: part.stats["execution"] for first, part in bench.parts().items()}
    reply = bench.run(bench.task())
    assert reply.duplicate
    assert reply.stats["published"] == 0
    assert {first: part.stats["execution"] for first, part in bench.parts().items()} == before


def test_pace_slows_every_message(bench):
    bench.run(bench.task(params={"pace": 0.25}))
    assert bench.waits == [0.25] * 5
    bench.waits.clear()
    bench.run(bench.task(n=2, params={"slowdown": 1e6}))
    assert len(bench.waits) == 2
    assert min(bench.waits) > 0
    assert bench.run(bench.task(n=2)).times["compute"] < sum(bench.waits)


def test_a_kernel_without_a_stream_is_one_message(bench):
    reply = bench.run(bench.task(kernel="noop", n=0, params={"size": 3, "n_messages": 1, "pace": 0.5}))
    assert reply.value.tolist() == [0, 0, 0]
    assert bench.waits == [0.5]
    assert bench.parts() == {}
    with pytest.raises(ValueError, match="no kernel 'magic'"):
        next(kernels.stream("magic", [], None, {}))
    assert [m.tolist() for m in kernels.stream("matvec", list(BLOCKS[:3]), X, {}, 2)] == [PRODUCTS[2].tolist()]
