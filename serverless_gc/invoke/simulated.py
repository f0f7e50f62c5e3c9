"""Runs the real worker in line, one call at a time: for the virtual-time host, where only the clock is simulated."""

from __future__ import annotations

from collections.abc import Collection

from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.envelope import check_reply, check_request
from serverless_gc.invoke.local import Opener, new_warm, opener
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store.base import Store
from serverless_gc.types import Buffer, TaskSpec

__all__ = ["SimulatedInvoker"]


class SimulatedInvoker(Invoker):
    """Runs tasks synchronously on the caller's thread; what `LocalInvoker` answers, without threads and without time.

    Parameters
    ----------
    store
        Holds the blocks; read through ``store.blobs()``, or opened by its URL.
    limits
        Sizes that are refused as Lambda refuses them.

    Examples
    --------
    >>> from serverless_gc.store.memory import MemoryStore
    >>> from serverless_gc.wire import Reply, Task
    >>> store = MemoryStore()
    >>> task = Task("run", 0, "t0", 0, 0, "noop", (), "", store.url, params={"size": 2})
    >>> Reply.from_bytes(SimulatedInvoker(store).run(TaskSpec("t0", slot=0, version=0), task.to_bytes())).status
    'ok'
    """

    name = "simulated"

    def __init__(self, store: Store, *, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self._limits = limits
        self._store = store.url
        self._open_blobs: Opener = opener(store)
        self._warm = new_warm()

    def run(self, task: TaskSpec, payload: Buffer) -> bytes:
        """Run one attempt and return the packed reply.

        Raises
        ------
        InvokeError
            Of kind ``"too-large"`` if request or reply exceed the limits.
        """
        from serverless_gc.worker.entry import run

        check_request(task, payload, self._limits.request_bytes)
        self.stats.invocations += 1
        self.stats.peak = max(self.stats.peak, 1)
        reply = run(payload, self._open_blobs, warm=self._warm)
        check_reply(task, reply, self._limits.reply_bytes)
        return reply

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt; ``timeout`` has no meaning, since no time passes."""
        del timeout
        return self.run(task, payload)

    def forget(self, keys: Collection[str]) -> None:
        """Drop what is remembered of these objects."""
        self._warm.forget(self._store, keys)
