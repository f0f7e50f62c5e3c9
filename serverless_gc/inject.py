"""Stragglers and faults to inject, as plain descriptions.

`Session(inject=...)` wraps its invoker and its store with what is described here; the wrappers live beside the
things they wrap (`serverless_gc.invoke.wrappers`, `serverless_gc.store.wrappers`). Everything is drawn from the
seed and the task's identity, so a run repeats exactly, whatever the order of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError

__all__ = ["Faults", "Injection", "Selection", "Stragglers", "check_seed", "draw", "selected"]

Selection: TypeAlias = float | Collection[int]
"""A fraction in [0, 1] of all tasks, or the slots concerned."""


def check_seed(seed: Any) -> int:
    """Return the seed of a generator of random numbers, checked.

    Raises
    ------
    InputError
        If it is no integer of at least 0.

    Examples
    --------
    >>> check_seed(3)
    3
    """
    return check_whole("seed", seed, 0)


def draw(seed: int, *identity: object) -> float:
    """Return a number in [0, 1) that depends on seed and identity only."""
    text = "|".join(map(str, (seed, *identity))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") / 2.0**64


def selected(selection: Selection, slot: int, seed: int, *identity: object) -> bool:
    """Whether the selection covers this slot (a fraction is drawn per identity)."""
    if isinstance(selection, (int, float)):
        return selection > 0 and draw(seed, slot, *identity) < selection
    return slot in selection


def _check(name: str, selection: Selection) -> None:
    if isinstance(selection, (int, float)) and not 0 <= selection <= 1:
        raise InputError(f"{name} must be a fraction in [0, 1] or a collection of slots, got {selection}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """Slow tasks.

    A task whose worker publishes its messages one by one is slow at each of them, in the worker itself: its first
    messages come early all the same. One that works until a given time does less. Other tasks are held up from outside.

    Parameters
    ----------
    fraction
        Fraction of tasks that are slow, drawn anew for each task and round; or the slots that always are.
    slowdown
        How many times longer a slow task takes.
    seed
        Seed of the draws.
    base
        Service time in seconds that every task takes at least (a stand-in for start-up and transfer);
        a slow one takes ``base * slowdown``.
    persistent
        Draw once per slot: the same slots are slow in every round and at every attempt.

    Examples
    --------
    >>> s = Stragglers(fraction=0.1, slowdown=10, seed=1)
    >>> sum(s.factor(slot, version=0) > 1 for slot in range(1000))
    100
    """

    fraction: Selection = 0.1
    slowdown: float = 10.0
    seed: int = 0
    base: float = 0.0
    persistent: bool = False

    def __post_init__(self) -> None:
        _check("fraction", self.fraction)
        if not self.slowdown >= 1:
            raise InputError(f"slowdown must be at least 1, got {self.slowdown}")
        if not self.base >= 0:
            raise InputError(f"base must be at least 0 seconds, got {self.base}")

    def factor(self, slot: int, version: int, attempt: int = 0) -> float:
        """Return how many times longer this task takes: 1.0 or ``slowdown``."""
        identity = () if self.persistent else (version, attempt)
        return self.slowdown if selected(self.fraction, slot, self.seed, *identity) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Failures of invocations and of the store.

    Parameters
    ----------
    throttle
        Tasks whose first ``throttle_times`` invocations are answered 429.
    throttle_times
        See ``throttle``.
    concurrency
        Answer 429 while this many invocations are running; 0 for no limit.
    drop
        Tasks that never reply (the worker does not run).
    lose_reply
        Tasks that run and store their result, but whose reply is lost.
    fail
        Tasks whose function raises, at each of the first ``fail_times`` attempts.
    fail_times
        See ``fail``.
    late
        Tasks whose first attempt is answered with the reply that its slot gave in an earlier round, as if that
        one had been under way all the time. The task itself runs and stores its result; its own reply is lost
        behind the late one. Further attempts are answered properly, and so is a slot that never replied before.
    non_finite
        Tasks whose reply carries a NaN (in its first entry), at every attempt; a reply without an inline value is
        left alone.
    wrong
        Tasks whose reply carries a wrong number (1 too much in its first entry), at every attempt.
    slow_down
        Fraction of store requests answered 503 SlowDown ...
    slow_down_seconds
        ... during this many seconds after the first request.
    corrupt
        Message ids whose stored block is damaged on reading ...
    corrupt_how
        ... by ``"flip"`` (one bit), ``"prefix"`` (bytes in front) or ``"truncate"`` (8 bytes missing).
    seed
        Seed of the draws.
    """

    throttle: Selection = 0.0
    throttle_times: int = 2
    concurrency: int = 0
    drop: Selection = 0.0
    lose_reply: Selection = 0.0
    fail: Selection = 0.0
    fail_times: int = 1
    late: Selection = 0.0
    non_finite: Selection = 0.0
    wrong: Selection = 0.0
    slow_down: float = 0.0
    slow_down_seconds: float = 1.0
    corrupt: Collection[int] = ()
    corrupt_how: str = "flip"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("throttle", "drop", "lose_reply", "fail", "late", "non_finite", "wrong", "slow_down"):
            _check(name, getattr(self, name))
        if self.corrupt_how not in {"flip", "prefix", "truncate"}:
            raise InputError(f"corrupt_how must be 'flip', 'prefix' or 'truncate', got {self.corrupt_how!r}")

    def touches_store(self) -> bool:
        """Whether the store needs wrapping."""
        return bool(self.slow_down or len(self.corrupt))

    def hits(self, name: str, slot: int, version: int) -> bool:
        """Whether the fault called ``name`` concerns this task."""
        return selected(getattr(self, name), slot, self.seed, name, version)


Injection: TypeAlias = Stragglers | Faults
