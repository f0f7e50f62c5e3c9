"""Partial results on their way to the driver: looked for while the round is open, checked, filed message by message.

A worker with several messages stores those that are done under its result's key and their place, ``00003.0002`` say,
see `serverless_gc.worker.parts`. Nobody announces them: the driver lists the round's objects now and then.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serverless_gc.collect import Collector
from serverless_gc.engine import Post, Progressed
from serverless_gc.errors import InvokeError, StoreError
from serverless_gc.store.base import Store
from serverless_gc.types import TaskSpec
from serverless_gc.wire import FrameError, Reply, Task, mismatch

__all__ = ["PartsWatch", "pause"]

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
SHARE = 0.1
"""Seconds between two looks: at least, at most, and as a share of how long the round has been open."""

_PART = re.compile(r"(\d{5})\.(\d{4})")

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


@dataclass(slots=True)
class PartsWatch:
    """Looks for partial results of one round; a `serverless_gc.engine.Watch`.

    ``every`` is the number of messages in one part, ``polls`` counts the listings, ``counts`` takes ``bytes_down`` and
    ``stale`` (of another round or run).
    """

    store: Store
    base: str
    collector: Collector
    make_task: Callable[[TaskSpec], Task]
    every: int
    counts: Counter[str]
    polls: int = 0
    rng: random.Random = field(default_factory=random.Random)
    _post: Post | None = None
    _specs: dict[int, TaskSpec] = field(default_factory=dict)
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
        """Know the task of a slot: only what belongs to one is taken."""
        self._specs[spec.slot] = spec

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
        spec = self._specs.get(int(named[1])) if named else None
        if named is None or spec is None:
            return
        self._seen.add(key)
        first, placed = int(named[2]), self.collector.code.placement(spec.slot)
        if all(message in self.collector.values for message in placed[first : first + self.every]):
            return
        try:
            part = Reply.from_bytes(await self.store.get(key))
            if mismatch(part, self.make_task(spec), any_attempt=True):
                self.counts["stale"] += 1
                return
            places = range(first, first + self._file(part, placed[first:]))
        except StoreError as error:
            if error.retryable:
                self._seen.discard(key)
            return
        except (FrameError, InvokeError, KeyError) as error:
            _log.warning("the partial result under %s is not used: %s", key, error)
            return
        post(Progressed(spec, tuple(places), stats=part.stats))

    def _file(self, part: Reply, messages: Sequence[int]) -> int:
        """File the messages of a part, which are the first of these; return how many."""
        value = part.value
        if value is None or len(value) != self.every or self.every > len(messages):
            raise InvokeError("it does not hold the messages that it should", kind="bad-reply")
        for message, row in zip(messages, value, strict=False):
            self.collector.file(message, row)
        self.counts["bytes_down"] += value.nbytes
        return len(value)
