"""All that the rig takes from moto's inside: functions with their code, log streams, the server itself.

Nothing of moto's Lambda is replaced: Invoke never reaches it. These names are private to moto, which is therefore
pinned; `prepare` says in one line which of them has moved.
"""

from __future__ import annotations

import base64
import importlib.metadata
import io
import logging
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from serverless_gc.errors import ConfigError
from serverless_gc.testing.rig import cloudformation

__all__ = ["MOTO", "Account", "Function", "UnknownFunction", "Zip", "prepare", "serve"]

MOTO = "5.2.1"
"""The version that the rig is written for."""


class UnknownFunction(LookupError):
    """There is no such function or version; the message is Lambda's."""


@dataclass(frozen=True, slots=True)
class Zip:
    """A deployed zip, and the hash by which it is known."""

    sha: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a function as it is deployed at this moment.

    Attributes
    ----------
    variables
        Its environment variables.
    code, layers
        The layers are in the order in which they are unpacked.
    reserved
        Reserved concurrency, -1 for none.
    retries, max_age
        Of asynchronous invocations: attempts after the first, seconds after which an event is dropped.
    """

    name: str
    arn: str
    region: str
    version: str
    created: str
    handler: str
    runtime: str
    package: str
    memory_mb: int
    timeout: float
    variables: tuple[tuple[str, str], ...]
    code: Zip
    layers: tuple[Zip, ...]
    reserved: int
    retries: int
    max_age: float

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything that a running environment depends on: when it changes, environments are new."""
        layers = tuple(layer.sha for layer in self.layers)
        return (
            self.arn,
            self.version,
            self.created,
            self.code.sha,
            self.handler,
            self.runtime,
            self.memory_mb,
            self.timeout,
            self.variables,
            layers,
        )


class Account:
    """The emulated account as the data plane sees it."""

    def function(self, name: str, qualifier: str, region: str) -> Function:
        """Find a function by name or ARN.

        Raises
        ------
        UnknownFunction
            If there is none.
        """
        from moto.awslambda.exceptions import UnknownFunctionException

        backend = _backend(region)
        try:
            function = backend.get_function(name.rpartition(":function:")[2], qualifier or None)
        except UnknownFunctionException as error:
            raise UnknownFunction(str(error.message)) from error
        except ValueError as error:
            raise UnknownFunction(f"Function not found: {name}") from error
        return _facts(function, backend)

    def reserved(self, region: str) -> int:
        """Sum the concurrency that the region's functions have reserved."""
        return sum(int(function.reserved_concurrency or 0) for function in _backend(region).list_functions())

    def write_log(self, region: str, group: str, stream: str, events: list[dict[str, Any]]) -> None:
        """Append events to a log stream, which is made if need be."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.logs.models import logs_backends

        backend = logs_backends[DEFAULT_ACCOUNT_ID][region]
        backend.ensure_log_group(group)
        backend.ensure_log_stream(group, stream)
        backend.put_log_events(group, stream, events)


def _backend(region: str) -> Any:
    from moto.awslambda.models import lambda_backends
    from moto.core.models import DEFAULT_ACCOUNT_ID

    try:
        return lambda_backends[DEFAULT_ACCOUNT_ID][region]
    except KeyError as error:
        raise UnknownFunction(f"Function not found: there is no region {region!r}") from error


def _facts(function: Any, backend: Any) -> Function:
    config = function.event_invoke_config[-1].config if function.event_invoke_config else {}
    layers = [backend.layers_versions_by_arn(layer["Arn"]) for layer in function.layers]
    return Function(
        name=function.function_name,
        arn=function.function_arn,
        region=function.region,
        version=str(function.version),
        created=function.last_modified,
        handler=function.handler or "",
        runtime=function.run_time or "",
        package=function.package_type,
        memory_mb=int(function.memory_size),
        timeout=float(function.timeout),
        variables=tuple(sorted((k, str(v)) for k, v in (function.environment_vars or {}).items())),
        code=Zip(function.code_sha_256, function.code_bytes if function.package_type == "Zip" else b""),
        layers=tuple(Zip(layer.code_sha_256, layer.code_bytes) for layer in layers),
        reserved=-1 if function.reserved_concurrency is None else int(function.reserved_concurrency),
        retries=int(config.get("MaximumRetryAttempts", 2)),
        max_age=float(config.get("MaximumEventAgeInSeconds", 21600)),
    )


def prepare() -> None:
    """Make sure that moto is what this package was written for, and complete its CloudFormation.

    Raises
    ------
    ConfigError
        In one line: the version, and the name that has moved.
    """
    found = "none"
    try:
        found = importlib.metadata.version("moto")
        cloudformation.complete()
        _read_a_function()
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the rig reads moto {MOTO} from inside and found moto {found}: {type(error).__name__}: {error}; "
            f"run `pip install 'moto[server]=={MOTO}'` (serverless-gc[rig] pins it)"
        ) from error


def _read_a_function() -> None:
    from moto.awslambda.exceptions import UnknownFunctionException
    from moto.awslambda.models import EventInvokeConfig, LambdaFunction, LayerVersion
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.logs.models import LogsBackend
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    del DomainDispatcherApplication, create_backend_app
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("handler.py", "")
    code = {"ZipFile": base64.b64encode(content.getvalue()).decode()}
    place = (DEFAULT_ACCOUNT_ID, "us-east-1")
    make_function: Any = LambdaFunction  # both classes leave methods abstract that moto never calls
    make_layer: Any = LayerVersion
    probe = make_function(place[0], {"Code": code, "FunctionName": "probe", "Role": "", "Handler": "h.h"}, place[1])
    probe.event_invoke_config.append(EventInvokeConfig(probe.function_arn, "", {"MaximumRetryAttempts": 0}))
    layer = make_layer({"LayerName": "probe", "Content": code}, *place)
    for thing, name in (
        (layer, "code_sha_256"),
        (layer, "code_bytes"),
        (UnknownFunctionException("arn"), "message"),
        *((LogsBackend, name) for name in ("ensure_log_group", "ensure_log_stream", "put_log_events")),
        *((type(_backend(place[1])), name) for name in ("get_function", "list_functions", "layers_versions_by_arn")),
    ):
        getattr(thing, name)
    _facts(probe, _backend(place[1]))


def serve() -> tuple[int, Callable[[], None]]:
    """Serve moto on 127.0.0.1 in a thread; return its port, and what ends it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return server.server_port, end
