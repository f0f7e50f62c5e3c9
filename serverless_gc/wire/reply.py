"""What a worker answers, and what it stores as the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from serverless_gc.wire.frame import FrameError, pack_parts, unpack
from serverless_gc.wire.task import Task
from serverless_gc.wire.version import PROTOCOL

__all__ = ["Reply", "mismatch"]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to one attempt. The stored result object is the same frame with the value inside.

    Attributes
    ----------
    run, round, task_id, slot, attempt
        Identity, copied from the task.
    status
        ``"ok"``, ``"error"`` (see ``error``) or ``"cancelled"`` (the cancel mark was there).
    value
        The result, or None when it is only stored under ``result_key``.
    result_key
        Where the result is stored.
    duplicate
        Another attempt had stored its result before; value and key are that one's.
    times
        Seconds spent, by phase: ``read``, ``compute``, ``write``; and ``started``, the worker's clock.
    error
        For ``"error"``: ``kind``, ``type``, ``message``, ``traceback`` (text).
    stats
        ``python``, ``numpy``, ``cold`` and whatever the kernel reports, JSON types.
    """

    run: str
    round: int
    task_id: str
    slot: int
    attempt: int
    status: Literal["ok", "error", "cancelled"]
    value: NDArray[Any] | None = None
    result_key: str = ""
    duplicate: bool = False
    times: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    protocol: int = PROTOCOL

    @classmethod
    def to(cls, task: Task, status: Literal["ok", "error", "cancelled"] = "ok", **fields: Any) -> Reply:
        """Make the answer to a task from what is not its identity."""
        return cls(task.run, task.round, task.task_id, task.slot, task.attempt, status, **fields)

    def to_parts(self) -> list[bytes | memoryview]:
        """Pack into buffers whose concatenation is the frame."""
        head = {
            "kind": "reply",
            "protocol": self.protocol,
            "run": self.run,
            "round": self.round,
            "task": self.task_id,
            "slot": self.slot,
            "attempt": self.attempt,
            "status": self.status,
            "result_key": self.result_key,
            "duplicate": self.duplicate,
            "times": dict(self.times),
            "error": dict(self.error),
            "stats": dict(self.stats),
        }
        return pack_parts(head, () if self.value is None else (self.value,))

    def to_bytes(self) -> bytes:
        """Pack into one frame."""
        return b"".join(self.to_parts())

    @classmethod
    def from_bytes(cls, buffer: bytes | bytearray | memoryview) -> Reply:
        """Unpack; the value is a read-only view of the buffer.

        Raises
        ------
        FrameError
            If the bytes are not an intact reply.
        """
        frame = unpack(buffer)
        h = frame.header
        if h.get("kind") != "reply":
            raise FrameError(f"expected a reply, found {h.get('kind')!r}", "header")
        return cls(
            run=h["run"],
            round=h["round"],
            task_id=h["task"],
            slot=h["slot"],
            attempt=h["attempt"],
            status=h["status"],
            value=frame.arrays[0] if frame.arrays else None,
            result_key=h["result_key"],
            duplicate=h["duplicate"],
            times=h["times"],
            error=h["error"],
            stats=h["stats"],
            protocol=h["protocol"],
        )


def mismatch(reply: Reply, task: Task, *, any_attempt: bool = False) -> str:
    """Say why ``reply`` is not an answer to ``task``, or return an empty string if it is.

    ``any_attempt`` accepts another attempt's number: a stored result may be an earlier attempt's.
    """
    if reply.protocol != task.protocol:
        return f"protocol {reply.protocol}, expected {task.protocol}"
    if reply.run != task.run:
        return f"reply of another run ({reply.run})"
    if reply.round != task.round:
        return f"reply of round {reply.round}, this is round {task.round}"
    if (reply.task_id, reply.slot) != (task.task_id, task.slot):
        return f"reply to task {reply.task_id} of slot {reply.slot}"
    if not any_attempt and not reply.duplicate and reply.attempt != task.attempt:
        return f"reply to attempt {reply.attempt}, this is attempt {task.attempt}"
    return ""
