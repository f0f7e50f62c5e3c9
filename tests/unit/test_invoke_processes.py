"""The process invoker; the worker that runs in its processes is the real one."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.processes import ProcessInvoker
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task, pack_block


class OnDisk:
    """What the invoker asks of a store: its URL."""

    def __init__(self, root):
        self.url = f"file://{root}"


def job(store, slot, *blocks):
    task_id = f"t{slot}"
    wire = Task("run", 0, task_id, slot, 0, "noop", blocks, "", store.url, params={"size": 3})
    return TaskSpec(task_id=task_id, slot=slot, version=0), wire.to_bytes()


def alive(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def store(tmp_path):
    return OnDisk(tmp_path)


@pytest.fixture
async def one(store):
    invoker = ProcessInvoker(store, processes=1)
    await invoker.open()
    yield invoker
    await invoker.close()


async def status_and_pid(invoker, store, slot=0):
    reply = Reply.from_bytes(await invoker.invoke(*job(store, slot), timeout=30.0))
    return reply.status, reply.stats["pid"]


async def test_tasks_run_elsewhere(one, store):
    status, pid = await status_and_pid(one, store)
    assert status == "ok"
    assert pid != os.getpid()
    assert (await status_and_pid(one, store))[1] == pid  # a warm process is used again


async def test_blas_of_a_process_has_one_thread(one, store):
    reply = Reply.from_bytes(await one.invoke(*job(store, 0), timeout=30.0))
    assert reply.stats["blas_threads"] == os.environ.get("OPENBLAS_NUM_THREADS", "1")


async def test_a_killed_process_fails_its_task_and_is_replaced(one, store, tmp_path):
    _, pid = await status_and_pid(one, store)
    os.mkfifo(tmp_path / "never")  # reading it blocks: the process is busy when it is killed
    running = asyncio.create_task(one.invoke(*job(store, 1, "never"), timeout=30.0))
    await asyncio.sleep(0)
    os.kill(pid, 9)
    with pytest.raises(InvokeError, match=r"exit code -9") as caught:
        await running
    assert (caught.value.kind, caught.value.reason) == ("function", "process died")
    assert caught.value.retryable
    status, successor = await status_and_pid(one, store, 2)
    assert status == "ok"
    assert successor != pid


async def test_a_process_beyond_the_timeout_is_killed_and_replaced(one, store, tmp_path):
    _, pid = await status_and_pid(one, store)
    os.mkfifo(tmp_path / "never")
    with pytest.raises(InvokeError) as caught:
        await one.invoke(*job(store, 1, "never"), timeout=0.2)
    assert (caught.value.kind, caught.value.may_have_run) == ("timeout", True)
    status, successor = await status_and_pid(one, store, 2)
    assert status == "ok"
    assert successor != pid
    assert not alive(pid)


async def test_a_cancelled_task_runs_to_its_end_and_frees_its_process(one, store):
    _, pid = await status_and_pid(one, store)
    running = asyncio.create_task(one.invoke(*job(store, 1), timeout=30.0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await status_and_pid(one, store, 2) == ("ok", pid)


async def test_a_cancelled_task_that_hangs_holds_its_process_until_its_timeout_only(one, store, tmp_path):
    _, pid = await status_and_pid(one, store)
    os.mkfifo(tmp_path / "never")
    running = asyncio.create_task(one.invoke(*job(store, 1, "never"), timeout=0.3))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    status, successor = await status_and_pid(one, store, 2)
    assert status == "ok"
    assert successor != pid


async def test_close_kills_what_computes(store, tmp_path):
    invoker = ProcessInvoker(store, processes=2)
    await invoker.open()
    _, pid = await status_and_pid(invoker, store)
    os.mkfifo(tmp_path / "never")
    running = [asyncio.create_task(invoker.invoke(*job(store, i, "never"), timeout=60.0)) for i in range(4)]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5.0):  # the promise is two seconds
        await invoker.close()
        outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(o, InvokeError) for o in outcomes)
    assert not alive(pid)


@pytest.mark.parametrize("url", ["memory://1", "s4://x"])
def test_a_store_of_this_process_is_refused_with_the_way_out(url):
    class Here:
        pass

    here = Here()
    here.url = url
    with pytest.raises(InputError, match=rf"{url}.*file://"):
        ProcessInvoker(here)


def test_processes_is_checked(store):
    with pytest.raises(InputError, match="processes"):
        ProcessInvoker(store, processes=0)


async def test_all_processes_share_one_budget_of_remembered_blocks(store, monkeypatch, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"".join(pack_block(np.zeros(2**16))))  # half a MiB
    monkeypatch.setenv("SERVERLESS_GC_CACHE_MB", "1.5")
    hits = []
    for processes in (1, 2):  # 1.5 MiB hold both blocks, 0.75 MiB only one
        invoker = ProcessInvoker(store, processes=processes)
        await invoker.open()
        try:
            for _ in range(3):
                task, payload = job(store, 0, "a", "b")
                hits.append(Reply.from_bytes(await invoker.invoke(task, payload, timeout=30.0)).stats["cache_hits"])
        finally:
            await invoker.close()
    assert hits == [0, 2, 2, 0, 0, 0]
