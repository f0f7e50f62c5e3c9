"""Partial results: what unfinished tasks have delivered so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from serverless_gc.engine.events import Progressed
from serverless_gc.errors import InputError

__all__ = ["ProgressBook", "milestones"]


def milestones(messages: int, publish: int) -> tuple[float, ...]:
    """Return the `TaskSpec.milestones` of a task whose messages take equal work.

    Parameters
    ----------
    messages
        How many messages the task has.
    publish
        After how many messages each the worker publishes them; 0 for never. The last ones come with the result.

    Raises
    ------
    InputError
        If a number is negative.

    Examples
    --------
    >>> milestones(4, 1)
    (0.25, 0.5, 0.75)
    >>> milestones(5, 2)
    (0.4, 0.4, 0.8, 0.8)
    """
    for name, value in (("messages", messages), ("publish", publish)):
        if value < 0:
            raise InputError(f"{name} must be at least 0, got {value}")
    if not publish:
        return ()
    return tuple(first / messages for first in range(publish, messages, publish) for _ in range(publish))


class ProgressBook:
    """Partial results by task: what is new, and what is not used up yet. Only the engine writes to it."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}
        self._events: dict[str, list[Progressed]] = {}
        self._given_up: set[str] = set()

    def takes(self, task_id: str) -> bool:
        """Whether the task, though no longer in flight, failed for good in this round: what it published is valid."""
        return task_id in self._given_up

    def enter(self, event: Progressed) -> Progressed | None:
        """Keep what is new of an event; None if nothing is."""
        seen = self._seen.setdefault(event.task.task_id, set())
        new = tuple(message for message in dict.fromkeys(event.messages) if message not in seen)
        if not new:
            return None
        seen.update(new)
        kept = event if new == event.messages else replace(event, messages=new)
        self._events.setdefault(event.task.task_id, []).append(kept)
        return kept

    def give_up(self, task_id: str) -> None:
        """Note that a task failed for good; what it published stays."""
        self._given_up.add(task_id)

    def finish(self, task_id: str) -> None:
        """Forget the parts of a task whose whole result is here."""
        if self._seen.pop(task_id, None) is not None:
            self._events.pop(task_id, None)

    def collect(self) -> tuple[Progressed, ...]:
        """Hand over the parts of unfinished tasks, task by task; each only once."""
        taken = tuple(event for events in self._events.values() for event in events)
        self._events.clear()
        return taken

    def end_round(self, live: Mapping[str, object]) -> None:
        """Forget tasks that are no longer in flight."""
        self._given_up.clear()
        for task_id in [task_id for task_id in self._seen if task_id not in live]:
            self.finish(task_id)
