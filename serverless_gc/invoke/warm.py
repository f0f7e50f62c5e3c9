"""Invocations that do nothing: they open connections and start environments before work waits for either."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from serverless_gc.errors import ConfigError, InputError, InvokeError
from serverless_gc.invoke.base import Invoker
from serverless_gc.types import TaskSpec
from serverless_gc.wire import FrameError, Reply, Task

__all__ = ["HOLD", "Warmth", "warm"]

HOLD = 0.075
"""Seconds for which each no-op stays, so that the next one is not served by the same environment."""

_NOWHERE = "file:///"  # a store that every worker can open; a no-op reads and writes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """What came of a warm-up.

    Attributes
    ----------
    asked, answered
        Invocations made, and those of them that were answered. Lambda bills them as it bills work.
    environments
        Different environments among the answers.
    cold
        Answers of environments that were started for them.
    connections
        Connections opened ahead, where the invoker can do so.
    seconds
        How long it took.
    failures
        Reason to how often, of the invocations that were not answered.

    Examples
    --------
    >>> print(Warmth(asked=8, answered=7, environments=7, cold=5, seconds=0.9, failures={"throttled": 1}))
    7 of 8 no-op invocations answered by 7 environments, 5 of them new, in 0.90 s (failed: 1 throttled)
    """

    asked: int
    answered: int = 0
    environments: int = 0
    cold: int = 0
    connections: int = 0
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        failed = ", ".join(f"{n} {reason}" for reason, n in sorted(self.failures.items()))
        return (
            f"{self.answered} of {self.asked} no-op invocations answered by {self.environments} environments, "
            f"{self.cold} of them new, in {self.seconds:.2f} s" + (f" (failed: {failed})" if failed else "")
        )


async def warm(
    invoker: Invoker,
    n: int,
    *,
    hold: float = HOLD,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Warmth:
    """Make ``n`` no-op invocations at once.

    Parameters
    ----------
    invoker
        An open invoker.
    n
        How many; more than its concurrency makes no sense, they would wait for one another.
    hold
        Seconds for which each stays, at most 1. See `HOLD`.
    timeout
        Seconds after which one is given up.
    clock
        Measures the time.

    Raises
    ------
    InputError
        If ``n`` is below 1 or above the invoker's concurrency.
    ConfigError
        If function or credentials are refused: no invocation can succeed.

    Examples
    --------
    >>> from serverless_gc.invoke.simulated import SimulatedInvoker
    >>> from serverless_gc.store.memory import MemoryStore
    >>> report = asyncio.run(warm(SimulatedInvoker(MemoryStore()), 3, hold=0.0))
    >>> report.asked, report.answered, report.environments
    (3, 3, 1)
    """
    if not 1 <= n <= invoker.concurrency:
        raise InputError(f"n must be at least 1 and at most the concurrency of {invoker.concurrency}, got {n}")
    begun = clock()
    connections = await invoker.connect(n)
    run = f"warm-{uuid.uuid4().hex[:12]}"

    async def one(slot: int) -> Mapping[str, Any]:
        spec = TaskSpec(f"warm-{slot}", slot=slot, version=0)
        params = {"hold": hold}
        task = Task(
            run, 0, spec.task_id, slot, 0, kernel="noop", blocks=(), result_key="", store=_NOWHERE, params=params
        )
        reply = Reply.from_bytes(await invoker.invoke(spec, task.to_bytes(), timeout=timeout))
        if reply.status != "ok":
            raise InvokeError(reply.error.get("message", ""), kind="function", reason=reply.error.get("kind", ""))
        return reply.stats

    outcomes = await asyncio.gather(*(one(slot) for slot in range(n)), return_exceptions=True)
    stats: list[Mapping[str, Any]] = []
    failures: Counter[str] = Counter()
    for outcome in outcomes:
        if not isinstance(outcome, BaseException):
            stats.append(outcome)
        elif isinstance(outcome, InvokeError) and outcome.kind in {"denied", "missing"}:
            raise ConfigError(str(outcome)) from outcome
        elif isinstance(outcome, (InvokeError, FrameError)):
            failures[getattr(outcome, "reason", "")] += 1
        else:
            raise outcome
    return Warmth(
        asked=n,
        answered=len(stats),
        environments=len({each.get("log_stream") or each.get("pid") for each in stats}),
        cold=sum(bool(each.get("cold")) for each in stats),
        connections=connections,
        seconds=clock() - begun,
        failures=dict(failures),
    )
