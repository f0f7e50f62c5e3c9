"""Stragglers and faults around any invoker, drawn from the task's identity: the same run, the same faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

import numpy as np

from serverless_gc.errors import FailureKind, InvokeError
from serverless_gc.inject import Faults, Injection, Stragglers
from serverless_gc.invoke.base import Invoker
from serverless_gc.types import Buffer, TaskSpec
from serverless_gc.wire import Reply, Task

__all__ = ["FaultyInvoker", "StragglingInvoker", "inject"]

Sleep = Callable[[float], Awaitable[object]]

_INVOKE_FAULTS = ("throttle", "concurrency", "drop", "lose_reply", "fail", "late", "non_finite", "wrong")


class _Wrapper(Invoker):
    """Passes everything on to the inner invoker, whose counts it shares."""

    def __init__(self, inner: Invoker) -> None:
        super().__init__()
        self.inner = inner
        self.name = inner.name
        self.concurrency = inner.concurrency
        self.stats = inner.stats

    async def open(self) -> None:
        """Open the inner invoker."""
        await self.inner.open()

    async def connect(self, n: int) -> int:
        """Open connections of the inner invoker."""
        return await self.inner.connect(n)

    async def memory(self) -> int | None:
        """Return what the inner invoker knows."""
        return await self.inner.memory()

    def forget(self, keys: Collection[str]) -> None:
        """Tell the inner invoker."""
        self.inner.forget(keys)

    async def close(self) -> None:
        """Close the inner invoker."""
        await self.inner.close()


class StragglingInvoker(_Wrapper):
    """Makes some tasks slow.

    A task takes ``factor * (base + inner)`` seconds, where ``inner`` is what the inner call took and ``factor`` is 1
    or the slowdown. The share of ``base`` passes before the inner call, as a start-up would: the result of a slow
    task is not in the store early, and one that is voided meanwhile does not run at all. A task that publishes partial
    results has its share spread over its messages instead, and one that stops at a time has it within that time: the
    worker itself is slow, also on Lambda, which bills it.

    Parameters
    ----------
    inner
        Runs the task.
    stragglers
        Which tasks are slow, and how slow.
    sleep, clock
        Replaceable for tests: wait some seconds, seconds on a monotonic clock.
    """

    def __init__(
        self,
        inner: Invoker,
        stragglers: Stragglers,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner)
        self._stragglers = stragglers
        self._sleep, self._clock = sleep, clock

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt, slowly if it is a straggler.

        Raises
        ------
        InvokeError
            Of kind ``"timeout"`` if the slowed task would not end in time; whatever the inner invoker raises.
        """
        factor = self._stragglers.factor(task.slot, task.version, task.attempt)
        if task.milestones or task.stop_at is not None:
            return await self.inner.invoke(task, _paced(payload, factor, self._stragglers.base), timeout=timeout)
        begin = self._clock()
        await self._wait(task, factor * self._stragglers.base, timeout, timeout)
        started = self._clock()
        reply = await self.inner.invoke(task, payload, timeout=max(0.0, timeout - (started - begin)))
        now = self._clock()
        await self._wait(task, (factor - 1.0) * (now - started), timeout - (now - begin), timeout)
        return reply

    async def _wait(self, task: TaskSpec, seconds: float, left: float, timeout: float) -> None:
        if seconds <= 0:
            return
        await self._sleep(min(seconds, max(0.0, left)))
        if seconds > left:
            raise InvokeError(
                f"task {task.task_id}, attempt {task.attempt}: no reply within {timeout:g} s (slowed on purpose)",
                kind="timeout",
                reason="no reply",
            )


def _paced(payload: Buffer, factor: float, base: float) -> Buffer:
    """Tell the worker to be slow at every message, or before and at every unit of its work."""
    task = Task.from_bytes(payload)
    pace = task.params.get("pace", 0.0) + factor * base / task.params.get("n_messages", 1)
    slowdown = task.params.get("slowdown", 1.0) * factor
    return replace(task, params={**task.params, "pace": pace, "slowdown": slowdown}).to_bytes()


