"""From one attempt's reply to a value in its place: what runs for every result that lands.

`Attempts` invokes, checks the reply against the task, recovers a lost one from the store, and files the value with the
`Collector`. What is wrong with one attempt becomes an `InvokeError` with a kind, so that the engine can count and retry
it; what no other attempt could escape (no such function, no valid credentials, another protocol) ends the round.
"""

from __future__ import annotations

import cmath
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from serverless_gc.codes.base import Certificate, Code
from serverless_gc.errors import (
    ConfigError,
    FailureKind,
    InvokeError,
    LimitError,
    ObjectNotFound,
    ProtocolMismatch,
    StoreError,
)
from serverless_gc.invoke.base import Invoker
from serverless_gc.store.base import Store
from serverless_gc.types import Array, Buffer, TaskSpec
from serverless_gc.wire import FrameError, Reply, Task, mismatch

__all__ = ["INHERENT", "OVERFLOW", "Attempts", "Collector", "Presign"]

LOSS_FAILED = "the loss failed"
OVERFLOW = "overflow"
INHERENT = frozenset({LOSS_FAILED, OVERFLOW})
"""Reasons of failures that lie in the function or in the numbers: every worker meets them, and no attempt helps."""

_WORKER_KINDS: Mapping[str, FailureKind] = {
    "function": "function",
    "corrupt": "corrupt",
    "missing": "missing",
    "denied": "denied",
    "unavailable": "unavailable",
    "bad-reply": "bad-reply",
}
"""What a worker calls its error, in the driver's words."""


