"""Lambda's data plane: admits invocations, runs them in environments, answers as Lambda answers."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serverless_gc.testing.rig import logs
from serverless_gc.testing.rig.code import Unrunnable
from serverless_gc.testing.rig.environment import Invocation, Outcome, timed_out
from serverless_gc.testing.rig.faults import Doing, Plan
from serverless_gc.testing.rig.launch import Launcher
from serverless_gc.testing.rig.moto_seam import Account, Function, UnknownFunction
from serverless_gc.testing.rig.pool import InitFailed, Lease, Pool
from serverless_gc.testing.rig.settings import Settings

__all__ = ["Answer", "Plane", "Request", "decode_context"]

_ENDS_ENVIRONMENT = frozenset(
    {"Sandbox.Timedout", "Runtime.ExitError", "Runtime.OutOfMemory", "Function.ResponseSizeTooLarge"}
)
_UNHANDLED = {"X-Amz-Function-Error": "Unhandled"}


@dataclass(frozen=True, slots=True)
class Request:
    """One call of Invoke."""

    function: str
    qualifier: str
    region: str
    kind: str
    body: bytes
    tail: bool = False
    client_context: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; ``cut`` closes the connection instead."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the function ran and returned."""
        return self.status == 200 and not self.cut and "X-Amz-Function-Error" not in self.headers


