"""What a session lends to its rounds: store, invoker, host, and a place for what nobody waits for."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Code
from serverless_gc.encode.kept import KEPT
from serverless_gc.engine import Host, VirtualHost
from serverless_gc.errors import StoreError
from serverless_gc.invoke.base import Invoker
from serverless_gc.limits import Limits
from serverless_gc.observe import Progress, Report
from serverless_gc.rounds.collect import Presign
from serverless_gc.store.base import Store
from serverless_gc.store.retry import StoreStats
from serverless_gc.types import Buffer, WaitPolicy

__all__ = ["Location", "Owner", "Resources"]

ALIVE = "alive"
RENEWED = 43200.0
"""Seconds for which one mark of a run that is there is used."""

_log = logging.getLogger(__name__)


class _Stored(Protocol):
    """What was stored knows how many bytes were sent."""

    @property
    def sent(self) -> int: ...


_S = TypeVar("_S", bound=_Stored)


@dataclass(slots=True)
class Resources:
    """What a session lends to a round."""

    run: str
    prefix: str
    store: Store
    invoker: Invoker
    host: Host
    limits: Limits
    attempt_timeout: float
    max_attempts: int
    tolerance: float | None = None
    logs_hint: str = ""
    store_stats: StoreStats | None = None
    progress: Progress | None = None
    rounds: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    chores: set[asyncio.Task[Any]] = field(default_factory=set)
    warmed: int = 0
    _told: tuple[int, int] = (0, 0)
    _late: dict[str, float] = field(default_factory=dict)
    _cleared: float = 0.0
    presign: Presign | None = None
    once: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    async def alive(self) -> str:
        """Return the key of an object that says that the run is there; a task that took long looks for it.

        A new one is stored twice a day, for a bucket's lifecycle rule may delete what is older than a day.
        """
        key = f"{self.prefix}/{ALIVE}/{int((time.monotonic() - self._begun) / RENEWED):04d}"
        await self.put_once(key, (b"",))
        return key

    @property
    def simulated(self) -> bool:
        """Whether rounds run on a simulated clock."""
        return isinstance(self.host, VirtualHost)

    def service_counts(self) -> dict[str, int]:
        """Return running totals of what the services refused; a round's share is a difference."""
        return {
            "throttles": self.invoker.stats.throttles,
            "retries": self.invoker.stats.retries,
            "slow_downs": self.store_stats.slow_downs if self.store_stats else 0,
        }

    async def timed(self, storing: Awaitable[_S]) -> tuple[_S, Report]:
        """Store something; return it, and a report of what storing it cost."""
        start, refused = time.perf_counter(), self.service_counts()["slow_downs"]
        stored = await storing
        return stored, Report(
            rounds=0,
            bytes_up=stored.sent,
            encode_seconds=time.perf_counter() - start,
            slow_downs=self.service_counts()["slow_downs"] - refused,
        )

    async def put_once(self, key: str, data: Sequence[Buffer]) -> None:
        """Store an object whose key is named by its content, unless this run has stored it already."""
        writing = self.once.get(key)
        if writing is None or (writing.done() and (writing.cancelled() or writing.exception())):
            writing = self.once[key] = asyncio.get_running_loop().create_task(self.store.put(key, data))
        await asyncio.shield(writing)  # others may wait for it too

    async def discard(self, keys: Collection[str]) -> Mapping[str, str]:
        """Delete stored objects, and have workers in this process forget them; return what could not be deleted."""
        failed = await self.store.delete(keys)
        self.invoker.forget(keys)
        return failed

    def store_requests(self) -> tuple[int, int]:
        """Return how many requests to the store were billed as reads and as writes since this was last asked.

        So reports add up to all that the driver asked, whatever ran at the same time.
        """
        stats = self.store_stats or StoreStats()
        (reads, writes), self._told = self._told, (stats.reads, stats.writes)
        return stats.reads - reads, stats.writes - writes

    def chore(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that no answer waits for; `settle` waits for it before the session closes."""
        task = asyncio.get_running_loop().create_task(coro)
        self.chores.add(task)
        task.add_done_callback(self._chore_done)
        return task

    def _chore_done(self, task: asyncio.Task[Any]) -> None:
        self.chores.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.warning("clean-up after a round failed, closing the session tries again: %s", error)

    async def settle(self) -> None:
        """Wait for the chores, and for what is still being stored although nobody waits for it any more."""
        await asyncio.gather(*self.chores, *self.once.values(), return_exceptions=True)

    async def clear_late(self, base: str = "", *, every: float = 0.0) -> None:
        """Delete what workers with partial results stored for rounds after these were over; cancel marks stay.

        A worker sees the mark after its next message only, so each round clears up after those before it.

        Parameters
        ----------
        base
            Prefix of a round that closed while such workers were running.
        every
            Do nothing if this was done less than so many seconds ago.
        """
        now = time.monotonic()
        if base:
            self._late[base] = now
        if not self._late or now - self._cleared < every:
            return
        self._cleared = now
        keys = [info.key async for info in self.store.list(f"{self.prefix}/round/")]
        await self.store.delete([k for k in keys if f"{k.rpartition('/')[0]}/" in self._late and not _is_mark(k)])
        self._late = {late: t for late, t in self._late.items() if now - t < self.attempt_timeout}

    async def sweep(self) -> None:
        """Delete every object of the run; first what says that it is there, so that functions store nothing more."""
        marks = [key for key in self.once if key.startswith(f"{self.prefix}/{ALIVE}/")]
        await self.store.delete(marks)
        keys = [info.key async for info in self.store.list(f"{self.prefix}/")]
        failed = await self.store.delete(keys)
        if failed:
            shown = ", ".join(f"{key} ({why})" for key, why in list(failed.items())[:10])
            raise StoreError(
                f"{len(failed)} of {len(keys)} objects under {self.store.url} could not be deleted: {shown}. "
                "Delete them with: serverless-gc clean"
            )


@dataclass(frozen=True, slots=True)
class Location:
    """Where a data set is stored: with its session's other objects, or under a name that outlives the session.

    Attributes
    ----------
    key
        Its name among the session's data sets.
    name
        The name that it keeps; empty for none.
    """

    key: str
    name: str = ""

    def prefix(self, res: Resources) -> str:
        """Return what its keys begin with."""
        return f"{KEPT}/{self.name}" if self.name else f"{res.prefix}/data/{self.key}"


def _is_mark(key: str) -> bool:
    return key.endswith("/cancel")


class Owner(Protocol):
    """What coded data needs of its session.

    ``late`` has the workers that were late in the last gradient, by the number of workers.
    """

    late: dict[int, frozenset[int]]

    async def resources(self) -> Resources:
        """Return the open store, invoker and host."""

    def policy_for(
        self,
        code: Code,
        deadline: float | None,
        *,
        inner: WaitPolicy | None = None,
        on_expire: Literal["abort", "close"] = "abort",
        dtype: DTypeLike = np.float64,
    ) -> WaitPolicy:
        """Make the waiting policy of one round: the given one or the session's, within the deadline."""
