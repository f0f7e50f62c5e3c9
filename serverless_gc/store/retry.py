"""Waiting and trying again when a store says it is busy: bounded, jittered, counted. The one place for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from serverless_gc.errors import InputError, StoreError

__all__ = ["Billed", "Retrier", "StoreRetry", "StoreStats"]

_T = TypeVar("_T")

Billed: TypeAlias = Literal["read", "write", "free"]
"""What a request is billed as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRetry:
    """How often and how long to try a request that may succeed later.

    Before repeat ``i`` (1, 2, ...) the wait is drawn from ``[0, min(cap, base * 2**(i - 1))]`` ("full jitter"), so
    that requests refused together do not come back together.

    Parameters
    ----------
    attempts
        Requests in all, at least 1.
    base, cap
        Seconds.

    Examples
    --------
    >>> StoreRetry(base=0.1, cap=1.0).longest(2), StoreRetry(base=0.1, cap=1.0).longest(9)
    (0.2, 1.0)
    """

    attempts: int = 8
    base: float = 0.05
    cap: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InputError(f"attempts must be at least 1, got {self.attempts}")
        if not 0 <= self.base <= self.cap:
            raise InputError(f"base must be in [0, cap] seconds, got base={self.base}, cap={self.cap}")

    def longest(self, repeat: int) -> float:
        """Return the longest wait in seconds before this repeat."""
        return min(self.cap, self.base * 2.0 ** (repeat - 1))


@dataclass(slots=True)
class StoreStats:
    """Running counts of one store; never reset, so a round's share is a difference.

    ``reads`` counts requests that S3 bills as such (GET, HEAD), ``writes`` those that it bills higher (PUT, POST,
    LIST); deletions are free. ``retries`` counts repeated requests, in the others as well, ``slow_downs`` answers 503,
    repeated or not.
    """

    reads: int = 0
    writes: int = 0
    retries: int = 0
    slow_downs: int = 0


@dataclass(slots=True)
class Retrier:
    """Repeats requests that raise a retryable `StoreError`.

    Parameters
    ----------
    policy
        How often and how long.
    stats
        Where to count.
    rng, sleep
        Source of the jitter, and how to wait.
    """

    policy: StoreRetry = StoreRetry()
    stats: StoreStats = field(default_factory=StoreStats)
    rng: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, request: Callable[[], Awaitable[_T]], billed: Billed) -> _T:
        """Return what ``request()`` returns, calling it again while that makes sense.

        Parameters
        ----------
        request
            Makes one request.
        billed
            What to count it as.

        Raises
        ------
        StoreError
            The last one, if it is not retryable or the attempts are used up.
        """
        for repeat in range(1, self.policy.attempts + 1):
            self.stats.reads += billed == "read"
            self.stats.writes += billed == "write"
            try:
                return await request()
            except StoreError as error:
                self.stats.slow_downs += error.status == 503
                if not error.retryable or repeat == self.policy.attempts:
                    raise
            self.stats.retries += 1
            await self.sleep(self.rng.uniform(0.0, self.policy.longest(repeat)))
        raise AssertionError  # the last attempt returns or raises