class Plane:
    """Takes invocations.

    Parameters
    ----------
    settings
        Of the rig.
    account
        Knows the functions.
    launcher
        Prepares their processes.
    log
        Takes their output.
    """

    def __init__(self, settings: Settings, account: Account, launcher: Launcher, log: logs.Logs) -> None:
        self._settings = settings
        self._account = account
        self._launcher = launcher
        self._logs = log
        self._starting = asyncio.Semaphore(settings.cold_starts)
        self._pools: dict[str, Pool] = {}
        self._running: Counter[str] = Counter()
        self._events: set[asyncio.Task[None]] = set()
        self.plan = Plan(settings.faults, settings.inject)
        self.counts: dict[str, Counter[str]] = {}

    async def invoke(self, request: Request) -> Answer:
        """Answer one call."""
        try:
            function = self._account.function(request.function, request.qualifier, request.region)
        except UnknownFunction as error:
            return _refusal(404, "ResourceNotFoundException", str(error))
        limits = self._settings.limits
        most = limits.event_bytes if request.kind == "Event" else limits.request_bytes
        if len(request.body) > most:
            message = f"{len(request.body)} byte payload is too large for the {request.kind} invocation type "
            return _refusal(413, "RequestTooLargeException", message + f"(limit {most} bytes)")
        body = request.body or b"{}"
        try:
            json.loads(body)
        except ValueError as error:
            message = f"Could not parse request body into json: {error}"
            return _refusal(400, "InvalidRequestContentException", message)
        if request.kind == "DryRun":
            return Answer(204, headers=_headers())
        if request.kind != "Event":
            return await self._attempt(function, request, body)
        event = asyncio.create_task(self._deliver(function, request, body))
        self._events.add(event)
        event.add_done_callback(self._events.discard)
        return Answer(202, headers=_headers())

    def environments(self) -> list[dict[str, Any]]:
        """Describe the environments that live."""
        return [
            {
                "function": pool_name.partition("/")[2],
                "version": lease.version,
                "pid": environment.pid,
                "busy": environment.busy,
                "invocations": environment.invocations,
                "log_stream": lease.log.stream,
            }
            for pool_name, pool in self._pools.items()
            for environment, lease in pool.leases.items()
            if environment.usable
        ]

    def kill(self, function: str = "") -> int:
        """Kill environments, of one function or all; returns their number."""
        return sum(pool.kill() for name, pool in self._pools.items() if function in {"", name.partition("/")[2]})

    async def close(self) -> None:
        """End everything."""
        for event in tuple(self._events):
            event.cancel()
        await asyncio.gather(*self._events, return_exceptions=True)
        for pool in self._pools.values():
            await pool.close()

    async def _deliver(self, function: Function, request: Request, body: bytes) -> None:
        """Deliver an event: throttled, it waits; failed, it is tried again as often as the configuration says."""
        born, failures, throttles = time.monotonic(), 0, 0
        while True:
            answer = await self._attempt(function, request, body)
            if answer.succeeded:
                return
            if answer.status == 429:
                throttles += 1
            else:
                failures += 1
            if failures > function.retries or time.monotonic() - born > function.max_age:
                self._count(function, "dropped")
                return
            await asyncio.sleep(self._settings.event_delay * 2 ** min(4, failures + throttles - 1))
            try:
                function = self._account.function(request.function, request.qualifier, request.region)
            except UnknownFunction:
                return

    async def _attempt(self, function: Function, request: Request, body: bytes) -> Answer:
        self._count(function, "requests")
        doing = self.plan.next(function.name, body)
        reason = self._full(function)
        if reason:
            self._count(function, "throttles")
            return _refusal(429, "TooManyRequestsException", "Rate Exceeded.", Reason=reason)
        place = _place(function)
        taken = [place] if function.reserved >= 0 else [place, function.region]
        self._running.update(taken)
        count = self._counts(function)
        count["peak"] = max(count["peak"], self._running[place])
        try:
            return await self._act(function, doing, request, body)
        finally:
            self._running.subtract(taken)

    def account_limit(self, region: str) -> dict[str, int]:
        """Return what Lambda's GetAccountSettings says of the account in a region."""
        limits, concurrency = self._settings.limits, self._settings.concurrency
        return {
            "ConcurrentExecutions": concurrency,
            "UnreservedConcurrentExecutions": concurrency - self._account.reserved(region),
            "CodeSizeZipped": limits.code_zip_bytes,
            "CodeSizeUnzipped": limits.code_bytes,
        }

    def _full(self, function: Function) -> str:
        """Return Lambda's reason for refusing an invocation, empty if there is room."""
        if function.reserved >= 0:
            full = self._running[_place(function)] >= function.reserved
            return "ReservedFunctionConcurrentInvocationLimitExceeded" if full else ""
        # What others have reserved is theirs, used or not; functions without a reservation share the rest.
        shared = self.account_limit(function.region)["UnreservedConcurrentExecutions"]
        return "ConcurrentInvocationLimitExceeded" if self._running[function.region] >= shared else ""

    async def _act(self, function: Function, doing: Doing, request: Request, body: bytes) -> Answer:
        step, request_id = doing.step, str(uuid.uuid4())
        if step.action == "reply":
            await asyncio.sleep(step.delay)
            if step.status == 429:
                self._count(function, "throttles")
            return Answer(step.status, step.body.encode(), {**_headers(request_id), **step.headers})
        if step.action == "break":
            await asyncio.sleep(step.delay)
            return Answer(cut=True)
        invocation = Invocation(request_id, body, function.arn, function.timeout, request.client_context)
        if step.action == "hang":
            await asyncio.sleep(function.timeout)
            return Answer(200, timed_out(invocation).body, {**_headers(request_id), **_UNHANDLED})
        try:
            async with self._pool(function).lease(function) as lease:
                outcome, text = await self._run(function, doing, invocation, lease)
        except InitFailed as failed:
            outcome, text = failed.outcome, failed.output
            self._logs.add(failed.log, text + _framed(invocation, 0.0, function, "", 0, error=outcome.error))
        except Unrunnable as error:
            self._count(function, "refused")
            if not error.error_type.startswith("Runtime."):
                return _refusal(502, error.error_type, str(error))
            outcome, text = Outcome.failure(error.error_type, str(error)), f"[ERROR] {error}\n"
        if step.action == "lose":
            return Answer(cut=True)
        headers = {**_headers(request_id), "X-Amz-Executed-Version": function.version}
        if outcome.error:
            headers.update(_UNHANDLED)
        if request.tail:
            headers["X-Amz-Log-Result"] = logs.tail(text)
        return Answer(200, outcome.body, headers)

    async def _run(self, function: Function, doing: Doing, invocation: Invocation, lease: Lease) -> tuple[Outcome, str]:
        environment, step = lease.environment, doing.step
        init = environment.init_seconds if lease.cold else None
        before = environment.take_output()
        if lease.cold:
            self._count(function, "cold_starts")
            before = "\n".join(filter(None, [self._launcher.differs(function), before]))
        self._count(function, "runs")
        begin = time.perf_counter()
        kill_after = None
        if step.action == "kill":
            kill_after = step.delay
        elif step.delay:
            await asyncio.sleep(min(step.delay, function.timeout))
        left = max(0.0, function.timeout - (time.perf_counter() - begin))
        outcome = await environment.run(invocation, left, kill_after=kill_after)
        if doing.stretch > 1:
            ran = time.perf_counter() - begin - step.delay
            await asyncio.sleep(min((doing.stretch - 1) * ran, max(0.0, left - ran)))
        seconds = time.perf_counter() - begin
        lease.reuse = outcome.error not in _ENDS_ENVIRONMENT
        used = environment.peak_mb()
        text = before + _framed(
            invocation, seconds, function, environment.take_output(), used, init=init, error=outcome.error
        )
        self._logs.add(lease.log, text)
        return outcome, text

    def _pool(self, function: Function) -> Pool:
        place = _place(function)
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = Pool(self._settings, self._launcher, self._starting)
        return pool

    def _counts(self, function: Function) -> Counter[str]:
        return self.counts.setdefault(function.name, Counter())

    def _count(self, function: Function, what: str) -> None:
        self._counts(function)[what] += 1


def _place(function: Function) -> str:
    return f"{function.region}/{function.name}"


def _framed(
    invocation: Invocation,
    seconds: float,
    function: Function,
    output: str,
    used_mb: int,
    *,
    init: float | None = None,
    error: str = "",
) -> str:
    """Put the lines of an invocation between those that Lambda writes."""
    if output and not output.endswith("\n"):
        output += "\n"
    report = logs.report_line(invocation.request_id, seconds, function.memory_mb, used_mb, init=init, error=error)
    return (
        f"START RequestId: {invocation.request_id} Version: {function.version}\n{output}"
        f"END RequestId: {invocation.request_id}\n{report}\n"
    )


def _headers(request_id: str = "") -> dict[str, str]:
    return {"Content-Type": "application/json", "x-amzn-RequestId": request_id or str(uuid.uuid4())}


def _refusal(status: int, code: str, message: str, **fields: str) -> Answer:
    body = json.dumps({"Type": "User", "message": message, "Message": message, **fields}).encode()
    return Answer(status, body, {**_headers(), "x-amzn-ErrorType": code})


def decode_context(header: str) -> str:
    """Decode the header ``X-Amz-Client-Context``; what is not base64 is passed on as it is."""
    try:
        return base64.b64decode(header, validate=True).decode()
    except ValueError:
        return header
