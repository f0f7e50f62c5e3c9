"""What a host is: it carries out an engine's actions and feeds it events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from serverless_gc.engine.events import Action, Event, RoundOutcome
from serverless_gc.engine.round import Engine
from serverless_gc.types import TaskSpec

__all__ = ["Completion", "Execute", "Host", "OnEvent"]


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


class Host(Protocol):
    """Runs an engine's rounds."""

    async def run(self, engine: Engine, execute: Execute, *, on_event: OnEvent | None = None) -> RoundOutcome:
        """Run one round, from opening to its end.

        An outcome with ``error`` set was aborted; the caller turns it into an exception. Any exception of ``execute``
        other than `InvokeError` is a bug: what runs is voided and the exception propagates.
        """
        ...

    async def close(self, engine: Engine) -> None:
        """Void the attempts that ``engine`` kept from its last round."""
        ...
