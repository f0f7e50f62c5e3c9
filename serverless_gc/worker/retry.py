"""Waiting and trying again when the store says it is busy; counted, bounded, never in lock-step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from serverless_gc.worker.blobs import Blobs

__all__ = ["Backoff", "Jitter", "RetryCounts", "RetryingBlobs"]

Buffer: TypeAlias = bytes | bytearray | memoryview
_T = TypeVar("_T")


class Jitter(Protocol):
    """Draws waits, as `random.Random` does."""

    def uniform(self, a: float, b: float) -> float:
        """Draw from ``[a, b]``."""
        ...


class _SystemJitter:
    """`random.SystemRandom` without its module, whose import is 4 ms of a cold start."""

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * (int.from_bytes(os.urandom(7), "big") >> 3) * 2.0**-53


JITTER = _SystemJitter()
"""Where waits are drawn from. It has no seed: processes forked or restored from one snapshot do not move in step."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: before repeat ``i`` wait a random time in ``[0, min(cap, base * 2**i)]`` seconds."""

    attempts: int = 8
    base: float = 0.05
    cap: float = 2.0

    def wait(self, failed: int, rng: Jitter) -> float:
        """Return the seconds to wait after the ``failed``-th failure (1, 2, ...)."""
        return rng.uniform(0.0, min(self.cap, self.base * 2.0 ** (failed - 1)))


@dataclass(slots=True)
class RetryCounts:
    """Requests as the store bills them; repeated ones among them, and those of these that were answered 503."""

    reads: int = 0
    writes: int = 0
    retries: int = 0
    slow_downs: int = 0


@dataclass(slots=True)
class RetryingBlobs:
    """Repeats requests whose error carries ``retryable = True``, whatever class it is of.

    A driver's in-process store raises its own errors, which a worker cannot import; the attributes
    ``retryable`` and ``status`` are the contract.
    """

    inner: Blobs
    backoff: Backoff = Backoff()
    sleep: Callable[[float], None] = time.sleep
    rng: Jitter = JITTER
    counts: RetryCounts = field(default_factory=RetryCounts)

    def _call(self, request: Callable[[], _T], *, writes: bool = False) -> _T:
        failed = 0
        while True:
            self.counts.reads += not writes
            self.counts.writes += writes
            try:
                return request()
            except Exception as error:
                failed += 1
                if not getattr(error, "retryable", False) or failed >= self.backoff.attempts:
                    raise
                self.counts.retries += 1
                self.counts.slow_downs += getattr(error, "status", 0) == 503
                self.sleep(self.backoff.wait(failed, self.rng))

    def get(self, key: str) -> Buffer:
        """Read one object."""
        return self._call(lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read a part of one object."""
        return self._call(lambda: self.inner.get_range(key, start, stop))

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; a repeat after a lost answer may find the object it wrote itself."""
        return self._call(lambda: self.inner.put(key, data, if_absent=if_absent), writes=True)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        return self._call(lambda: self.inner.exists(key))
