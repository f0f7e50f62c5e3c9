"""Runs the real worker in processes of its own: what threads cannot do, without an account.

Each process is a fresh interpreter that speaks frames over its standard streams, so nothing depends on how the
caller was started: notebooks, pytest, scripts without a ``__main__`` guard, and running event loops are all fine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.envelope import check_reply, check_request, size_of
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Store
from serverless_gc.types import Buffer, TaskSpec
from serverless_gc.worker.cache import cache_bytes

__all__ = ["ProcessInvoker"]

_LENGTH = struct.Struct("<Q")
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class ProcessInvoker(Invoker):
    """Runs the worker entry in a pool of processes, under Lambda's size limits.

    Each process keeps BLAS to one thread, and an equal share of what all of them may remember of blocks:
    ``SERVERLESS_GC_CACHE_MB``, or 256 MiB. A process that dies fails its own task only and is replaced; one that
    exceeds the timeout is killed and replaced, as Lambda does. A cancelled task runs on to its end, at most
    until its timeout; its reply is dropped, and its process is free again afterwards.

    Parameters
    ----------
    store
        Holds the blocks; the processes open its URL by themselves, so it must be ``file://`` or ``s3://``.
    processes
        Number of processes, by default the number of CPUs. More tasks than processes queue.
    limits
        Sizes that are refused as Lambda refuses them.

    Raises
    ------
    InputError
        If other processes cannot open the store.

    Examples
    --------
    >>> from serverless_gc.store.memory import MemoryStore
    >>> ProcessInvoker(MemoryStore())
    Traceback (most recent call last):
    ...
    serverless_gc.errors.InputError: store memory://... lives in this process and other processes cannot open it: ...
    """

    name = "processes"

    def __init__(self, store: Store, *, processes: int | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        if processes is not None and processes < 1:
            raise InputError(f"processes must be at least 1, got {processes}")
        if not store.url.startswith(("file://", "s3://")):
            raise InputError(
                f"store {store.url} lives in this process and other processes cannot open it: "
                "use a store with a file:// or s3:// URL, or the local backend"
            )
        self._n_processes = processes or os.cpu_count() or 1
        self._limits = limits
        self._idle: asyncio.LifoQueue[_Child | None] = asyncio.LifoQueue()
        self._children: set[_Child] = set()
        self._exchanges: set[asyncio.Task[bytes]] = set()
        self._closed = True

    async def open(self) -> None:
        """Start the processes; they import while the driver goes on."""
        if not self._closed:
            return
        self._closed = False
        for child in await asyncio.gather(*(self._start_child() for _ in range(self._n_processes))):
            self._children.add(child)
            self._idle.put_nowait(child)

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt in a process and return the packed reply.

        Raises
        ------
        InvokeError
            ``"too-large"`` for a request or reply above the limits, ``"timeout"``, or ``"function"`` if the process
            died.
        """
        if self._closed:
            raise InputError("the process invoker is not open: call open() first")
        check_request(task, payload, self._limits.request_bytes)
        stats = self.stats
        stats.in_flight += 1
        stats.peak = max(stats.peak, stats.in_flight)
        deadline = asyncio.get_running_loop().time() + timeout
        child: _Child | None = None
        try:
            async with asyncio.timeout_at(deadline):
                child = await self._next_idle(task)
                stats.invocations += 1
                reply = await asyncio.shield(self._start(child, payload, deadline))
        except TimeoutError:
            raise InvokeError(
                f"task {task.task_id}, attempt {task.attempt}: no reply within {timeout:g} s",
                kind="timeout",
                reason="no reply" if child is not None else "not started",
                may_have_run=child is not None,
            ) from None
        except (OSError, EOFError) as error:
            code = child.returncode if child is not None else None
            raise InvokeError(
                f"task {task.task_id}, attempt {task.attempt}: the worker process died (exit code {code}); "
                "a crash in native code and the system's out-of-memory killer do that",
                kind="function",
                reason="process died",
            ) from error
        finally:
            stats.in_flight -= 1
        check_reply(task, reply, self._limits.reply_bytes)
        return reply

    async def _next_idle(self, task: TaskSpec) -> _Child:
        idle = self._idle
        child = await idle.get()
        if child is None:  # closed while this caller waited: tell the next one as well
            idle.put_nowait(None)
            raise InvokeError(
                f"task {task.task_id}: the process invoker was closed", kind="unavailable", retryable=False
            )
        return child

    def _start(self, child: _Child, payload: Buffer, deadline: float) -> asyncio.Task[bytes]:
        """Start an exchange that outlives a cancelled caller, but not the deadline."""
        exchange = asyncio.create_task(self._exchange(child, payload))
        timer = asyncio.get_running_loop().call_at(deadline, self._expire, exchange, child)
        self._exchanges.add(exchange)
        exchange.add_done_callback(lambda done: self._finished(done, timer))
        return exchange

    @staticmethod
    def _expire(exchange: asyncio.Task[bytes], child: _Child) -> None:
        if not exchange.done():
            child.kill()

    async def _exchange(self, child: _Child, payload: Buffer) -> bytes:
        """Run one payload on a child and make the child, or its successor, idle again."""
        try:
            reply = await child.exchange(payload)
        except (OSError, EOFError):
            await self._replace(child)
            raise
        self._idle.put_nowait(child)
        return reply

    def _finished(self, exchange: asyncio.Task[bytes], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._exchanges.discard(exchange)
        if not exchange.cancelled():
            exchange.exception()  # a caller that was cancelled does not ask for it any more

    async def _replace(self, child: _Child) -> None:
        self._children.discard(child)
        await child.stop()
        if not self._closed:
            successor = await self._start_child()
            self._children.add(successor)
            self._idle.put_nowait(successor)

    async def _start_child(self) -> _Child:
        return await _Child.start(cache_bytes() // self._n_processes)

    async def close(self) -> None:
        """End all processes, killing those that still compute."""
        self._closed = True
        self._idle.put_nowait(None)
        exchanges = tuple(self._exchanges)
        for child in self._children:
            child.kill()
        await asyncio.gather(*exchanges, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in self._children))
        self._children.clear()
        self._idle = asyncio.LifoQueue()


class _Child:
    """One worker process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._killed = False

    @classmethod
    async def start(cls, cache: int) -> _Child:
        """Start a process that remembers so many bytes of blocks."""
        forced = {"PYTHONPATH": os.pathsep.join(sys.path), "SERVERLESS_GC_CACHE_MB": str(cache / 2**20)}
        environment = dict.fromkeys(_BLAS_VARIABLES, "1") | os.environ | forced
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from serverless_gc.invoke.processes import serve; serve()",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                limit=2**20,
                start_new_session=True,  # an interrupt at the terminal is the driver's to handle
            )
        )

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def exchange(self, payload: Buffer) -> bytes:
        """Send one frame and wait for the answer; EOFError or OSError if the process died."""
        to_child, from_child = self._process.stdin, self._process.stdout
        if to_child is None or from_child is None:
            raise EOFError("the worker process has no pipes")
        to_child.write(_LENGTH.pack(size_of(payload)))
        to_child.write(payload)
        await to_child.drain()
        (length,) = _LENGTH.unpack(await from_child.readexactly(_LENGTH.size))
        return await from_child.readexactly(length)

    def kill(self) -> None:
        """End the process at once, if it has not been told to before.

        A second signal would poll, and with that reap, a process that asyncio is about to reap itself.
        """
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """Wait for the end of a process that dies or was killed; release both pipes."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            self.kill()
        await self._process.communicate()


def serve() -> None:
    """Serve frames on the standard streams until the driver hangs up: the main function of a worker process."""
    from serverless_gc.worker.entry import run
    from serverless_gc.worker.opening import open_blobs

    requests = sys.stdin.buffer
    # A driver that is gone wants no reply.
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # what user code prints goes to the driver's standard error, not among the frames
        while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if len(payload := requests.read(length)) < length:
                return  # the driver went away in the middle of a frame
            reply = run(payload, open_blobs)
            replies.write(_LENGTH.pack(len(reply)))
            replies.write(reply)
            replies.flush()
