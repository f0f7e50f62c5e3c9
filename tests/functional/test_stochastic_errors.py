"""Stochastic trainings that go wrong: whose fault it was, and that nothing is left behind."""

import asyncio
import time

import numpy as np
import pytest
from node_rig import keys_of
from stochastic_rig import NET, trained

import serverless_gc as sgc
from serverless_gc.errors import DeadlineExceeded, NotDecodableError
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.policies import DitheredUniform
from serverless_gc.store import MemoryStore, StoreWrapper


def test_a_loss_that_fails_names_its_rows():
    def broken(_X, _y, _w):
        raise ValueError("no such row")

    store = MemoryStore()
    with sgc.Session("local", store=store) as s:
        with pytest.raises(NotDecodableError, match=r"update 0 was given up.*no such row.*partition \d") as e:
            trained(s, loss=broken, scheme="sync", lr=0.1)
        assert any("ValueError: no such row" in note for note in e.value.__notes__)
    assert keys_of(store) == []


def test_a_loss_must_tell_its_value_where_it_decides():
    with sgc.Session("local") as s, pytest.raises(NotDecodableError, match="the loss gave a gradient alone"):
        trained(s, loss=lambda X, y, w: X.T @ (X @ w - y), scheme="adasync", interval=1.0, lr=0.1)


@pytest.mark.parametrize("compressor", [None, DitheredUniform(0.1)], ids=["plain", "compressed"])
def test_results_that_are_none_are_not_used(compressor):
    with sgc.Session("local", inject=Faults(non_finite={1}, seed=1)) as s:
        fit = trained(s, scheme="k-sync", k=3, lr=0.1, batch=5, rounds=3, compressor=compressor)
        with pytest.raises(NotDecodableError, match="4 results are needed"):
            trained(s, scheme="k-sync", k=4, lr=0.1, batch=5, rounds=3, compressor=compressor)
    assert fit.account.used == 9
    assert np.isfinite(fit.w).all()


def test_workers_that_never_answer_meet_the_deadline():
    store = MemoryStore()
    with (
        sgc.Session("local", store=store, inject=Faults(drop={2})) as s,
        pytest.raises(DeadlineExceeded, match=r"update 0 was given up: 0\.3 s have passed"),
    ):
        trained(s, scheme="sync", lr=0.1, deadline=0.3)
    assert keys_of(store) == []


async def test_an_interrupted_run_leaves_nothing():
    began, loop = asyncio.Event(), asyncio.get_running_loop()

    class Telling(StoreWrapper):
        def _before(self, operation, key, size):  # noqa: ARG002 - the arguments of the hook
            if operation == "put" and "/round/" in key:
                loop.call_soon_threadsafe(began.set)
            return 0.0

    store = MemoryStore()
    async with sgc.Session("local", store=Telling(store)) as s:
        data = await s.encode_async(NET.X, NET.y, code="ignore-stragglers", n_workers=NET.n)
        asked = {"scheme": "cada", "lr": 0.01}
        run = asyncio.create_task(sgc.minimize_stochastic_async(data, NET.w0, rounds=10**6, **asked))
        await began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        fit = await sgc.minimize_stochastic_async(data, NET.w0, rounds=2, **asked)  # the session is as good as new
    assert fit.steps == 2
    assert [info async for info in store.list("")] == []


def test_workers_that_are_late_stop_at_their_next_mini_batch(wait_until):
    store = MemoryStore()
    with sgc.Session("local", store=store, inject=Stragglers(fraction={1, 2, 3}, slowdown=8, base=0.3)) as s:
        trained(s, scheme="non-blocking", mini_batches=3, batch=5, lr=0.1, rounds=1)
        ended = time.monotonic() + 1.9  # when they would have done two of three

        def stored():
            return [key.rpartition("/")[2] for key in keys_of(store) if "/round/" in key and "closed" not in key]

        wait_until(lambda: time.monotonic() > ended)
        assert set(stored()) <= {
            "0-1.0000",
            "0-2.0000",
            "0-3.0000",
        }  # what each was at
    assert keys_of(store) == []


def test_two_trainings_share_a_session():
    async def both():
        async with sgc.Session("local") as s:
            data = await s.encode_async(NET.X, NET.y, code="ignore-stragglers", n_workers=NET.n)
            asked = {"scheme": "sync", "lr": 0.1, "batch": 5, "rounds": 5, "seed": 5}
            runs = [sgc.minimize_stochastic_async(data, NET.w0, **NET.objective, **asked) for _ in range(2)]
            return await asyncio.gather(*runs)

    first, second = asyncio.run(both())
    assert first.w.tobytes() == second.w.tobytes()
