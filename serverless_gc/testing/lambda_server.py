"""The process behind `serverless_gc.testing.lambda_endpoint`."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.testing.lambda_endpoint import CONTROL, Step

__all__ = ["echo", "main"]

Handler = Callable[[Any, Any], Any]

_EVENT_BYTES = DEFAULT_LIMITS.event_bytes


@dataclass(frozen=True, slots=True)
class Context:
    """The part of Lambda's context object that handlers use."""

    function_name: str
    aws_request_id: str
    memory_limit_in_mb: str = "1769"


@dataclass(slots=True)
class Function:
    """One function: what it runs, what is scripted, what happened."""

    name: str
    handler: Handler
    script: deque[Step] = field(default_factory=deque)
    requests: int = 0
    runs: int = 0
    running: int = 0
    peak: int = 0

    def next_step(self) -> Step:
        """Take the step for the next request."""
        if not self.script:
            return Step()
        step = self.script[0]
        if step.times == 1:
            self.script.popleft()
        elif step.times > 1:
            self.script[0] = replace(step, times=step.times - 1)
        return step


class Plane:
    """Answers invocations as Lambda does."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings["threads"], thread_name_prefix="function")
        self._events: set[asyncio.Task[Any]] = set()
        self.functions = {
            name: Function(name, _load(handler), deque(Step(**step) for step in settings["script"]))
            for name, handler in settings["functions"].items()
        }

    @property
    def running(self) -> int:
        """Invocations under way in the account."""
        return sum(function.running for function in self.functions.values())

    async def invoke(self, request: web.Request) -> web.StreamResponse:
        """``POST /2015-03-31/functions/{name}/invocations``."""
        function = self.functions.get(request.match_info["name"].rpartition(":function:")[2])
        if function is None:
            name = request.match_info["name"]
            return _error(404, "ResourceNotFoundException", f"Function not found: {name}")
        function.requests += 1
        if "Authorization" not in request.headers:
            return _error(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
        body = await request.read()
        kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        limit = _EVENT_BYTES if kind == "Event" else self._settings["request_bytes"]
        if len(body) > limit:
            text = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
            return _error(413, "RequestTooLargeException", text)
        if self.running >= self._settings["concurrency"]:
            reason = "ConcurrentInvocationLimitExceeded"
            return _error(429, "TooManyRequestsException", "Rate Exceeded.", Reason=reason)
        if kind == "Event":
            event = asyncio.create_task(self._act(function, function.next_step(), body, request))
            self._events.add(event)
            event.add_done_callback(self._events.discard)
            return web.Response(status=202, headers=_headers())
        return await self._act(function, function.next_step(), body, request)

    async def _act(self, function: Function, step: Step, body: bytes, request: web.Request) -> web.StreamResponse:
        function.running += 1
        function.peak = max(function.peak, function.running)
        timeout = self._settings["timeout"]
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(step.delay)
                if step.action == "hang":
                    await asyncio.Event().wait()
                if step.action == "kill":
                    text = f"RequestId: {uuid.uuid4()} Error: Runtime exited with error: signal: killed"
                    return _function_error({"errorType": "Runtime.ExitError", "errorMessage": text})
                if step.action == "reply":
                    return web.Response(
                        status=step.status, headers={**_headers(), **step.headers}, body=step.body.encode()
                    )
                if step.action in {"run", "lose"}:
                    answer = await self._run(function, body)
        except TimeoutError:
            text = f"{uuid.uuid4()} Task timed out after {timeout:.2f} seconds"
            return _function_error({"errorType": "Sandbox.Timedout", "errorMessage": text})
        finally:
            function.running -= 1
        if step.action == "run":
            return answer
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _run(self, function: Function, body: bytes) -> web.Response:
        function.runs += 1
        context = Context(function.name, str(uuid.uuid4()))
        loop = asyncio.get_running_loop()
        reply, failed = await loop.run_in_executor(self._pool, _call, function.handler, body, context)
        limit = self._settings["reply_bytes"]
        if len(reply) > limit:
            text = f"Response payload size exceeded maximum allowed payload size ({limit} bytes)."
            return _function_error({"errorType": "Function.ResponseSizeTooLarge", "errorMessage": text})
        return web.Response(body=reply, headers=_headers() | ({"X-Amz-Function-Error": "Unhandled"} if failed else {}))

    async def counts(self, request: web.Request) -> web.Response:
        """``GET /_endpoint/counts``."""
        del request
        return web.json_response(
            {f.name: {"requests": f.requests, "runs": f.runs, "peak": f.peak} for f in self.functions.values()}
        )

    async def script(self, request: web.Request) -> web.Response:
        """``POST /_endpoint/script/{name}``."""
        steps = await request.json()
        self.functions[request.match_info["name"]].script = deque(Step(**step) for step in steps)
        return web.json_response(len(steps))


def _load(handler: str) -> Handler:
    module, _, name = handler.partition(":")
    loaded: Handler = getattr(importlib.import_module(module), name)
    return loaded


def _call(handler: Handler, body: bytes, context: Context) -> tuple[bytes, bool]:
    """Call a handler as Lambda's runtime does; returns the reply and whether the handler failed."""
    try:
        return json.dumps(handler(json.loads(body), context)).encode(), False
    except BaseException as error:  # noqa: BLE001 - the runtime reports whatever a handler raises
        return json.dumps(
            {
                "errorType": type(error).__name__,
                "errorMessage": str(error),
                "requestId": context.aws_request_id,
                "stackTrace": traceback.format_tb(error.__traceback__),
            }
        ).encode(), True


def _headers() -> dict[str, str]:
    return {
        "x-amzn-RequestId": str(uuid.uuid4()),
        "X-Amz-Executed-Version": "$LATEST",
        "Content-Type": "application/json",
    }


def _error(status: int, code: str, message: str, **fields: str) -> web.Response:
    body = json.dumps({"Type": "User", "message": message, **fields})
    return web.Response(status=status, headers=_headers() | {"x-amzn-ErrorType": code}, body=body.encode())


def _function_error(error: Mapping[str, str]) -> web.Response:
    return web.Response(headers=_headers() | {"X-Amz-Function-Error": "Unhandled"}, body=json.dumps(error).encode())


def echo(event: Any, context: Any) -> Any:
    """Answer an invocation with its own event: a handler for tests that need no worker."""
    del context
    return event


async def serve(settings: Mapping[str, Any]) -> None:
    """Serve until standard input ends, having written the port as the first line of standard output."""
    plane = Plane(settings)
    app = web.Application(client_max_size=2 * settings["request_bytes"] + 2**20)
    app.router.add_post("/2015-03-31/functions/{name}/invocations", plane.invoke)
    app.router.add_get(f"{CONTROL}/counts", plane.counts)
    app.router.add_post(f"{CONTROL}/script/{{name}}", plane.script)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    await runner.cleanup()


def main() -> None:
    """Read the settings from the first line of standard input and serve."""
    settings = json.loads(sys.stdin.readline())
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
