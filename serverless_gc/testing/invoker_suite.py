"""What every invoker must do, as a class to inherit from in a pytest module.

A subclass provides the fixtures ``store`` and ``make_invoker``. Example::

    class TestMine(InvokerSuite):
        @pytest.fixture
        def store(self, tmp_path):
            return LocalStore(tmp_path)

        @pytest.fixture
        def make_invoker(self, store):
            return lambda **options: MyInvoker(store, **options)

``make_invoker(limits=...)`` must return a fresh invoker that has not been opened.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from serverless_gc.errors import InvokeError
from serverless_gc.invoke.base import Invoker
from serverless_gc.limits import Limits
from serverless_gc.store.base import Store
from serverless_gc.types import FloatArray, TaskSpec
from serverless_gc.wire import Reply, Task, mismatch, pack_block

__all__ = ["InvokerSuite", "matvec_task"]

Make = Callable[..., Invoker]

_TIMEOUT = 30.0


def matvec_task(store: Store, slot: int, operand: FloatArray, *, kernel: str = "matvec") -> tuple[TaskSpec, Task]:
    """Make the task that multiplies the block ``blocks/<slot>`` by the operand, with its engine-side twin."""
    task_id = f"t{slot}"
    wire = Task(
        run="suite",
        round=0,
        task_id=task_id,
        slot=slot,
        attempt=0,
        kernel=kernel,
        blocks=(f"blocks/{slot}",),
        result_key=f"results/{task_id}",
        store=store.url,
        operand=operand,
        inline_limit=2**20,
    )
    return TaskSpec(task_id=task_id, slot=slot, version=0), wire


class InvokerSuite:
    """Conformance tests of an invoker. See the module's text for the fixtures to provide."""

    cancellable = True
    """Whether an attempt can be cancelled while it runs; False for invokers that compute in line."""

    @pytest_asyncio.fixture
    async def invoker(self, make_invoker: Make) -> AsyncIterator[Invoker]:
        """Open an invoker for one test."""
        made = make_invoker()
        await made.open()
        yield made
        await made.close()

    async def _put_blocks(self, store: Store, n: int) -> list[FloatArray]:
        rng = np.random.default_rng(0)
        blocks = [rng.standard_normal((7, 5)) for _ in range(n)]
        for i, block in enumerate(blocks):
            await store.put(f"blocks/{i}", pack_block(block))
        return blocks

    async def test_many_products(self, invoker: Invoker, store: Store) -> None:
        """Each reply answers its own task, and its value is the product."""
        blocks = await self._put_blocks(store, 12)
        x = np.arange(5.0)
        tasks = [matvec_task(store, slot, x) for slot in range(12)]
        frames = await asyncio.gather(*(invoker.invoke(s, t.to_bytes(), timeout=_TIMEOUT) for s, t in tasks))
        for (_, task), frame, block in zip(tasks, frames, blocks, strict=True):
            reply = Reply.from_bytes(frame)
            assert not mismatch(reply, task), mismatch(reply, task)
            assert reply.status == "ok", reply.error
            assert reply.value is not None
            np.testing.assert_allclose(reply.value, block @ x, rtol=1e-14)

    async def test_payload_as_memoryview(self, invoker: Invoker, store: Store) -> None:
        """Any buffer will do as payload."""
        await self._put_blocks(store, 1)
        spec, task = matvec_task(store, 0, np.ones(5))
        frame = await invoker.invoke(spec, memoryview(bytearray(task.to_bytes())), timeout=_TIMEOUT)
        assert Reply.from_bytes(frame).status == "ok"

    async def test_fault_of_a_task_is_a_reply(self, invoker: Invoker, store: Store) -> None:
        """A task that cannot be computed is answered with what went wrong, and the invoker goes on."""
        await self._put_blocks(store, 1)
        spec, wrong = matvec_task(store, 0, np.ones(3))
        reply = Reply.from_bytes(await invoker.invoke(spec, wrong.to_bytes(), timeout=_TIMEOUT))
        assert reply.status == "error"
        assert reply.error["type"] == "ValueError"
        spec, right = matvec_task(store, 0, np.ones(5))
        assert Reply.from_bytes(await invoker.invoke(spec, right.to_bytes(), timeout=_TIMEOUT)).status == "ok"

    async def test_counts(self, invoker: Invoker, store: Store) -> None:
        """Invocations are counted, and nothing is under way afterwards."""
        await self._put_blocks(store, 6)
        tasks = [matvec_task(store, slot, np.ones(5)) for slot in range(6)]
        await asyncio.gather(*(invoker.invoke(s, t.to_bytes(), timeout=_TIMEOUT) for s, t in tasks))
        assert invoker.stats.invocations == 6
        assert invoker.stats.in_flight == 0
        assert 1 <= invoker.stats.peak <= 6
        assert (invoker.stats.throttles, invoker.stats.retries) == (0, 0)

    async def test_request_above_the_limit_is_not_sent(self, make_invoker: Make, store: Store) -> None:
        """The error has size and limit, and nothing was invoked."""
        await self._put_blocks(store, 1)
        spec, task = matvec_task(store, 0, np.ones(5))
        invoker = make_invoker(limits=Limits(request_bytes=100))
        await invoker.open()
        try:
            with pytest.raises(InvokeError, match=r"\d+ bytes .* 100") as caught:
                await invoker.invoke(spec, task.to_bytes(), timeout=_TIMEOUT)
        finally:
            await invoker.close()
        assert caught.value.kind == "too-large"
        assert not caught.value.retryable
        assert not caught.value.may_have_run
        assert invoker.stats.invocations == 0

    async def test_cancelled_attempts_leave_the_invoker_usable(self, invoker: Invoker, store: Store) -> None:
        """Cancelling ends the wait at once; later calls work and nothing counts as under way."""
        if not self.cancellable:
            pytest.skip("this invoker computes in line")
        await self._put_blocks(store, 4)
        running = [
            asyncio.create_task(invoker.invoke(s, t.to_bytes(), timeout=_TIMEOUT))
            for s, t in (matvec_task(store, slot, np.ones(5)) for slot in range(4))
        ]
        await asyncio.sleep(0)
        for one in running:
            one.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in ended)
        assert invoker.stats.in_flight == 0
        spec, task = matvec_task(store, 0, np.ones(5))
        assert Reply.from_bytes(await invoker.invoke(spec, task.to_bytes(), timeout=_TIMEOUT)).status == "ok"

    async def test_timeout(self, invoker: Invoker, store: Store) -> None:
        """An attempt that is out of time fails as such, and the next one works."""
        if not self.cancellable:
            pytest.skip("no time passes in this invoker")
        await self._put_blocks(store, 1)
        spec, task = matvec_task(store, 0, np.ones(5))
        with pytest.raises(InvokeError) as caught:
            await invoker.invoke(spec, task.to_bytes(), timeout=0.0)
        assert caught.value.kind == "timeout"
        assert Reply.from_bytes(await invoker.invoke(spec, task.to_bytes(), timeout=_TIMEOUT)).status == "ok"

    async def test_close_leaves_nothing(self, make_invoker: Make, store: Store) -> None:
        """After close there are no more threads, tasks and open files than before; twice in a row is fine."""
        await self._put_blocks(store, 4)

        async def use() -> None:
            invoker = make_invoker()
            await invoker.open()
            tasks = [matvec_task(store, slot, np.ones(5)) for slot in range(4)]
            await asyncio.gather(*(invoker.invoke(s, t.to_bytes(), timeout=_TIMEOUT) for s, t in tasks))
            await invoker.close()
            await invoker.close()

        await use()  # whatever is loaded or cached once, is now
        gc.collect()  # what earlier tests have left may go at any time
        files, tasks, threads = _open_files(), len(asyncio.all_tasks()), _threads()
        for _ in range(2):
            await use()
        gc.collect()
        assert _open_files() <= files
        assert len(asyncio.all_tasks()) <= tasks
        assert _threads() <= threads


def _threads() -> set[str]:
    """Names of all threads but the loop's own pool."""
    return {t.name for t in threading.enumerate() if not t.name.startswith("asyncio_")}


def _open_files() -> int:
    """Count the open file descriptors, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
