"""One execution environment: a process under AWS's runtime interface client, driven through its Runtime API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from serverless_gc.testing.rig import memory
from serverless_gc.testing.rig.runtime_api import RuntimeApi, Send
from serverless_gc.testing.rig.settings import Memory

__all__ = ["Environment", "Invocation", "Outcome", "Process", "timed_out"]

R = TypeVar("R")

_READ_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Process:
    """How to start the process; ``folder`` is its own and is removed with it."""

    command: Sequence[str]
    variables: Mapping[str, str]
    task_root: Path
    folder: Path
    memory_mb: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event on its way to a handler."""

    request_id: str
    body: bytes
    arn: str
    timeout: float
    client_context: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended: with a reply, or with an error object and the error's type."""

    body: bytes
    error: str = ""

    @classmethod
    def failure(cls, error: str, message: str) -> Outcome:
        """Make an error that Lambda itself reports, in its shape."""
        return cls(json.dumps({"errorType": error, "errorMessage": message}).encode(), error)


class Environment:
    """Runs one invocation at a time.

    Parameters
    ----------
    process
        What to start.
    most_reply
        Bytes of the largest reply.
    """

    def __init__(self, process: Process, most_reply: int) -> None:
        self._plan = process
        self._most_reply = most_reply
        self._api = RuntimeApi(self)
        self._process: asyncio.subprocess.Process | None = None
        self._tether = self._output = -1
        self._text = bytearray()
        self._send: Send | None = None
        self._ready: asyncio.Future[Outcome | None] | None = None
        self._outcome: asyncio.Future[Outcome] | None = None
        self._request_id = ""
        self._killed = False
        self._killed_for = ""
        self._peak_mb = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = False
        self.invocations = 0
        self.init_seconds = 0.0

    @property
    def pid(self) -> int:
        """Identity of the process; 0 before it starts."""
        return self._process.pid if self._process else 0

    @property
    def usable(self) -> bool:
        """Whether it lives, and shall."""
        return not (self.ended or self._killed)

    @property
    def busy(self) -> bool:
        """Whether it has an invocation."""
        return bool(self._request_id)

    async def start(self, timeout: float) -> Outcome | None:
        """Start the process and load the handler; returns the failure, or None when it is ready for events."""
        begin = time.perf_counter()
        ready: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._ready = ready
        address = await self._api.open()
        tether, self._tether = os.pipe()
        self._output, output = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._plan.command,
                stdin=tether,
                stdout=output,
                stderr=output,
                cwd=self._plan.task_root,
                env={**self._plan.variables, "AWS_LAMBDA_RUNTIME_API": address},
                process_group=0,
            )
        finally:
            os.close(tether)
            os.close(output)
        os.set_blocking(self._output, False)
        asyncio.get_running_loop().add_reader(self._output, self._read_output)
        self._limit_memory()
        self._tasks.append(asyncio.create_task(self._await_end(self._process)))
        try:
            async with asyncio.timeout(timeout):
                failure = await ready
        except TimeoutError:
            failure = Outcome.failure("Sandbox.Timedout", f"Error: Task timed out after {timeout:.2f} seconds (init)")
        self.init_seconds = time.perf_counter() - begin
        return failure

    async def ready(self) -> bool:
        """Wait until the runtime asks for an event; whether it still lives."""
        if not self.usable or self._send is not None:
            return self.usable
        self._ready = asyncio.get_running_loop().create_future()
        return await self._ready is None

    async def run(self, invocation: Invocation, left: float, *, kill_after: float | None = None) -> Outcome:
        """Hand an event over and wait for what comes of it, whatever it is.

        Parameters
        ----------
        invocation
            The event; the environment is `ready` and has no other.
        left
            Seconds of its time-out that are left; afterwards the process is killed.
        kill_after
            Seconds after which the process is killed for no reason at all.
        """
        loop = asyncio.get_running_loop()
        self._outcome = loop.create_future()
        self._request_id = invocation.request_id
        self.invocations += 1
        send, self._send = self._send, None
        timers = [loop.call_later(left, self._time_out, invocation)]
        if kill_after is not None:
            timers.append(loop.call_later(kill_after, self.kill))
        try:
            if send is not None:
                send(invocation.body, _event_headers(invocation, left))
            return await self._outcome
        finally:
            for timer in timers:
                timer.cancel()
            self._request_id = ""

    def take_output(self) -> str:
        """Take what the process has printed since the last time."""
        self._read_output()
        text, self._text = self._text, bytearray()
        return text.decode("utf-8", "replace")

    def peak_mb(self) -> int:
        """Most memory that it has held, in MiB; of a process that ended by itself, 0."""
        self._peak_mb = max(self._peak_mb, memory.peak_mb(self.pid))
        return self._peak_mb

    def kill(self, error: str = "") -> None:
        """End the process and all that it has started."""
        self._killed, self._killed_for = True, self._killed_for or error
        self.peak_mb()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End it and remove what it had: process, port, pipes, folder."""
        self.kill()
        if self._process is not None:
            await self._process.wait()
            await self._tasks[0]
        for task in self._tasks[1:]:
            task.cancel()
        self._read_output()
        self._api.close()
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            os.close(self._tether)
            self._output = self._tether = -1
        shutil.rmtree(self._plan.folder, ignore_errors=True)

    def runtime_polls(self, send: Send) -> None:
        """Take note that the runtime is ready for its next event."""
        self._send = send
        _resolve(self._ready, None)

    def runtime_replies(self, request_id: str, body: bytes, *, failed: bool) -> bool:
        """Take what the handler has returned or raised; says whether it is small enough."""
        if request_id != self._request_id:
            return True
        if len(body) > self._most_reply:
            message = f"Response payload size exceeded maximum allowed payload size ({self._most_reply} bytes)."
            _resolve(self._outcome, Outcome.failure("Function.ResponseSizeTooLarge", message))
            return False
        _resolve(self._outcome, Outcome(body, _error_type(body) if failed else ""))
        return True

    def runtime_cannot_start(self, body: bytes) -> None:
        """Take note that the handler could not be loaded."""
        _resolve(self._ready, Outcome(body, _error_type(body)))

    def _limit_memory(self) -> None:
        if self._plan.memory == "limit":
            memory.limit_data(self.pid, self._plan.memory_mb)
        elif self._plan.memory == "kill":
            out: Callable[[], None] = lambda: self.kill("Runtime.OutOfMemory")  # noqa: E731 - an argument with a name
            self._tasks.append(asyncio.create_task(memory.kill_above(self.pid, self._plan.memory_mb, out)))

    def _time_out(self, invocation: Invocation) -> None:
        _resolve(self._outcome, timed_out(invocation))
        self.kill()

    async def _await_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.ended = True
        self._send = None
        how = {0: "Runtime exited without providing a reason"}.get(code, f"Runtime exited with error: {_exit(code)}")
        prefix = f"RequestId: {self._request_id} " if self._request_id else ""
        failure = Outcome.failure(self._killed_for or "Runtime.ExitError", f"{prefix}Error: {how}")
        _resolve(self._ready, failure)
        _resolve(self._outcome, failure)

    def _read_output(self) -> None:
        if self._output < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, _READ_BYTES):
                self._text += data
            asyncio.get_running_loop().remove_reader(self._output)  # the last writer has ended


def timed_out(invocation: Invocation) -> Outcome:
    """Make the outcome of an invocation that took too long."""
    message = f"RequestId: {invocation.request_id} Error: Task timed out after {invocation.timeout:.2f} seconds"
    return Outcome.failure("Sandbox.Timedout", message)


def _event_headers(invocation: Invocation, left: float) -> dict[str, str]:
    trace = f"Root=1-{int(time.time()):08x}-{invocation.request_id.replace('-', '')[:24]};Sampled=0"
    headers = {
        "Content-Type": "application/json",
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(int(1000 * (time.time() + left))),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
        "Lambda-Runtime-Trace-Id": trace,
    }
    if invocation.client_context:
        headers["Lambda-Runtime-Client-Context"] = invocation.client_context
    return headers


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    return {signal.SIGKILL: "signal: killed", signal.SIGSEGV: "signal: segmentation fault"}.get(
        signal.Signals(-code), f"signal: {signal.strsignal(-code)}"
    )


def _error_type(body: bytes) -> str:
    try:
        return str(json.loads(body)["errorType"])
    except (ValueError, KeyError, TypeError):
        return "Runtime.Unknown"


def _resolve(future: asyncio.Future[R] | None, value: R) -> None:
    if future is not None and not future.done():
        future.set_result(value)
