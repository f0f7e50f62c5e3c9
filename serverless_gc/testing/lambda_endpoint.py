"""Lambda's data plane for tests, on 127.0.0.1: runs the real worker, refuses what Lambda refuses.

The endpoint is a process of its own, so that clients are measured and killed without it. Tests script what it does
with the next requests, and read how many it got.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.limits import DEFAULT_LIMITS

__all__ = ["CONTROL", "ECHO", "WORKER", "Counts", "LambdaEndpoint", "Step", "error_step"]

WORKER = "serverless_gc.worker.entry:handle"
"""The handler that functions run unless told otherwise, as ``module:function``."""

ECHO = "serverless_gc.testing.lambda_server:echo"
"""A handler that answers with its own event."""

CONTROL = "/_endpoint"
"""Path under which a test controls the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do with one request.

    Parameters
    ----------
    action
        ``"run"`` the function; answer with the canned ``reply``; ``"hang"``: never answer; ``"break"``: close the
        connection without an answer; ``"lose"``: run the function, then close the connection; ``"kill"`` its process.
    delay
        Seconds of service time before the action, within the function's timeout.
    status, headers, body
        The canned reply.
    times
        How many requests to treat so; 0 for all further ones.
    """

    action: Literal["run", "reply", "hang", "break", "lose", "kill"] = "run"
    delay: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    times: int = 1


def error_step(status: int, code: str, message: str = "", *, times: int = 1, **fields: str) -> Step:
    """Make a step that answers as Lambda answers an error.

    Examples
    --------
    >>> error_step(403, "ExpiredTokenException", "The security token is expired").status
    403
    """
    body = {"Type": "User", "message": message, **fields}
    return Step(action="reply", status=status, headers={"x-amzn-ErrorType": code}, body=json.dumps(body), times=times)


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened to one function so far: requests received, runs of the handler, most requests at once."""

    requests: int
    runs: int
    peak: int


class LambdaEndpoint:
    """A Lambda data plane in its own process.

    Parameters
    ----------
    functions
        Names of the functions that exist; or a mapping from name to handler, ``"module:function"``.
    concurrency
        Invocations the account admits at once; above it requests are answered 429.
    timeout
        Seconds that a function may run.
    request_bytes, reply_bytes
        Payload limits.
    threads
        Threads that run handlers.
    script
        Steps for the first requests of each function; afterwards requests just run.
    environment
        Variables that functions see, beside those of this process.

    Examples
    --------
    >>> with LambdaEndpoint({"worker": ECHO}) as endpoint:
    ...     endpoint.script("worker", error_step(429, "TooManyRequestsException", "Rate Exceeded."))
    ...     print(endpoint.url.startswith("http://127.0.0.1:"), endpoint.counts("worker"))
    True Counts(requests=0, runs=0, peak=0)
    """

    def __init__(
        self,
        functions: Iterable[str] | Mapping[str, str] = ("serverless-gc-worker",),
        *,
        concurrency: int = 1000,
        timeout: float = 900.0,
        request_bytes: int = DEFAULT_LIMITS.request_bytes,
        reply_bytes: int = DEFAULT_LIMITS.reply_bytes,
        threads: int = 2,
        script: Sequence[Step] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        handlers = dict(functions) if isinstance(functions, Mapping) else dict.fromkeys(functions, WORKER)
        self._settings = {
            "functions": handlers,
            "concurrency": concurrency,
            "timeout": timeout,
            "request_bytes": request_bytes,
            "reply_bytes": reply_bytes,
            "threads": threads,
            "script": [asdict(step) for step in script],
        }
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Endpoint URL, for ``endpoint=`` or ``AWS_ENDPOINT_URL_LAMBDA``.

        Raises
        ------
        InputError
            If the endpoint is not running.
        """
        if self._process is None:
            raise InputError("the endpoint is not running: use it as a context manager")
        return self._url

    def __enter__(self) -> Self:
        own = {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "serverless_gc.testing.lambda_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._environment, **own},
            text=True,
        )
        if process.stdin is None or process.stdout is None:
            raise ConfigError("the endpoint's process has no pipes")
        self._process = process
        # The settings are one line; the stream stays open and its end, whatever the reason, ends the process.
        process.stdin.write(json.dumps(self._settings) + "\n")
        process.stdin.flush()
        port = process.stdout.readline().strip()
        if not port:
            self.close()
            raise ConfigError("the Lambda endpoint did not start; its error is above")
        self._url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; its port is free afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def counts(self, function: str) -> Counts:
        """Read a function's counts."""
        return Counts(**self._control("counts")[function])

    def script(self, function: str, *steps: Step) -> None:
        """Replace a function's script by these steps."""
        self._control(f"script/{function}", [asdict(step) for step in steps])

    def _control(self, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.url}{CONTROL}/{path}", data=data)  # noqa: S310 - our own http URL
        with urllib.request.urlopen(request, timeout=10.0) as answer:  # noqa: S310 - our own http URL
            return json.loads(answer.read())
