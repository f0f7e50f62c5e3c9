"""What happened: events, progress, timeline, report."""

from serverless_gc.observe.events import (
    Event,
    Listener,
    RoundClosed,
    RoundOpened,
    TaskArrived,
    TaskFailed,
    TaskIssued,
)
from serverless_gc.observe.plot import plot_timeline
from serverless_gc.observe.progress import Progress
from serverless_gc.observe.report import Report
from serverless_gc.observe.timeline import Fate, Span

__all__ = [
    "Event",
    "Fate",
    "Listener",
    "Progress",
    "Report",
    "RoundClosed",
    "RoundOpened",
    "Span",
    "TaskArrived",
    "TaskFailed",
    "TaskIssued",
    "plot_timeline",
]
