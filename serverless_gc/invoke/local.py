"""Runs the real worker on threads of this process: the default backend, no account needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from serverless_gc.codes.threads import BLAS
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.envelope import check_reply, check_request
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Blobs, Store
from serverless_gc.types import Buffer, TaskSpec

if TYPE_CHECKING:
    from serverless_gc.worker.entry import Warm

__all__ = ["LocalInvoker"]

Opener: TypeAlias = Callable[[str], Blobs]


def opener(store: Store) -> Opener:
    """Return how a worker in this process opens the store: directly if it can, else by its URL."""
    blobs = store.blobs()
    if blobs is not None:
        return lambda _url: blobs
    from serverless_gc.worker.opening import open_blobs

    return open_blobs


class LocalInvoker(Invoker):
    """Runs the worker entry on a few threads, under Lambda's size limits.

    BLAS is held to one thread while several tasks run, as it is in a small Lambda function: the tasks themselves are
    the parallelism. A task that is cancelled before a thread took it up does not run; one that runs is not
    interrupted, as on Lambda, and its reply is dropped.

    Parameters
    ----------
    store
        Holds the blocks; read through ``store.blobs()``, or opened by its URL.
    threads
        Number of threads, by default the number of CPUs. More tasks than threads queue.
    limits
        Sizes that are refused as Lambda refuses them.

    Examples
    --------
    >>> from serverless_gc.store.memory import MemoryStore
    >>> from serverless_gc.wire import Reply, Task
    >>> async def run_one():
    ...     store = MemoryStore()
    ...     task = Task("run", 0, "t0", 0, 0, "noop", (), "", store.url, params={"size": 2})
    ...     invoker = LocalInvoker(store, threads=1)
    ...     await invoker.open()
    ...     try:
    ...         return await invoker.invoke(TaskSpec("t0", slot=0, version=0), task.to_bytes(), timeout=10.0)
    ...     finally:
    ...         await invoker.close()
    >>> Reply.from_bytes(asyncio.run(run_one())).value
    array([0., 0.])
    """

    name = "local"

    def __init__(self, store: Store, *, threads: int | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        self._n_threads = threads or os.cpu_count() or 1
        self._limits = limits
        self._store = store.url
        self._open_blobs = opener(store)
        self._warm: Warm | None = None
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._outbox: _Outbox | None = None
        self._fresh: list[_Job] = []
        self._pending: set[_Job] = set()
        self._blas_held = False

    async def open(self) -> None:
        """Start the threads."""
        if self._threads:
            return
        warm = self._warm = new_warm()  # which imports the worker, so that no task waits for it
        if self._n_threads > 1:
            await asyncio.to_thread(BLAS.prepare)
        self._outbox = _Outbox(asyncio.get_running_loop())
        for i in range(self._n_threads):
            # Daemons: a task that hangs must not keep the interpreter from ending after an interrupt.
            thread = threading.Thread(
                target=_work,
                args=(self._queue, self._outbox, self._open_blobs, warm),
                name=f"sgc-local-{i}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt on a thread and return the packed reply.

        Raises
        ------
        InvokeError
            ``"too-large"`` for a request or reply above the limits, ``"timeout"``, or ``"function"`` if the worker
            itself broke down.
        """
        if self._outbox is None:
            raise InputError("the local invoker is not open: call open() first")
        check_request(task, payload, self._limits.request_bytes)
        loop = asyncio.get_running_loop()
        job = _Job(payload, loop.create_future())
        if not self._fresh:  # the first of this turn of the loop: hand all of them over at its end, waking threads once
            loop.call_soon(self._submit)
        self._fresh.append(job)
        self._pending.add(job)
        stats = self.stats
        stats.invocations += 1
        stats.in_flight += 1
        stats.peak = max(stats.peak, stats.in_flight)
        timer = loop.call_later(timeout, _give_up, job, task, timeout)
        try:
            reply: bytes = await job.future
        finally:
            timer.cancel()
            self._pending.discard(job)
            stats.in_flight -= 1
            if stats.in_flight == 0:
                self._release_blas()
        check_reply(task, reply, self._limits.reply_bytes)
        return reply

    def _submit(self) -> None:
        if len(self._threads) > 1 and self.stats.in_flight > 1 and not self._blas_held:
            BLAS.hold()
            self._blas_held = True
        for job in self._fresh:
            self._queue.put(job)
        self._fresh.clear()

    def _release_blas(self) -> None:
        if self._blas_held:
            BLAS.release()
            self._blas_held = False

    def forget(self, keys: Collection[str]) -> None:
        """Drop what the threads remember of these objects."""
        if self._warm is not None:
            self._warm.forget(self._store, keys)

    async def close(self) -> None:
        """End the threads; waits up to two seconds for tasks that still run, gives up those that do not."""
        threads, self._threads, outbox, self._outbox = self._threads, [], self._outbox, None
        self._warm = None
        if outbox is None:
            return
        for job in self._pending:
            _fail(job, InvokeError("the local invoker was closed", kind="unavailable", retryable=False))
        for _ in threads:
            self._queue.put(None)
        try:
            async with asyncio.timeout(2.0):
                await outbox.ended(len(threads))
        except TimeoutError:
            pass  # daemon threads: they end with their task
        else:
            for thread in threads:
                thread.join()
        self._release_blas()


