"""The round engine: a state machine without I/O, and its hosts."""

from serverless_gc.engine.accounting import Counts, Fate, TaskRecord
from serverless_gc.engine.aio import AioHost
from serverless_gc.engine.backoff import Backoff
from serverless_gc.engine.events import (
    AbortKind,
    AbortRound,
    Action,
    Arrived,
    Cancelled,
    CloseRound,
    Event,
    Failed,
    Issue,
    Progressed,
    RoundOutcome,
    SetTimer,
    TimerFired,
    Void,
)
from serverless_gc.engine.host import Completion, Execute, Host, OnEvent, Post, Watch
from serverless_gc.engine.progress import milestones
from serverless_gc.engine.round import Engine
from serverless_gc.engine.virtual import VirtualHost

__all__ = [
    "AbortKind",
    "AbortRound",
    "Action",
    "AioHost",
    "Arrived",
    "Backoff",
    "Cancelled",
    "CloseRound",
    "Completion",
    "Counts",
    "Engine",
    "Event",
    "Execute",
    "Failed",
    "Fate",
    "Host",
    "Issue",
    "OnEvent",
    "Post",
    "Progressed",
    "RoundOutcome",
    "SetTimer",
    "TaskRecord",
    "TimerFired",
    "VirtualHost",
    "Void",
    "Watch",
    "milestones",
]
