"""What the driver asks of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from serverless_gc.wire.frame import Frame, FrameError, pack_parts, unpack
from serverless_gc.wire.turn import Turn
from serverless_gc.wire.version import PROTOCOL

__all__ = ["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one task, complete: the worker needs nothing else.

    Attributes
    ----------
    run, round, task_id, slot, attempt
        Identity. The reply repeats all five and the driver compares them.
    kernel
        Name of what to compute, see `serverless_gc.worker.kernels`.
    blocks
        Store keys of the blocks to read.
    operand
        The vector or matrix to multiply by, or None when it is read from ``operand_key``.
    operand_key
        Store key of the operand (a block object), empty when inline.
    operand_ranges
        Where the object holds the operand piece by piece, one block after another: the half-open ranges of bytes to
        read, each of whole blocks, whose rows in this order are the operand. Empty to read the object as one block.
    result_key
        Where the result is written, once. Shared by all attempts at the task.
    store
        URL of the store that holds the keys.
    inline_limit
        The reply carries the result if its array has at most this many bytes, else the result's key.
    results
        Store keys of results of the same round that other tasks stored; the kernel gets their values behind the blocks.
    cancel_key
        If an object exists under this key the worker stops before computing; empty to skip the check.
    alive_key
        An object that exists as long as the run does: a task that has taken long stores nothing without it, for nobody
        would delete that any more. Empty to skip the check.
    params
        Parameters of the kernel, JSON types. ``"publish"``: after so many messages each the worker stores the new ones,
        see `part_key`, and looks for the cancel mark; absent or 0 for no partial results. ``"n_messages"``: how many
        there are. ``"pace"`` and ``"slowdown"``: seconds added to each message then, and how many times longer it
        takes, for experiments; to a task that works until ``"stop_at"`` likewise, see `serverless_gc.worker.sampled`.
        ``"turn"``: a `Turn`, for a node of a decentralized scheme.
    urls
        ``"GET key"``, ``"HEAD key"`` or ``"PUT key"`` to a presigned URL, for a worker without rights of its own; it
        then opens no store. Secrets: not shown.
    """

    run: str
    round: int
    task_id: str
    slot: int
    attempt: int
    kernel: str
    blocks: tuple[str, ...]
    result_key: str
    store: str
    operand: NDArray[Any] | None = None
    operand_key: str = ""
    inline_limit: int = 0
    cancel_key: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    protocol: int = PROTOCOL
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    results: tuple[str, ...] = ()
    operand_ranges: tuple[tuple[int, int], ...] = ()
    alive_key: str = ""

    def part_key(self, first: int) -> str:
        """Store key of the partial result that begins with the task's message ``first``."""
        return f"{self.result_key}.{first:04d}"

    def part_keys(self) -> list[str]:
        """Store keys of all partial results; the last messages come with the result."""
        every, messages = self.params.get("publish", 0), self.params.get("n_messages", 0)
        return [self.part_key(first) for first in range(0, messages - every, every)] if every else []

    @property
    def turn(self) -> Turn | None:
        """The round of a node that this task is, if it is one."""
        plain = self.params.get("turn")
        return None if plain is None else Turn.from_dict(plain)

    def requests(self) -> list[tuple[str, str]]:
        """Return method and key of each request that the worker may make, once each.

        It reads blocks, operand and the results that it combines, looks for the marks of its round and run, and
        writes its result and partial results once; it may find them written, and reads them then. A node's are those
        of its `Turn`.
        """
        written = [key for key in (self.result_key, *self.part_keys()) if key]
        wanted = [("GET", key) for key in (*self.blocks, *self.results, self.operand_key, *written) if key]
        wanted += [("HEAD", key) for key in (self.cancel_key, self.alive_key) if key]
        wanted += [("PUT", key) for key in written]
        turn = self.turn
        return list(dict.fromkeys([*wanted, *(turn.requests() if turn else ())]))

    def to_parts(self) -> list[bytes | memoryview]:
        """Pack into buffers whose concatenation is the frame."""
        head = {
            "kind": "task",
            "protocol": self.protocol,
            "run": self.run,
            "round": self.round,
            "task": self.task_id,
            "slot": self.slot,
            "attempt": self.attempt,
            "kernel": self.kernel,
            "blocks": self.blocks,
            "operand_key": self.operand_key,
            "result_key": self.result_key,
            "store": self.store,
            "inline_limit": self.inline_limit,
            "cancel_key": self.cancel_key,
            "params": dict(self.params),
        }
        if self.results:
            head["results"] = self.results
        if self.operand_ranges:
            head["operand_ranges"] = self.operand_ranges
        if self.alive_key:
            head["alive_key"] = self.alive_key
        if self.urls:
            head["urls"] = dict(self.urls)
        return pack_parts(head, () if self.operand is None else (self.operand,))

    def to_bytes(self) -> bytes:
        """Pack into one frame."""
        return b"".join(self.to_parts())

    @classmethod
    def from_bytes(cls, buffer: bytes | bytearray | memoryview) -> Task:
        """Unpack.

        Raises
        ------
        FrameError
            If the bytes are not an intact task.
        """
        return cls.from_frame(unpack(buffer))

    @classmethod
    def from_frame(cls, frame: Frame) -> Task:
        """Make the task that an unpacked frame holds; errors as for `from_bytes`."""
        h = frame.header
        if h.get("kind") != "task":
            raise FrameError(f"expected a task, found {h.get('kind')!r}", "header")
        return cls(
            run=h["run"],
            round=h["round"],
            task_id=h["task"],
            slot=h["slot"],
            attempt=h["attempt"],
            kernel=h["kernel"],
            blocks=tuple(h["blocks"]),
            result_key=h["result_key"],
            store=h["store"],
            operand=frame.arrays[0] if frame.arrays else None,
            operand_key=h["operand_key"],
            inline_limit=h["inline_limit"],
            cancel_key=h["cancel_key"],
            params=h["params"],
            protocol=h["protocol"],
            urls=h.get("urls", {}),
            results=tuple(h.get("results", ())),
            operand_ranges=tuple((start, stop) for start, stop in h.get("operand_ranges", ())),
            alive_key=h.get("alive_key", ""),
        )
