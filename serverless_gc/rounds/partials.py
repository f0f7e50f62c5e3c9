"""Partial results on their way to the driver: looked for while the round is open, checked, filed message by message.

A worker with several messages stores those that are done under its result's key and their place, ``00003.0002`` say,
see `serverless_gc.worker.parts`. Nobody announces them: the driver lists the round's objects now and then. What becomes
of their values is the business of an `Inbox`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from serverless_gc.engine import Post, Progressed
from serverless_gc.errors import InvokeError, StoreError
from serverless_gc.rounds.collect import Collector
from serverless_gc.store.base import Store
from serverless_gc.types import Array, TaskSpec
from serverless_gc.wire import FrameError, Reply, Task, mismatch

__all__ = ["Collected", "Inbox", "PartsWatch", "pause"]

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
SHARE = 0.1
"""Seconds between two looks: at least, at most, and as a share of how long the round has been open."""

_PART = re.compile(r"(.+)\.(\d{4})")

_log = logging.getLogger(__name__)


def pause(elapsed: float, jitter: float = 0.5) -> float:
    """Return the seconds until the next look for partial results.

    A tenth of the round's age: a look comes late by so much at most, and a round ten times as long costs 24 looks
    more, not ten times as many.

    Parameters
    ----------
    elapsed
        Seconds since the round opened.
    jitter
        In [0, 1]: shortens or lengthens the pause by up to a fifth, so that rounds side by side drift apart.

    Examples
    --------
    >>> [round(pause(t), 3) for t in (0.0, 1.0, 5.0, 60.0)]
    [0.02, 0.1, 0.5, 1.0]
    """
    return min(max(FIRST_PAUSE, SHARE * elapsed), LONGEST_PAUSE) * (0.8 + 0.4 * jitter)


class Inbox(Protocol):
    """Takes the messages of partial results."""

    def knows(self, spec: TaskSpec, places: range) -> bool:
        """Whether the messages at these places of a task are here already."""
        ...

    def file(self, spec: TaskSpec, first: int, value: Array) -> Any:
        """Check and keep a stack of messages from place ``first`` on; return what is to be posted of them.

        Raises
        ------
        InvokeError
            If they are not what the task's messages must be.
        """
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """An `Inbox` that files messages with the round's `Collector`; nothing of them is posted."""

    collector: Collector

    def knows(self, spec: TaskSpec, places: range) -> bool:
        """Whether the collector has them all."""
        placed = self.collector.code.placement(spec.slot)
        return all(message in self.collector.values for message in placed[places.start : places.stop])

    def file(self, spec: TaskSpec, first: int, value: Array) -> None:
        """File each."""
        messages = self.collector.code.placement(spec.slot)[first:]
        if len(value) > len(messages):
            raise InvokeError("it holds more messages than the task has", kind="bad-reply")
        for message, row in zip(messages, value, strict=False):
            self.collector.file(message, row)


@dataclass(slots=True)
class PartsWatch:
    """Looks for partial results of one round; a `serverless_gc.engine.Watch`.

    ``base`` is what the keys of results begin with, ``every`` the number of messages in one part; ``polls`` counts the
    listings, ``counts`` takes ``bytes_down`` and ``stale`` (of another round or run).
    """

    store: Store
    base: str
    inbox: Inbox
    make_task: Callable[[TaskSpec], Task]
    every: int
    counts: Counter[str]
    polls: int = 0
    rng: random.Random = field(default_factory=random.Random)
    _post: Post | None = None
    _specs: dict[str, TaskSpec] = field(default_factory=dict)  # by what the keys of their parts begin with
    _seen: set[str] = field(default_factory=set)

    async def __call__(self, post: Post) -> None:
        """Look until cancelled, ever less often."""
        self._post = post
        clock = asyncio.get_running_loop().time
        opened = clock()
        while True:
            await asyncio.sleep(pause(clock() - opened, self.rng.random()))
            await self.look()

    def expect(self, spec: TaskSpec) -> None:
        """Know a task: only what belongs to one is taken."""
        self._specs[self._stem(spec)] = spec

    def forget(self, spec: TaskSpec) -> None:
        """Know a task no longer: it has ended."""
        self._specs.pop(self._stem(spec), None)

    def _stem(self, spec: TaskSpec) -> str:
        return self.make_task(spec).result_key.removeprefix(self.base)

    async def look(self) -> None:
        """Look once, and post what is new. A store that cannot be read is left for the next look."""
        if self._post is None:
            return
        self.polls += 1
        try:
            keys = [info.key async for info in self.store.list(self.base)]
            await asyncio.gather(*(self._take(key, self._post) for key in keys if key not in self._seen))
        except StoreError as error:
            _log.info("partial results could not be looked for: %s", error)

    async def _take(self, key: str, post: Post) -> None:
        named = _PART.fullmatch(key, len(self.base))
        spec = self._specs.get(named[1]) if named else None
        if named is None or spec is None:
            return
        self._seen.add(key)
        first = int(named[2])
        places = range(first, first + self.every)
        if self.inbox.knows(spec, places):
            return
        try:
            part = Reply.from_bytes(await self.store.get(key))
            if mismatch(part, self.make_task(spec), any_attempt=True):
                self.counts["stale"] += 1
                return
            body = self._file(part, spec, first)
        except StoreError as error:
            if error.retryable:
                self._seen.discard(key)
            return
        except (FrameError, InvokeError, KeyError) as error:
            _log.warning("the partial result under %s is not used: %s", key, error)
            return
        post(Progressed(spec, tuple(places), body, part.stats))

    def _file(self, part: Reply, spec: TaskSpec, first: int) -> Any:
        """Hand the messages of a part on."""
        value = part.value
        if value is None or len(value) != self.every:
            raise InvokeError("it does not hold the messages that it should", kind="bad-reply")
        body = self.inbox.file(spec, first, value)
        self.counts["bytes_down"] += value.nbytes
        return body
