"""What happened: events, progress, timeline, report."""

from serverless_gc.observe.events import (
    Decodable,
    Event,
    Listener,
    RoundClosed,
    RoundOpened,
    TaskArrived,
    TaskFailed,
    TaskIssued,
    fan_out,
)
from serverless_gc.observe.plot import plot_timeline
from serverless_gc.observe.progress import Progress
from serverless_gc.observe.report import Report
from serverless_gc.observe.timeline import Fate, Span, Timeline

__all__ = [
    "Decodable",
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
    "Timeline",
    "fan_out",
    "plot_timeline",
]
