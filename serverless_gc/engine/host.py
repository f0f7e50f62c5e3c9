"""What a host is: it carries out an engine's actions and feeds it events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from serverless_gc.engine.events import Action, Event, Progressed, RoundOutcome
from serverless_gc.engine.round import Engine
from serverless_gc.types import TaskSpec

__all__ = ["Completion", "Execute", "Host", "OnEvent", "Post", "Watch"]


@dataclass(frozen=True, slots=True)
class Completion:
    """What one attempt delivered."""

    body: Any = None
    work_done: float = 1.0
    stats: Mapping[str, Any] = field(default_factory=dict)


Execute: TypeAlias = Callable[[TaskSpec], Awaitable[Completion]]
"""Does one attempt; raises `serverless_gc.errors.InvokeError` when it fails."""

OnEvent: TypeAlias = Callable[[Event | Action, float], None]
"""Told every event and every action with its time, in order; must not block."""

Post: TypeAlias = Callable[[Progressed], None]
"""Hands a partial result to the round."""

Watch: TypeAlias = Callable[[Post], Awaitable[None]]
"""Looks for partial results as long as the round is open, and posts them; it is cancelled when the round ends.

It gets a function rather than being iterated over, so that an attempt about to fail can post what it left behind first.
"""


class Host(Protocol):
    """Runs an engine's rounds."""

    @property
    def now(self) -> float:
        """The clock by which events are timed, in seconds."""
        ...

    async def run(
        self, engine: Engine, execute: Execute, *, on_event: OnEvent | None = None, watch: Watch | None = None
    ) -> RoundOutcome:
        """Run one round, from opening to its end.

        ``watch`` finds partial results where they have to be looked for; a virtual clock knows when they are there.
        An outcome with ``error`` set was aborted; the caller turns it into an exception. Any exception of ``execute``
        other than `InvokeError` is a bug: what runs is voided and the exception propagates.
        """
        ...

    async def close(self, engine: Engine) -> None:
        """Void the attempts that ``engine`` kept from its last round."""
        ...
