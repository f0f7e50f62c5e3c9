# ruff: noqa: ARG002 - stand-ins must have the arguments of what they stand for
"""How the driver finds partial results."""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.errors import StoreError
from serverless_gc.rounds.collect import Collector
from serverless_gc.rounds.partials import Collected, PartsWatch, pause
from serverless_gc.store import MemoryStore, StoreWrapper
from serverless_gc.testing.jump_loop import run_virtually
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task

CODE = get("uc-mmc", k=4, r=3)
SPEC = TaskSpec("t1", slot=1, version=5, milestones=(1 / 3, 2 / 3))


def make_task(spec):
    return Task("run", 5, spec.task_id, spec.slot, spec.attempt, "matvec", (), f"round/{spec.slot:05d}", "memory://")


def part(values, **changes):
    reply = Reply("run", 5, "t1", 1, 0, "ok", value=np.asarray(values, float), stats={"cold": True})
    return replace(reply, **changes).to_bytes()


def make(store, every=1):
    collector = Collector(CODE, (2,), np.dtype(float))
    return PartsWatch(store, "round/", Collected(collector), make_task, every, Counter())


async def looked(watch, posted, seconds):
    task = asyncio.create_task(watch(posted.append))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait([task])


async def watched(store, every=1, seconds=0.1):
    watch, posted = make(store, every), []
    watch.expect(SPEC)
    await looked(watch, posted, seconds)
    return watch, posted


def test_pauses_follow_the_age_of_the_round():
    assert pause(0.0, 0.0) == pytest.approx(0.016)
    assert pause(0.0, 1.0) == pytest.approx(0.024)
    assert pause(3.0) == pytest.approx(0.3)
    assert pause(900.0) == 1.0


def test_a_long_round_is_looked_at_ever_less_often():
    async def main(seconds):
        return (await watched(MemoryStore(), seconds=seconds))[0].polls

    short, long = run_virtually(main(1.0)), run_virtually(main(10.0))
    assert 20 < short < 45
    assert long < short + 40


def test_parts_are_filed_and_posted_once():
    async def main():
        store = MemoryStore()
        await store.put("round/00001.0000", part([[1, 2]]))
        await store.put("round/00001.0001", part([[3, 4]]))
        await store.put("round/00002.0000", part([[9, 9]]))  # of a slot without a task
        for other in ("round/00001", "round/cancel", "round/operand"):
            await store.put(other, b"")
        return await watched(store)

    watch, posted = run_virtually(main())
    assert watch.polls > 2
    assert sorted((p.task, p.messages, p.stats["cold"]) for p in posted) == [(SPEC, (0,), True), (SPEC, (1,), True)]
    assert {m: v.tolist() for m, v in watch.inbox.collector.values.items()} == {1: [1, 2], 2: [3, 4]}
    assert watch.counts == {"bytes_down": 32}


def test_parts_of_several_messages():
    async def main():
        store = MemoryStore()
        await store.put("round/00001.0000", part([[1, 2], [3, 4]]))
        return await watched(store, every=2)

    watch, posted = run_virtually(main())
    assert [p.messages for p in posted] == [(0, 1)]
    assert sorted(watch.inbox.collector.values) == [1, 2]


def test_what_is_here_is_not_fetched():
    async def main():
        store = MemoryStore()
        await store.put("round/00001.0000", b"never read")
        watch, posted = make(store), []
        watch.expect(SPEC)
        watch.inbox.collector.file(1, np.ones(2))
        await looked(watch, posted, 0.1)
        return watch, posted

    watch, posted = run_virtually(main())
    assert posted == []
    assert watch.counts == {}


@pytest.mark.parametrize(
    ("bad", "counts"),
    [
        (b"rubbish", {}),
        (part([[1, 2, 3]]), {}),
        (part([[np.nan, 1]]), {}),
        (part([[1, 2]] * 9), {}),
        (part([[1, 2]], run="other"), {"stale": 1}),
        (part([[1, 2]], round=4), {"stale": 1}),
        (part([[1, 2]], task_id="t2"), {"stale": 1}),
        (part([[1, 2]], value=None), {}),
    ],
)
def test_bad_parts_are_left_alone(bad, counts):
    async def main():
        store = MemoryStore()
        await store.put("round/00001.0000", bad)
        await store.put("round/00001.0001", part([[3, 4]], attempt=7))
        return await watched(store)

    watch, posted = run_virtually(main())
    assert [p.messages for p in posted] == [(1,)]
    assert {name: n for name, n in watch.counts.items() if name != "bytes_down"} == counts


class Busy(StoreWrapper):
    """Refuses the first request of each kind."""

    def __init__(self, inner):
        super().__init__(inner)
        self.refused = set()

    def _before(self, operation, key, size):
        if operation in {"list", "get"} and operation not in self.refused:
            self.refused.add(operation)
            raise StoreError("503 SlowDown", retryable=True)
        return 0.0


def test_a_busy_store_is_asked_again():
    async def main():
        store = MemoryStore()
        await store.put("round/00001.0000", part([[1, 2]]))
        return await watched(Busy(store), seconds=0.2)

    _, posted = run_virtually(main())
    assert [p.messages for p in posted] == [(0,)]


def test_before_it_runs_a_look_does_nothing():
    watch = make(MemoryStore())
    run_virtually(watch.look())
    assert watch.polls == 0
