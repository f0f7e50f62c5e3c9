"""A rig from outside: started as a process of its own, found by its URL, steered through its admin path."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.inject import Injection
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.testing.lambda_endpoint import Step
from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT
from serverless_gc.testing.rig.settings import DEFAULT_MEMORY, Memory, Settings, steps_to_json

__all__ = ["ADMIN", "Admin", "Rig", "RigCounts", "RigEnvironment"]

ADMIN = "/_rig/"
"""Where a rig is steered; no bucket can have this name."""

_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RigCounts:
    """What happened to one function so far.

    Attributes
    ----------
    requests
        Attempts: synchronous requests, and each delivery of an event.
    runs
        Invocations given to the function's code.
    cold_starts
        Runs in an environment that was new.
    throttles
        Attempts answered 429.
    peak
        Most attempts under way at once.
    dropped
        Events given up after all retries.
    refused
        Attempts at code that cannot run here.
    """

    requests: int = 0
    runs: int = 0
    cold_starts: int = 0
    throttles: int = 0
    peak: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RigEnvironment:
    """One living execution environment."""

    function: str
    version: str
    pid: int
    busy: bool
    invocations: int
    log_stream: str


@dataclass(frozen=True, slots=True)
class Admin:
    """Looks into a running rig and makes things go wrong there.

    Parameters
    ----------
    url
        The rig's.
    """

    url: str

    def counts(self, function: str) -> RigCounts:
        """Read a function's counts; all are 0 before its first attempt."""
        counted = self._ask("counts").get(function, {})
        return RigCounts(**{f.name: counted.get(f.name, 0) for f in fields(RigCounts)})

    def environments(self, function: str = "") -> list[RigEnvironment]:
        """List the living environments, of one function or of all."""
        living = [RigEnvironment(**content) for content in self._ask("environments")]
        return [environment for environment in living if function in {"", environment.function}]

    def kill(self, function: str = "") -> int:
        """Kill the environments of one function, or all, idle and busy; returns their number."""
        return int(self._ask("kill", {"function": function}))

    def set_faults(self, function: str, steps: Mapping[int, Step]) -> None:
        """Say what happens to a function's attempts; counting starts anew with 1.

        Parameters
        ----------
        function
            Its name.
        steps
            Number of the attempt to `serverless_gc.testing.lambda_endpoint.Step` (whose ``times`` is not used); the
            other attempts just run. An empty mapping ends all faults.
        """
        self._ask("faults", {"function": function, "steps": steps_to_json(steps)})

    def _ask(self, what: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + ADMIN + what, data=data)  # noqa: S310 - our own http URL
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30.0) as answer:
            return json.loads(answer.read())


class Rig:
    """A whole AWS account on this machine: S3, IAM, STS, CloudFormation, logs, and Lambda that runs deployed zips.

    Everything is on one URL on 127.0.0.1, in a process of its own, which ends with the block, and also when this
    process dies. Any AWS client finds it by the variables of `environment`. Functions run under AWS's own runtime
    interface client in processes of their own, seeing their zip, their layers, and what Lambda preinstalls.

    Parameters
    ----------
    python
        Interpreter that runs functions; ``awslambdaric`` has to be installed for it. By default this one.
    concurrency
        Concurrent executions that the account has; more are answered 429.
    memory
        What a function's memory size does: ``"limit"`` its data segment, so that it sees MemoryError;
        ``"kill"`` it above that, as Lambda does; ``"off"``. Linux only, elsewhere off.
    cold_starts
        Environments that start at a time; more would starve one another on few cores.
    init_timeout
        Seconds that loading the handler may take.
    event_delay
        Seconds before an event is tried again, doubled each time (Lambda: a minute).
    limits
        Payload limits.
    faults
        Per function, number of the attempt to `Step`: see `Admin.set_faults`.
    inject
        Stragglers and faults for tasks of this package, drawn from slot, round and attempt.
    port
        Where to listen; 0 for a free port.

    Raises
    ------
    InputError
        If a parameter is out of its range.
    ConfigError
        On entry, if the rig does not start; it needs the packages of ``pip install serverless-gc[rig]``.

    Examples
    --------
    >>> import boto3
    >>> with Rig() as rig, rig.activated():
    ...     boto3.client("s3").create_bucket(Bucket="mine")["ResponseMetadata"]["HTTPStatusCode"]
    200
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        concurrency: int = 1000,
        memory: Memory = DEFAULT_MEMORY,
        cold_starts: int = 4,
        init_timeout: float = 10.0,
        event_delay: float = 0.1,
        limits: Limits = DEFAULT_LIMITS,
        faults: Mapping[str, Mapping[int, Step]] | None = None,
        inject: Sequence[Injection] = (),
        port: int = 0,
    ) -> None:
        self._settings = Settings(
            python=python,
            concurrency=concurrency,
            memory=memory,
            cold_starts=cold_starts,
            init_timeout=init_timeout,
            event_delay=event_delay,
            limits=limits,
            faults=faults or {},
            inject=tuple(inject),
            port=port,
        )
        self._process: subprocess.Popen[str] | None = None
        self._url = self._folder = ""

    @property
    def url(self) -> str:
        """Where everything is, ``http://127.0.0.1:port``.

        Raises
        ------
        InputError
            If the rig is not running.
        """
        if self._process is None:
            raise InputError("the rig is not running: use it as a context manager")
        return self._url

    @property
    def admin(self) -> Admin:
        """To look into the rig and to make things go wrong."""
        return Admin(self.url)

    def environment(self) -> dict[str, str]:
        """Return the standard variables by which AWS clients find the rig, and nothing of the user's own."""
        return {
            **MOTO_ENVIRONMENT,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SERVERLESS_GC_CONFIG": str(Path(self._folder) / "config.toml"),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @contextlib.contextmanager
    def activated(self, **further: str) -> Iterator[None]:
        """Put `environment` and further variables in place of this process's AWS variables while the block runs."""
        variables = {**self.environment(), **further}
        with mock.patch.dict(os.environ):
            for name in [name for name in os.environ if name.startswith(("AWS_", "SERVERLESS_GC_"))]:
                del os.environ[name]
            os.environ.update(variables)
            yield

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="serverless-gc-rig-")
        with tempfile.TemporaryFile("w+") as errors:  # a pipe would fill up
            process = subprocess.Popen(  # noqa: S603 - our own module, our own interpreter
                [sys.executable, "-m", "serverless_gc.testing.rig.server", self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONWARNINGS": "ignore"},
                text=True,
                start_new_session=True,  # Ctrl-C reaches the rig through its owner alone
            )
            self._process = process
            assert process.stdin is not None
            assert process.stdout is not None
            # The settings are one line; the stream stays open, and its end, whatever the reason, ends the rig.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(self._settings.to_line())
                process.stdin.flush()
            port = process.stdout.readline().strip()
            if not port:
                self.close()
                errors.seek(0)
                raise ConfigError(f"the rig did not start: {errors.read().strip()}")
        self._url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the rig: its port is free afterwards, its functions have ended and its files are gone."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)
