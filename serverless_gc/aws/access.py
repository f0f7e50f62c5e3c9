"""Where a service is: region, endpoint and certificates, as the AWS tools find them."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from serverless_gc.aws.identity import Identity
from serverless_gc.errors import ConfigError

__all__ = ["Access", "find_region", "keepalive_socket", "make_session", "open_access", "transport_errors"]

_KEEPALIVE_IDLE, _KEEPALIVE_INTERVAL = 60, 30


@dataclass(frozen=True, slots=True)
class Access:
    """One service, found.

    Attributes
    ----------
    client
        An open aiobotocore client, for control calls and as the reference transport. It repeats nothing by itself.
    identity
        As whom.
    endpoint, region
        Where.
    tls
        The certificates to trust; None if the endpoint does not speak TLS.
    """

    client: Any
    identity: Identity
    endpoint: str
    region: str
    tls: ssl.SSLContext | None


def make_session(profile: str | None = None) -> Any:
    """Make an aiobotocore session; the first of a process takes a quarter of a second to import."""
    from aiobotocore.session import AioSession

    return AioSession(profile=profile)


def find_region(session: Any) -> str:
    """Return the region of the profile or the environment, or an empty string."""
    # botocore itself reads AWS_DEFAULT_REGION and the profile only; every other tool reads AWS_REGION.
    return session.get_config_variable("region") or os.environ.get("AWS_REGION", "")


async def open_access(
    stack: AsyncExitStack,
    service: str,
    *,
    session: Any = None,
    profile: str | None = None,
    region: str | None = None,
    endpoint: str | None = None,
    concurrency: int,
    connect_timeout: float,
    read_timeout: float,
    **options: Any,
) -> Access:
    """Find a service and enter a client of it into the stack. Nothing is asked of the service itself.

    Parameters
    ----------
    stack
        Closing it closes the client.
    service
        ``"lambda"`` or ``"s3"``.
    session
        An ``AioSession`` with credentials of your own; a new one of ``profile`` otherwise.
    region, endpoint
        By default what botocore reads from profile and environment, and ``AWS_REGION``.
    concurrency, connect_timeout, read_timeout
        Of the client's connections.
    options
        Further fields of ``AioConfig``.

    Raises
    ------
    ConfigError
        If something is missing or wrong.
    """
    await asyncio.to_thread(_import_sdk)  # takes a quarter of a second: not on the loop
    from botocore.exceptions import BotoCoreError

    try:
        session = session or make_session(profile)
        config = _config(concurrency, connect_timeout, read_timeout, options)
        region = region or find_region(session) or None
        client = await stack.enter_async_context(
            session.create_client(service, region_name=region, endpoint_url=endpoint, config=config)
        )
        return Access(
            client=client,
            identity=Identity(session, await session.get_credentials()),
            endpoint=client.meta.endpoint_url,
            region=client.meta.region_name,
            tls=await _trusted(session, client.meta.endpoint_url),
        )
    except (BotoCoreError, ValueError, OSError) as error:
        raise ConfigError(
            f"cannot make a client of {service}: {str(error).rstrip('.')}. Check AWS_REGION, AWS_PROFILE, "
            f"AWS_ENDPOINT_URL_{service.upper()} and AWS_CA_BUNDLE"
        ) from error


def _config(concurrency: int, connect_timeout: float, read_timeout: float, options: dict[str, Any]) -> Any:
    from aiobotocore.config import AioConfig

    return AioConfig(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=concurrency,
        connector_args={"socket_factory": keepalive_socket},  # `tcp_keepalive` is accepted and then ignored
        user_agent="serverless-gc",  # put together anew for every request otherwise: a quarter of the time
        warm_up_loader_caches=True,
        **options,
    )


async def _trusted(session: Any, endpoint: str) -> ssl.SSLContext | None:
    from botocore.httpsession import get_cert_path

    if not endpoint.startswith("https:"):
        return None
    bundle = str(session.get_config_variable("ca_bundle") or get_cert_path(True))
    return await asyncio.to_thread(ssl.create_default_context, cafile=bundle)  # takes tens of milliseconds


def transport_errors() -> tuple[type[Exception], ...]:
    """Return what botocore and aiohttp raise when there is no answer."""
    from aiohttp import ClientError
    from botocore.exceptions import BotoCoreError

    return (BotoCoreError, ClientError, OSError)


def _import_sdk() -> None:
    for name in ("aiobotocore.session", "aiobotocore.config", "botocore.exceptions", "aiohttp"):
        importlib.import_module(name)


def keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """Make a socket whose idle connection is probed every minute: paths drop idle ones after about five."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _KEEPALIVE_IDLE), ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL)):
        if hasattr(socket, option):  # Linux and Windows have both, macOS names the first TCP_KEEPALIVE
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
