"""How long to wait before an attempt is repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from serverless_gc.errors import InputError

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    Retry number ``n = 1, 2, ...`` waits a uniform draw from ``[0, min(cap, base * 2**(n - 1))]`` seconds, so that many
    attempts that failed together do not come back together.

    Parameters
    ----------
    base
        Upper bound of the first wait, in seconds; 0 for no wait.
    cap
        Upper bound of any wait, in seconds.

    Raises
    ------
    InputError
        If ``base`` or ``cap`` is negative or not finite.

    Examples
    --------
    >>> Backoff(base=0.1, cap=1.0).limit(3)
    0.4
    >>> Backoff(base=0.1, cap=1.0).limit(30)
    1.0
    """

    base: float = 0.1
    cap: float = 5.0

    def __post_init__(self) -> None:
        for name in ("base", "cap"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"backoff {name} must be at least 0 seconds and finite, got {getattr(self, name)}")

    def limit(self, retry: int) -> float:
        """Longest wait before retry number ``retry`` (1 for the first)."""
        return float(min(self.cap, self.base * 2.0 ** min(retry - 1, 60)))

    def delay(self, retry: int, rng: random.Random) -> float:
        """Draw the wait before retry number ``retry``."""
        return rng.uniform(0.0, self.limit(retry))