class FaultyInvoker(_Wrapper):
    """Makes some invocations fail in the ways that Lambda has.

    Parameters
    ----------
    inner
        Runs the task.
    faults
        Which tasks fail, and how; the meaning of each is told there.
    """

    def __init__(self, inner: Invoker, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults
        self._running = 0
        self._throttled: dict[tuple[int, int, str], int] = {}
        self._last: dict[int, tuple[int, Buffer]] = {}

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt, or let it fail.

        Raises
        ------
        InvokeError
            The injected fault, or whatever the inner invoker raises.
        """
        await self._throttle(task)
        self._running += 1
        try:
            if self._hits("drop", task):
                await asyncio.get_running_loop().create_future()  # nobody ever answers
            if task.attempt < self._faults.fail_times and self._hits("fail", task):
                raise self._error(task, "function", "the function raised")
            reply = await self.inner.invoke(task, payload, timeout=timeout)
        finally:
            self._running -= 1
        if self._hits("lose_reply", task):
            raise self._error(task, "lost", "the reply was lost on the way")
        if self._hits("non_finite", task):
            reply = _spoiled(reply, add=np.nan)
        if self._hits("wrong", task):
            reply = _spoiled(reply, add=1.0)
        return self._late(task, reply) if self._faults.late else reply

    def _hits(self, name: str, task: TaskSpec) -> bool:
        return self._faults.hits(name, task.slot, task.version)

    async def _throttle(self, task: TaskSpec) -> None:
        limit = self._faults.concurrency
        full = bool(limit) and self._running >= limit
        if not full and self._hits("throttle", task):
            key = (task.version, task.slot, task.task_id)
            times = self._throttled.get(key, 0)
            full = times < self._faults.throttle_times
            self._throttled[key] = times + 1
        if full:
            self.stats.invocations += 1
            self.stats.throttles += 1
            await asyncio.sleep(0)  # a refusal takes a round trip: the round's other calls are sent meanwhile
            raise self._error(task, "throttled", "429 TooManyRequestsException, ConcurrentInvocationLimitExceeded")

    def _late(self, task: TaskSpec, reply: Buffer) -> Buffer:
        earlier = self._last.get(task.slot)
        self._last[task.slot] = (task.version, reply)
        stale = earlier is not None and earlier[0] < task.version
        if earlier is not None and stale and task.attempt == 0 and self._hits("late", task):
            return earlier[1]
        return reply

    def _error(self, task: TaskSpec, kind: FailureKind, what: str) -> InvokeError:
        return InvokeError(f"task {task.task_id}, attempt {task.attempt}: {what} (injected fault)", kind=kind)


def _spoiled(frame: Buffer, *, add: float) -> Buffer:
    """Add to the first entry of the value that a reply carries, if it carries one."""
    reply = Reply.from_bytes(frame)
    if reply.value is None or reply.value.size == 0:
        return frame
    value = reply.value.astype(np.result_type(reply.value.dtype, np.float16), copy=True)
    value.flat[0] += add
    return replace(reply, value=value).to_bytes()


def inject(invoker: Invoker, injections: Iterable[Injection]) -> Invoker:
    """Wrap an invoker with stragglers and faults.

    Stragglers go inside, faults outside, whatever the order given: an invocation that is refused or dropped takes
    no service time, and one that is slow occupies its share of the concurrency while it is slow.

    Parameters
    ----------
    invoker
        What to wrap.
    injections
        Descriptions; those that concern the store alone are passed over.

    Returns
    -------
    Invoker
        The wrapped invoker, or the invoker itself if nothing is to be injected.

    Examples
    --------
    >>> from serverless_gc.invoke.simulated import SimulatedInvoker
    >>> from serverless_gc.store.memory import MemoryStore
    >>> wrapped = inject(SimulatedInvoker(MemoryStore()), [Faults(drop=0.1), Stragglers(slowdown=10)])
    >>> type(wrapped).__name__, type(wrapped.inner).__name__
    ('FaultyInvoker', 'StragglingInvoker')
    """
    described = tuple(injections)
    for item in described:
        if isinstance(item, Stragglers):
            invoker = StragglingInvoker(invoker, item)
    for item in described:
        if isinstance(item, Faults) and any(_wanted(item, name) for name in _INVOKE_FAULTS):
            invoker = FaultyInvoker(invoker, item)
    return invoker


def _wanted(faults: Faults, name: str) -> bool:
    value = getattr(faults, name)
    return value > 0 if isinstance(value, (int, float)) else len(value) > 0
