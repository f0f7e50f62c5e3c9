"""Retry of refused invocations: the service did not run the function, so asking again is no second run.

Retry of *tasks* that failed is the engine's business and has its own budget.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.throttle import AdaptiveLimit, Outcome
from serverless_gc.types import Buffer, TaskSpec

__all__ = ["RetryPolicy", "RetryingInvoker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When and how often to repeat a refused invocation.

    The wait before try ``i + 1`` is uniform between 0 and ``min(cap, base * 2**(i - 1))`` seconds ("full jitter").

    Parameters
    ----------
    max_tries
        Most tries of one attempt, the first included; 1 means never repeat.
    base
        Upper bound of the first wait in seconds.
    cap
        Upper bound of every wait in seconds.
    budget
        Repeats that may be outstanding over all tasks: each repeat takes one, each success gives one back. When it
        is used up refusals are passed on at once, so that a service in trouble is not asked ever more.

    Examples
    --------
    >>> RetryPolicy(base=0.1, cap=1.0).ceiling(3)
    0.4
    """

    max_tries: int = 10
    base: float = 0.05
    cap: float = 5.0
    budget: int = 2000

    def __post_init__(self) -> None:
        if self.max_tries < 1:
            raise InputError(f"max_tries must be at least 1, got {self.max_tries}")
        if not 0 <= self.base <= self.cap:
            raise InputError(f"base must be at least 0 and at most cap={self.cap}, got {self.base}")
        if self.budget < 0:
            raise InputError(f"budget must be at least 0, got {self.budget}")

    def ceiling(self, failed: int) -> float:
        """Longest wait in seconds after the given number of failed tries."""
        return min(self.cap, self.base * 2.0 ** min(failed - 1, 60))


class RetryingInvoker(Invoker):
    """Repeats invocations that were refused, within an adaptive concurrency limit.

    Only refusals are repeated: ``"throttled"``, and ``"unavailable"`` if the function did not run. Everything else
    passes through, a cancellation at once. Every attempt ends within its timeout, waits included, even if the inner
    invoker never returns.

    Parameters
    ----------
    inner
        Runs one try.
    policy
        When and how often.
    limit
        How many tries may be under way; by default it starts at the inner invoker's concurrency.
    sleep, rng, clock
        Replaceable for tests: wait some seconds, uniform numbers, seconds on a monotonic clock.

    Attributes
    ----------
    limit : AdaptiveLimit
        Its ``found`` is the concurrency that the service was seen to admit.

    Examples
    --------
    >>> from serverless_gc.inject import Faults
    >>> from serverless_gc.invoke.simulated import SimulatedInvoker
    >>> from serverless_gc.invoke.wrappers import inject
    >>> from serverless_gc.store.memory import MemoryStore
    >>> from serverless_gc.wire import Task
    >>> store = MemoryStore()
    >>> task = Task("run", 0, "t0", 0, 0, "noop", (), "", store.url, params={"size": 2})
    >>> throttled = inject(SimulatedInvoker(store), [Faults(throttle=1.0, throttle_times=2)])
    >>> invoker = RetryingInvoker(throttled, RetryPolicy(base=0.0))
    >>> reply = asyncio.run(invoker.invoke(TaskSpec("t0", slot=0, version=0), task.to_bytes(), timeout=10.0))
    >>> invoker.stats.invocations, invoker.stats.throttles, invoker.stats.retries
    (3, 2, 2)
    """

    def __init__(
        self,
        inner: Invoker,
        policy: RetryPolicy | None = None,
        *,
        limit: AdaptiveLimit | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.policy = policy or RetryPolicy()
        self.limit = limit or AdaptiveLimit(inner.concurrency)
        self.name = inner.name
        self.concurrency = inner.concurrency
        self.stats = inner.stats
        self._sleep, self._rng, self._clock = sleep, rng or random.Random(), clock
        self._spare = self.policy.budget

    @property
    def admitted(self) -> int | None:
        """Invocations that the service was seen to admit at once; None while it refused none."""
        return self.limit.found

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

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Run one attempt, repeating it while it is refused.

        Raises
        ------
        InvokeError
            The last refusal once tries, time or budget are used up, or any other failure.
        """
        end = self._clock() + timeout
        sent = False
        try:
            async with asyncio.timeout(timeout):
                for failed in range(1, self.policy.max_tries + 1):
                    ticket = await self.limit.acquire()
                    sent = True
                    outcome: Outcome = "other"
                    try:
                        reply = await self.inner.invoke(task, payload, timeout=max(0.0, end - self._clock()))
                        outcome = "ok"
                    except InvokeError as error:
                        outcome = "throttled" if error.kind == "throttled" else "other"
                        wait = self._wait(error, failed, end)
                    else:
                        self._spare = min(self.policy.budget, self._spare + 1)
                        return reply
                    finally:
                        self.limit.release(ticket, outcome)
                    sent = False
                    self.stats.retries += 1
                    await self._sleep(wait)
        except TimeoutError:
            raise self._late(task, timeout, sent=sent) from None
        raise AssertionError("the last try returns or raises")

    def _wait(self, error: InvokeError, failed: int, end: float) -> float:
        """Seconds to wait before the next try; raises ``error`` if there is to be none."""
        refused = error.kind in {"throttled", "unavailable"} and error.retryable and not error.may_have_run
        if not refused or failed == self.policy.max_tries or self._spare == 0:
            raise error
        wait = self._rng.uniform(0.0, self.policy.ceiling(failed))
        if self._clock() + wait >= end:
            raise error
        self._spare -= 1
        return wait

    def _late(self, task: TaskSpec, timeout: float, *, sent: bool) -> InvokeError:
        if sent:
            what = "no reply"
        else:
            what = f"not started: {self.limit.in_flight} of {self.limit.limit} invocations are under way"
        return InvokeError(
            f"task {task.task_id}, attempt {task.attempt}: {what} within {timeout:g} s",
            kind="timeout",
            reason="no reply" if sent else "not started",
            may_have_run=sent,
        )
