"""How many invocations to have under way when the service does not say: found from its refusals.

Additive increase, multiplicative decrease, with one addition. When a request is refused, the others still under
way were admitted (or will be refused in turn), so the limit never falls below their number. A hard limit of the
account is therefore met exactly, and held, instead of being sawed at: 64 invocations against a limit of 10
settle at 10 after three short rounds of refusals.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

from serverless_gc.errors import InputError

__all__ = ["AdaptiveLimit", "Outcome"]

Outcome = Literal["ok", "throttled", "other"]


class AdaptiveLimit:
    """A concurrency limit that shrinks on refusals and grows on successes.

    Leave to have one invocation under way is a *ticket*, numbered in order from 1.

    Parameters
    ----------
    upper
        The limit to start with and never to exceed.
    floor
        The limit never falls below it.
    shrink
        Factor by which one burst of refusals lowers the limit at most.
    grow
        Growth per full wave of successes, as a fraction of the limit; at least one.

    Attributes
    ----------
    limit : int
        Invocations that may be under way at once, now.
    found : int or None
        The limit after the last burst of refusals, None while nothing was refused.
    in_flight : int
        Invocations under way.
    waiting : int
        Callers of `acquire` that wait for leave.

    Examples
    --------
    >>> limit = AdaptiveLimit(64)
    >>> first = [limit.take() for _ in range(64)]
    >>> for ticket in first[:54]:  # the account admits 10
    ...     limit.release(ticket, "throttled")
    >>> limit.limit, limit.found
    (32, 32)
    """

    def __init__(self, upper: int, *, floor: int = 1, shrink: float = 0.5, grow: float = 0.05) -> None:
        if not 1 <= floor <= upper:
            raise InputError(f"floor must be at least 1 and at most upper={upper}, got {floor}")
        if not 0 < shrink < 1:
            raise InputError(f"shrink must be between 0 and 1, got {shrink}")
        if not grow >= 0:
            raise InputError(f"grow must be at least 0, got {grow}")
        self._upper, self._floor, self._shrink, self._grow = upper, floor, shrink, grow
        self._limit = float(upper)
        self._least = float(floor)  # of the burst of refusals at hand
        self._issued = 0
        self._burst_end = 0  # tickets up to this number belong to the burst at hand
        self._waiters: deque[asyncio.Future[int]] = deque()
        self.in_flight = 0
        self.found: int | None = None

    @property
    def limit(self) -> int:
        """Invocations that may be under way at once."""
        return int(self._limit)

    @property
    def waiting(self) -> int:
        """Callers that wait for leave."""
        return len(self._waiters)

    def take(self) -> int | None:
        """Take leave at once, or return None if the limit is reached or others wait."""
        if self.in_flight >= self.limit or self._waiters:
            return None
        return self._issue()

    async def acquire(self) -> int:
        """Wait for leave, first come first served."""
        if (ticket := self.take()) is not None:
            return ticket
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result(), "other")  # leave was given in the same moment
            elif waiter in self._waiters:  # a release that saw it cancelled has passed it over already
                self._waiters.remove(waiter)
            raise

    def release(self, ticket: int, outcome: Outcome) -> None:
        """Give leave back and say how the invocation went."""
        full = self.in_flight >= self.limit
        self.in_flight -= 1
        if outcome == "throttled":
            self._refused(ticket)
        elif outcome == "ok" and full:  # growth is only meaningful where the limit held somebody back
            self._limit = min(self._upper, self._limit + max(1 / self._limit, self._grow))
        while self._waiters and self.in_flight < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(self._issue())

    def _refused(self, ticket: int) -> None:
        if ticket > self._burst_end:
            self._burst_end = self._issued
            self._least = max(self._floor, self._limit * self._shrink)
        self._limit = min(self._limit, max(self._least, self.in_flight))
        self.found = self.limit

    def _issue(self) -> int:
        self._issued += 1
        self.in_flight += 1
        return self._issued