class Collector:
    """Keeps the values that arrived, each in the row where the decoder wants it.

    A message that carries a source block unchanged is copied straight into that block's place in the answer, so a
    systematic code has nothing to copy when it decodes. Where a second one carries the same block, the decoder chooses
    between them and compares them: then neither lies in the answer, which it writes.

    Parameters
    ----------
    code
        The code of the round.
    shape
        Shape of one message's value.
    dtype
        Dtype of the answer.
    """

    def __init__(self, code: Code, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.code = code
        self.shape = shape
        self.dtype = dtype
        self.answer = np.empty((code.k, *shape), dtype) if code.target == "blocks" else None
        self.values: dict[int, Array] = {}
        self._placed: dict[int, int] = {}

    def file_all(self, messages: Sequence[int], value: Array) -> None:
        """Keep what one worker sent: its message, or for several their stack; errors as for `file`."""
        if len(messages) == 1:
            self.file(messages[0], value)
            return
        if len(value) != len(messages):
            raise InvokeError(f"result holds {len(value)} messages, expected {len(messages)}", kind="bad-reply")
        for message, part in zip(messages, value, strict=True):
            self.file(message, part)

    def file(self, message: int, value: Array) -> None:
        """Keep the value of one message; a second value of the same message is ignored.

        Raises
        ------
        InvokeError
            With kind ``"bad-reply"`` if the value has another shape or dtype kind, or is not finite.
        """
        if message in self.values:
            return
        if value.shape != self.shape:
            raise InvokeError(f"result has shape {value.shape}, expected {self.shape}", kind="bad-reply")
        if value.dtype != self.dtype and not np.can_cast(value.dtype, self.dtype, "same_kind"):
            raise InvokeError(f"result has dtype {value.dtype}, expected {self.dtype}", kind="bad-reply")
        # A sum is finite only if every term is, or terms overflow together: look closely only then.
        if not cmath.isfinite(value.sum()) and not np.isfinite(value).all():
            raise InvokeError("result holds NaN or Inf; it is counted as not arrived", kind="bad-reply")
        source = None if self.answer is None else self.code.source_of(message)
        if self.answer is None or source is None:
            row = np.empty(self.shape, self.dtype)
        elif source in self._placed:
            row = np.empty(self.shape, self.dtype)
            first = self._placed[source]
            if np.may_share_memory(self.values[first], self.answer):
                self.values[first] = self.values[first].copy()
        else:
            self._placed[source] = message
            row = self.answer[source]
        row[...] = value
        self.values[message] = row

    def decode(
        self, messages: Iterable[int], tolerance: float | None, scale: float, **options: Any
    ) -> tuple[Array, Certificate]:
        """Reconstruct from these messages what the code's ``decode`` gives, with its further ``options``."""
        values = {message: self.values[message] for message in messages}
        return self.code.decode(values, out=self.answer, tolerance=tolerance, scale=scale, **options)


Presign = Callable[[Task], Awaitable[Task]]
"""Gives a task the URLs by which a worker without rights reaches its objects."""


def _never(slot: int) -> bool:  # noqa: ARG001 - said of any slot
    return False


@dataclass(slots=True)
class Attempts:
    """Runs attempts of one round's tasks and counts what happened to them.

    ``counts`` has ``recovered`` (reply lost, result found in the store), ``refused_writes`` (another attempt had
    stored its result before), ``stale`` (reply to another round or run), ``by_reference``, ``bytes_down``, and what the
    workers said of their requests to the store: ``reads``, ``writes``, ``slow_downs``.
    ``reasons`` counts the failed attempts by `InvokeError.reason`. ``traceback`` is what the worker said of the first
    failure of a user's function; empty if there was none. The result of a slot that ``stays`` in the store is neither
    fetched nor accepted. ``read_result`` makes the reply of what is stored under a task's ``result_key``, where that is
    not a reply.
    """

    store: Store
    invoker: Invoker
    timeout: float
    make_task: Callable[[TaskSpec], Task]
    accept: Callable[[TaskSpec, Array], None]
    stays: Callable[[int], bool] = _never
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    presign: Presign | None = None
    traceback: str = ""
    read_result: Callable[[Task, Buffer], Reply] = lambda _, data: Reply.from_bytes(data)

    async def run(self, spec: TaskSpec) -> tuple[Array | None, Mapping[str, Any]]:
        """Run one attempt; return its value, None if it stays in the store, and what the worker said about it.

        Raises
        ------
        InvokeError
            If no valid value came of it.
        ConfigError, LimitError, ProtocolMismatch
            If no attempt at any task can succeed: function or credentials are refused, requests are too large, or the
            worker is of another version.
        """
        task = self.make_task(spec)
        if self.presign is not None:
            task = await self.presign(task)  # each attempt anew: what an earlier one brought may have expired
        try:
            return await self._run(spec, task)
        except InvokeError as exc:
            self.reasons[exc.reason] += 1
            raise

    async def _run(self, spec: TaskSpec, task: Task) -> tuple[Array | None, Mapping[str, Any]]:
        try:
            payload = task.to_bytes()
            self.bytes_up += len(payload)
            reply = self._checked(await self._invoke(spec, payload), task)
        except InvokeError as exc:
            if not exc.may_have_run:
                raise
            recovered = await self._stored(task)
            if recovered is None:
                raise
            self.counts["recovered"] += 1
            self._count(recovered)
            self.counts["writes"] += 1  # that of the result itself, made after it was counted
            reply = recovered
        if reply.duplicate:
            self.counts["refused_writes"] += 1
        if self.stays(spec.slot):
            return self._left(reply)
        if reply.value is None:
            stored = await self._stored(task)
            if stored is None or stored.value is None:
                raise InvokeError(f"the result announced under {task.result_key} is not there", kind="bad-reply")
            self.counts["by_reference"] += 1
            reply = replace(stored, times=reply.times, stats=reply.stats)
        if reply.stats.get("non_finite"):  # already where it was computed: no fault of the way here
            raise _overflow()
        value = reply.value
        assert value is not None  # noqa: S101 - just checked for every path
        self.counts["bytes_down"] += value.nbytes
        self.accept(spec, value)
        return value, {**reply.times, **reply.stats}

    def _count(self, reply: Reply) -> None:
        """Add what a worker asked of the store."""
        for name in ("reads", "writes", "slow_downs"):
            self.counts[name] += reply.stats.get(name, 0)

    def _left(self, reply: Reply) -> tuple[None, Mapping[str, Any]]:
        """Take note of a result that stays where it is; the worker says whether it is one."""
        if reply.stats.get("non_finite"):
            raise _overflow()
        return None, {**reply.times, **reply.stats}

    async def _invoke(self, spec: TaskSpec, payload: Buffer) -> Buffer:
        try:
            return await self.invoker.invoke(spec, payload, timeout=self.timeout)
        except InvokeError as exc:
            if exc.kind in {"denied", "missing"}:  # said by the service, not by a worker: it holds for every task
                raise ConfigError(str(exc)) from exc
            if exc.kind == "too-large" and not exc.may_have_run:  # so is every other task of the round
                raise LimitError(str(exc)) from exc
            raise

    def _checked(self, raw: Buffer, task: Task) -> Reply:
        try:
            reply = Reply.from_bytes(raw)
        except (FrameError, KeyError, TypeError) as exc:
            raise InvokeError(
                f"the answer is not a reply of this protocol: {exc}", kind="bad-reply", reason="not a reply"
            ) from exc
        if reply.status == "error" and reply.error.get("kind") == "protocol":
            raise ProtocolMismatch(reply.error.get("message", ""))
        unread = reply.status == "error" and not reply.run  # the task arrived damaged: the worker cannot say which
        wrong = "" if unread else mismatch(reply, task)
        if wrong:
            self.counts["stale"] += 1
            raise InvokeError(wrong, kind="bad-reply", reason="stale reply")
        self._count(reply)
        if reply.status == "cancelled":
            raise InvokeError("the worker found the cancel mark and stopped", kind="function", retryable=False)
        if reply.status == "error":
            if reply.error.get("type") == "FunctionError":
                said = reply.error.get("traceback", "").partition("\n\nThe above exception was")[0]  # the user's part
                self.traceback = self.traceback or said
            raise _worker_error(reply.error)
        return reply

    async def _stored(self, task: Task) -> Reply | None:
        """Read the result that some attempt at this task stored, or None."""
        try:
            reply = self.read_result(task, await self.store.get(task.result_key))
        except ObjectNotFound:
            return None
        except (StoreError, FrameError, KeyError) as exc:
            raise InvokeError(f"the stored result cannot be read: {exc}", kind="bad-reply") from exc
        return None if mismatch(reply, task, any_attempt=True) else reply


def _overflow() -> InvokeError:
    return InvokeError(
        "the products overflow: the worker computed NaN or Inf from finite numbers. Rescale X or w",
        kind="function",
        reason=OVERFLOW,
        retryable=False,
        may_have_run=False,
    )


def _worker_error(error: Mapping[str, str]) -> Exception:
    """Say in the driver's words what a worker reported."""
    said = error.get("message", "")
    if error.get("type") == "FunctionRefused":  # no worker can run it
        return ConfigError(said)
    if error.get("type") == "FunctionError":  # it would raise again: the slot is given up at once
        return InvokeError(said, kind="function", reason=LOSS_FAILED, retryable=False, may_have_run=False)
    kind = _WORKER_KINDS.get(error.get("kind", ""), "function")
    return InvokeError(f"{error.get('type', 'error')}: {said}", kind=kind, may_have_run=False)