class _Job:
    """A payload on its way to a thread. ``future`` belongs to the loop; threads only look whether it is done."""

    __slots__ = ("future", "outcome", "payload")

    def __init__(self, payload: Buffer, future: asyncio.Future[bytes]) -> None:
        self.payload = payload
        self.future = future
        self.outcome: bytes | BaseException = b""


def _fail(job: _Job, error: InvokeError) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def _give_up(job: _Job, task: TaskSpec, timeout: float) -> None:
    what = f"task {task.task_id}, attempt {task.attempt}: no reply within {timeout:g} s"
    _fail(job, InvokeError(what, kind="timeout", reason="no reply"))


class _Outbox:
    """Finished jobs on their way back to the loop, which is woken once for all that are ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[_Job | None] = deque()
        self._lock = threading.Lock()
        self._called = False
        self._n_ended = 0
        self._waiter: asyncio.Event = asyncio.Event()

    def put(self, job: _Job | None) -> None:
        """Hand over a finished job, on a thread; None says that the thread ends."""
        self._done.append(job)
        with self._lock:
            if self._called:
                return
            self._called = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return  # the loop is closed: nobody waits for this reply any more

    def _deliver(self) -> None:
        with self._lock:
            self._called = False
        while self._done:
            job = self._done.popleft()
            if job is None:
                self._n_ended += 1
                self._waiter.set()
            elif job.future.done():
                continue  # cancelled or given up meanwhile
            elif isinstance(job.outcome, BaseException):
                job.future.set_exception(job.outcome)
            else:
                job.future.set_result(job.outcome)

    async def ended(self, n: int) -> None:
        """Wait until ``n`` threads have ended."""
        while self._n_ended < n:
            self._waiter.clear()
            await self._waiter.wait()


def _work(queue: SimpleQueue[_Job | None], outbox: _Outbox, open_blobs: Opener, warm: Warm) -> None:
    from serverless_gc.worker.entry import run

    while (job := queue.get()) is not None:
        if job.future.done():
            continue
        try:
            job.outcome = run(job.payload, open_blobs, warm=warm)
        except BaseException as error:  # noqa: BLE001 - the worker answers its faults; this is one of the worker itself
            job.outcome = _broken(error)
        outbox.put(job)
        del job
    outbox.put(None)


def new_warm() -> Warm:
    """Make what all workers of one invoker in this process remember: what the user says, else a quarter of the machine.

    Of a store in memory blocks are views: remembering costs nothing, forgetting costs a checksum a round. Blocks that
    are deleted are forgotten, `Invoker.forget`.
    """
    from serverless_gc.worker.cache import cache_bytes
    from serverless_gc.worker.entry import Warm

    if "SERVERLESS_GC_CACHE_MB" in os.environ or not hasattr(os, "sysconf"):
        return Warm.of(cache_bytes())
    return Warm.of(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)


def _broken(error: BaseException) -> InvokeError:
    broken = InvokeError(
        f"the worker broke down with {type(error).__name__}: {error}", kind="function", reason="worker broke down"
    )
    broken.__cause__ = error
    return broken
