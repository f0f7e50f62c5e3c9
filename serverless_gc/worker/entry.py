"""The worker: one packed task in, one packed reply out.

`run` is what every backend calls, in a thread, a process or a function; `handle` is its face for AWS Lambda.
"""

from __future__ import annotations

import binascii
import itertools
import os
import platform
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import PROTOCOL, Block, Frame, FrameError, Reply, Task, mismatch, unpack
from serverless_gc.worker import kernels
from serverless_gc.worker.blobs import Blobs, Buffer
from serverless_gc.worker.cache import BlockCache, cache_bytes
from serverless_gc.worker.opening import open_blobs
from serverless_gc.worker.parts import Parts
from serverless_gc.worker.reads import Reads
from serverless_gc.worker.retry import JITTER, Backoff, RetryCounts, RetryingBlobs

if TYPE_CHECKING:
    from serverless_gc.worker.nodes import NodeRound

__all__ = ["Warm", "handle", "run"]

OpenBlobs: TypeAlias = Callable[[str], Blobs]

_runs = itertools.count()  # the first of a process is the cold one
LOOK_AGAIN = 1.0  # seconds after which a task looks whether its run is still there, before it stores anything
_MOST_TEXT = 8000  # characters of a traceback or message in a reply


@dataclass(frozen=True, slots=True)
class Warm:
    """What survives from one task to the next in one process: parsed blocks and operands."""

    blocks: BlockCache
    operands: BlockCache

    @classmethod
    def of(cls, max_bytes: int) -> Warm:
        """Make room for ``max_bytes`` of blocks, and an eighth of that for operands."""
        return cls(BlockCache(max_bytes), BlockCache(max_bytes // 8))

    def forget(self, store: str, keys: Collection[str]) -> None:
        """Drop what was read from these objects of a store: they were deleted."""
        for cache in (self.blocks, self.operands):
            cache.forget((store, key) for key in keys)


@lru_cache(maxsize=1)
def _process_warm() -> Warm:
    """Return what this process keeps; a Lambda environment lives as long as its process."""
    return Warm.of(cache_bytes())


class _Fault(Exception):
    """A task failed in a way that has a name; the cause is the exception to report."""

    def __init__(self, kind: str, cause: Exception) -> None:
        super().__init__(kind)
        self.kind = kind
        self.cause = cause


class _Cancelled(Exception):
    """The cancel mark is there, or the run is gone."""


def _store_kind(error: Exception) -> str:
    """Name what a store reported, the worker's own S3 or a store of the driver's process."""
    if isinstance(error, FrameError):
        return "corrupt"
    kind = getattr(error, "kind", "")
    if kind:
        return str(kind)
    if isinstance(error, (KeyError, ValueError)):  # no such object, or no store behind such a URL
        return "missing"
    return "denied" if isinstance(error, PermissionError) else "unavailable"


class _Attempt:
    """One attempt at one task."""

    def __init__(self, task: Task, blobs: Blobs, warm: Warm, sleep: Callable[[float], None]) -> None:
        self.task = task
        self.counts = RetryCounts()
        self.blobs = RetryingBlobs(blobs, sleep=sleep, counts=self.counts)
        self.reads = Reads(task, self.blobs, warm.blocks, warm.operands)
        self.times: dict[str, float] = {}
        self.execution = uuid.uuid4().hex
        self._begun = time.monotonic()
        self.published = 0
        self.resumed = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase, and name what fails there."""
        start = time.perf_counter()
        try:
            yield
        except (_Fault, _Cancelled):
            raise
        except Exception as error:
            raise _Fault("function" if name == "compute" else _store_kind(error), error) from error
        finally:
            self.times[name] = self.times.get(name, 0.0) + time.perf_counter() - start

    def run(self) -> Reply:
        """Do the work; the order of steps is the protocol."""
        task = self.task
        with self.phase("read"):
            self._check_mark()
            blocks = self.reads.blocks()
            operand = self.reads.operand()
            self._check_mark()
        if (turn := task.turn) is not None:
            from serverless_gc.worker.nodes import NodeRound  # other tasks do without it

            return self._node(NodeRound(task, turn, self.blobs), blocks, operand)
        value = self._published(blocks, operand) if task.params.get("publish") else None
        with self.phase("compute"):
            if value is None:
                value = np.asarray(kernels.get(task.kernel)(blocks, operand, task.params))
            if value.dtype.kind not in "biufc":
                raise TypeError(f"kernel {task.kernel!r} returned an array of {value.dtype}, numbers are expected")
        duplicate = False
        if task.result_key:
            with self.phase("write"):
                self._check_run()
                value, duplicate = self._settle(value)
        inline = value.nbytes <= task.inline_limit or not task.result_key
        return self.reply(
            self.stats(value), value=value if inline else None, result_key=task.result_key, duplicate=duplicate
        )

    def _node(self, node: NodeRound, blocks: list[Block], start: NDArray[Any] | None) -> Reply:
        """Do a round of a node of a decentralized scheme: its state is the result, and stays where it is."""
        with self.phase("read"):
            node.read(blocks, start)
        with self.phase("compute"):
            node.compute(blocks)
        with self.phase("write"):
            self._check_run()
            fresh = node.write()
        said = {**self.stats(), **node.counts, "bytes_read": self.reads.bytes_read + node.counts["bytes_read"]}
        return self.reply(said, value=np.array([node.slope]), result_key=self.task.result_key, duplicate=not fresh)

    def reply(self, stats: Mapping[str, Any], **fields: Any) -> Reply:
        """Answer the task, with the times so far."""
        return Reply.to(self.task, times=dict(self.times), stats=stats, **fields)

    def stats(self, value: NDArray[Any] | None = None) -> dict[str, Any]:
        """Report what this attempt did."""
        non_finite = 0
        if value is not None and value.dtype.kind in "fc":
            non_finite = value.size - int(np.count_nonzero(np.isfinite(value)))
        return {
            "execution": self.execution,
            "non_finite": non_finite,
            "bytes_read": self.reads.bytes_read,
            "cache_hits": self.reads.cache_hits,
            "reads": self.counts.reads,
            "writes": self.counts.writes,
            "retries": self.counts.retries,
            "slow_downs": self.counts.slow_downs,
            **({"published": self.published, "resumed": self.resumed} if self.task.params.get("publish") else {}),
        }

    def _published(self, blocks: list[Block], operand: NDArray[Any] | None) -> NDArray[Any]:
        """Do the work message by message, storing them early and looking for the cancel mark at the same times."""
        task = self.task
        parts, values = Parts(task, self.blobs), list[NDArray[Any]]()
        if task.attempt:
            with self.phase("read"):
                values = parts.earlier()
            self.resumed = len(values)
        messages = kernels.stream(task.kernel, blocks, operand, task.params, self.resumed)
        while True:
            with self.phase("compute"):
                value = self._paced(messages)
            if value is None:
                return values[0] if len(values) == 1 else np.stack(values)
            values.append(value)
            if parts.due(len(values)):
                with self.phase("write"):
                    self._check_run()
                    self.published += parts.store(values, self.times, self.stats())
                with self.phase("read"):
                    self._check_mark()

    def _paced(self, messages: Iterator[NDArray[Any]]) -> NDArray[Any] | None:
        """Make the next message, as slowly as the task says: ``slowdown`` times longer, ``pace`` seconds on top."""
        start = time.perf_counter()
        message = next(messages, None)
        if message is None:
            return None
        params = self.task.params
        extra = (params.get("slowdown", 1.0) - 1.0) * (time.perf_counter() - start) + params.get("pace", 0.0)
        if extra > 0:
            self.blobs.sleep(extra)
        return np.asarray(message)

    def _check_mark(self) -> None:
        if self.task.cancel_key and self.blobs.exists(self.task.cancel_key):
            raise _Cancelled

    def _check_run(self) -> None:
        """Look whether the run is still there: after so long its session may have cleaned up and gone."""
        late = time.monotonic() - self._begun > LOOK_AGAIN
        if late and self.task.alive_key and not self.blobs.exists(self.task.alive_key):
            raise _Cancelled

    def _settle(self, value: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Store the result, or take the one that is stored: whoever reads the task's result reads one value."""
        task = self.task
        mine = self.reply(self.stats(value), value=value, result_key=task.result_key)
        frame = mine.to_parts()
        backoff = Backoff(attempts=4)
        for failed in range(1, backoff.attempts + 1):
            if self.blobs.put(task.result_key, frame, if_absent=True):
                return value, False
            try:
                stored = Reply.from_bytes(self.blobs.get(task.result_key))
            except KeyError as error:  # the other writer was refused after all, or has not finished
                missing = error
                self.blobs.sleep(backoff.wait(failed, JITTER))
                continue
            reason = mismatch(stored, task, any_attempt=True)
            if reason or stored.value is None:
                raise _Fault(
                    "bad-reply", ValueError(f"under {task.result_key!r} is a {reason or 'reply without value'}")
                )
            # The stored result may be this very attempt's: a write that was repeated because its answer got lost.
            return stored.value, stored.stats.get("execution") != self.execution
        raise missing


def _described(kind: str, error: BaseException) -> dict[str, str]:
    import traceback  # 2 ms of a cold start, needed by failures only

    return {
        "kind": kind,
        "type": type(error).__name__,
        "message": str(error)[:_MOST_TEXT],
        "traceback": "".join(traceback.format_exception(error))[-_MOST_TEXT:],
    }


def _other_protocol(frame: Frame) -> Reply | None:
    """Refuse a task of another version, naming what of its identity this version understands."""
    head = frame.header
    version = head.get("protocol")
    if version == PROTOCOL:
        return None
    error = ValueError(
        f"the driver speaks protocol {version}, this worker protocol {PROTOCOL}: deploy the worker again with the "
        "driver's version of serverless_gc"
    )
    return Reply(
        run=str(head.get("run", "")),
        round=head.get("round", -1),
        task_id=str(head.get("task", "")),
        slot=head.get("slot", -1),
        attempt=head.get("attempt", -1),
        status="error",
        error=_described("protocol", error),
        stats={"driver_protocol": version, "worker_protocol": PROTOCOL},
    )


def _environment(*, cold: bool) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cold": cold,
        "pid": os.getpid(),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
        "log_stream": os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", ""),
    }


def _blobs_of(task: Task, open_store: OpenBlobs) -> Blobs:
    """Return what the task's objects are reached by: the URLs it brings, or its store."""
    if not task.urls:
        return open_store(task.store)
    from serverless_gc.worker.presigned import PresignedBlobs  # loads http.client

    return PresignedBlobs(task.urls)


def _run(payload: Buffer, open_store: OpenBlobs, warm: Warm, sleep: Callable[[float], None]) -> Reply:
    try:
        frame = unpack(payload)
        refusal = _other_protocol(frame)
        if refusal is not None:
            return refusal
        task = Task.from_frame(frame)
    except FrameError as error:
        kind = "protocol" if error.reason == "version" else "corrupt"
        return Reply("", -1, "", -1, -1, "error", error=_described(kind, error))
    try:
        attempt = _Attempt(task, _blobs_of(task, open_store), warm, sleep)
    except Exception as error:  # noqa: BLE001 - whatever a store's opening raises belongs into the reply
        return Reply.to(task, "error", error=_described(_store_kind(error), error))
    try:
        with np.errstate(all="ignore"):  # what is not finite is reported in the reply; a warning here has no reader
            return attempt.run()
    except _Cancelled:
        return attempt.reply(attempt.stats(), status="cancelled")
    except _Fault as fault:
        return attempt.reply(attempt.stats(), status="error", error=_described(fault.kind, fault.cause))


def run(
    payload: Buffer,
    open_blobs: OpenBlobs = open_blobs,
    *,
    warm: Warm | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """Run one attempt at one task.

    Parameters
    ----------
    payload
        A packed `serverless_gc.wire.Task`.
    open_blobs
        Opens the store named by the task's URL.
    warm
        Blocks kept from earlier tasks; by default this process's, bounded by ``SERVERLESS_GC_CACHE_MB``.
    sleep
        How to wait before a request to a busy store is repeated.

    Returns
    -------
    bytes
        A packed `serverless_gc.wire.Reply`. Whatever goes wrong with the task is a reply with status ``"error"``
        whose ``error["kind"]`` is ``"function"`` (the computation raised), ``"corrupt"`` (a stored object is
        damaged), ``"missing"``, ``"denied"``, ``"unavailable"`` (the store), ``"bad-reply"`` (a foreign object
        under the result's key) or ``"protocol"`` (driver and worker differ in version).

    Examples
    --------
    >>> from serverless_gc.wire import Reply, Task
    >>> task = Task("r", 0, "t", 0, 0, kernel="noop", blocks=(), result_key="", store="file:///", params={"size": 2})
    >>> Reply.from_bytes(run(task.to_bytes())).value
    array([0., 0.])
    """
    started = time.time()
    cold = next(_runs) == 0
    reply = _run(payload, open_blobs, _process_warm() if warm is None else warm, sleep)
    return replace(
        reply,
        times={**reply.times, "started": started},
        stats={**_environment(cold=cold), **reply.stats},
    ).to_bytes()


def handle(event: Any, context: object) -> dict[str, str]:  # noqa: ARG001 - Lambda's signature
    """Answer one Lambda invocation: ``{"sgc": base64 of the task}`` in, ``{"sgc": base64 of the reply}`` out.

    Raises
    ------
    TypeError
        If the event is not from a driver of this package.
    """
    if not isinstance(event, dict) or not isinstance(text := event.get("sgc"), str):
        raise TypeError('expected an event {"sgc": "<base64>"}; this function is called by the serverless_gc driver')
    return {"sgc": binascii.b2a_base64(run(binascii.a2b_base64(text)), newline=False).decode("ascii")}
