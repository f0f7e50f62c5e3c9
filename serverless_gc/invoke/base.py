"""The invoker seam: run one task somewhere, one attempt.

Frames in, frames out: the payload is a packed `serverless_gc.wire` task, the answer a packed reply. An invoker
never retries by itself; `serverless_gc.invoke.retry` and the engine do, and count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from serverless_gc.types import Buffer, TaskSpec

__all__ = ["Invoker", "InvokerStats"]


@dataclass(slots=True)
class InvokerStats:
    """Running counts of one invoker; never reset, so a round's share is a difference.

    ``invocations`` counts requests actually sent; ``throttles`` those answered 429; ``retries`` repeats of an
    invocation that the service refused; ``in_flight`` and ``peak`` concurrency.
    """

    invocations: int = 0
    throttles: int = 0
    retries: int = 0
    in_flight: int = 0
    peak: int = 0


class Invoker(ABC):
    """Runs tasks, one attempt each."""

    name: str = "?"
    concurrency: int = 1000

    def __init__(self) -> None:
        self.stats = InvokerStats()

    @property
    def admitted(self) -> int | None:
        """Invocations that the service was seen to admit at once; None while it refused none."""
        return None

    async def open(self) -> None:
        """Start what needs starting (threads, processes, connections). Called once, on the loop that invokes."""

    async def connect(self, n: int) -> int:  # noqa: ARG002 - for invokers that have connections
        """Open connections for ``n`` invocations at once, none being made; return how many were opened.

        Called when a round is coming. It raises nothing: an invocation that finds no connection makes one itself.
        """
        return 0

    async def memory(self) -> int | None:
        """Return the bytes of memory that a function has; None if it has no limit, or does not say."""
        return None

    def forget(self, keys: Collection[str]) -> None:
        """Drop what workers in this process remember of stored objects: these were deleted."""

    @abstractmethod
    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt and return the packed reply.

        Parameters
        ----------
        task
            Which task and attempt this is; for wrappers, logs and limits.
        payload
            The packed task.
        timeout
            Seconds after which the attempt is given up.

        Raises
        ------
        InvokeError
            If there is no reply; ``kind`` says why. Cancelling the coroutine voids the attempt.
        """

    async def close(self) -> None:
        """Stop everything that `open` started, within two seconds."""
