"""Partial results: the messages of a task, stored as they are done and before its result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import FrameError, Reply, Task, mismatch
from serverless_gc.worker.blobs import Blobs

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The partial results of one task; each is a `Reply` whose value is a stack of consecutive messages.

    Attributes
    ----------
    task
        Its ``params["publish"]`` says how many messages go into one part, ``params["n_messages"]`` how many there are.
    blobs
        Where they are.
    """

    task: Task
    blobs: Blobs

    @property
    def every(self) -> int:
        """Messages in one part."""
        return int(self.task.params["publish"])

    def due(self, done: int) -> bool:
        """Whether a part is to be stored when so many messages are done; the last come with the result."""
        return done % self.every == 0 and done < self.task.params["n_messages"]

    def store(self, values: Sequence[NDArray[Any]], times: Mapping[str, float], stats: Mapping[str, Any]) -> bool:
        """Store the newest of the messages done so far; False if another attempt had done so before."""
        task, first = self.task, len(values) - self.every
        part = Reply.to(
            task,
            value=np.stack(values[first:]),
            result_key=task.part_key(first),
            times=dict(times),
            stats=dict(stats),
        )
        return self.blobs.put(task.part_key(first), part.to_parts(), if_absent=True)

    def earlier(self) -> list[NDArray[Any]]:
        """Read what an earlier attempt stored, up to the first part that is missing, not this task's or not finite."""
        found: list[NDArray[Any]] = []
        while self.due(len(found) + self.every):
            try:
                part = Reply.from_bytes(self.blobs.get(self.task.part_key(len(found))))
            except (KeyError, FrameError):  # missing or damaged: from here on it is computed again
                break
            value = part.value
            if mismatch(part, self.task, any_attempt=True) or value is None or len(value) != self.every:
                break
            if not np.isfinite(value).all():
                break
            found += list(value)
        return found
