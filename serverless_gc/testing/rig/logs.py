"""Log lines of functions as CloudWatch has them, and the tail that Invoke returns."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Log", "Logs", "report_line", "stream_name", "tail"]

_TAIL_BYTES = 4096
_MOST_PENDING = 5000  # lines kept before they are written although nobody has asked

Write = Callable[[str, str, str, list[dict[str, Any]]], None]
"""Writes events: region, group, stream, events."""


def stream_name(version: str) -> str:
    """Return a new name of a log stream, as Lambda makes them."""
    return f"{time.strftime('%Y/%m/%d', time.gmtime())}/[{version}]{uuid.uuid4().hex}"


def report_line(
    request_id: str, seconds: float, memory_mb: int, used_mb: int, *, init: float | None = None, error: str = ""
) -> str:
    r"""Write the line that ends an invocation; initialisation is billed.

    Examples
    --------
    >>> print(report_line("7f", 0.0123, 128, 40, init=0.1).replace("\t", " | "))
    REPORT RequestId: 7f | Duration: 12.30 ms | Billed Duration: 113 ms | Memory Size: 128 MB | Max Memory Used: 40 MB | Init Duration: 100.00 ms
    """  # noqa: E501 - one line is one line
    billed = -int(-1000 * (seconds + (init or 0.0)) // 1)
    parts = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {1000 * seconds:.2f} ms",
        f"Billed Duration: {billed} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {used_mb} MB",
    ]
    if init is not None:
        parts.append(f"Init Duration: {1000 * init:.2f} ms")
    if error:
        parts += ["Status: error", f"Error Type: {error}"]
    return "\t".join(parts)


@dataclass(slots=True)
class Log:
    """The stream of one execution environment."""

    region: str
    group: str
    stream: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add lines; the runtime client ends lines inside one message with a carriage return."""
        now = int(1000 * time.time())
        self.events += [{"timestamp": now, "message": line} for line in text.split("\n") if line]


class Logs:
    """All streams; what they hold is written to the emulated CloudWatch when somebody is about to read."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pending: dict[str, Log] = {}

    def add(self, log: Log, text: str) -> None:
        """Add lines to a stream."""
        log.add(text)
        self._pending[log.stream] = log
        if len(log.events) > _MOST_PENDING:
            self.flush()

    def flush(self) -> None:
        """Write everything."""
        pending, self._pending = self._pending, {}
        for log in pending.values():
            events, log.events = log.events, []
            self._write(log.region, log.group, log.stream, events)


def tail(text: str) -> str:
    """Return the last 4 KB of a log in base64, as the header ``X-Amz-Log-Result`` has it."""
    return base64.b64encode(text.encode()[-_TAIL_BYTES:]).decode()
