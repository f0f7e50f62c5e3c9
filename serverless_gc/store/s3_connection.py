"""An S3 store's connections on one event loop, opened by its first request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from serverless_gc.aws.access import Access, open_access, transport_errors
from serverless_gc.aws.identity import EXPIRED_CODES
from serverless_gc.store.s3_errors import Refused, from_refusal, from_transport_error, refusals
from serverless_gc.store.s3_transport import HttpTransport, SdkTransport, Transport, place_of
from serverless_gc.wire.sigv4 import Signer, encode_path

__all__ = ["Connection", "Opened", "Options"]

_T = TypeVar("_T")

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to connect; fields as of `S3Store`."""

    bucket: str
    region: str | None
    endpoint: str | None
    profile: str | None
    session: Any
    concurrency: int
    transport: Literal["http", "sdk"]

    @property
    def own_endpoint(self) -> str:
        """An endpoint that is not AWS's, which has no host name for each bucket."""
        return self.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


@dataclass(frozen=True, slots=True)
class Opened:
    """What requests are made with: aiobotocore for control, a transport for data."""

    access: Access
    transport: Transport
    host: str
    base: str
    signer: Signer

    @property
    def client(self) -> Any:
        """The aiobotocore client."""
        return self.access.client


class Connection:
    """Connections of one store on one loop in one process."""

    def __init__(self, options: Options) -> None:
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._options = options
        # A request waits here and not in the client's pool: clients sign before they queue, and a signature that
        # waits grows old.
        self.slots = asyncio.Semaphore(options.concurrency)
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._opened: Opened | None = None

    @property
    def usable(self) -> bool:
        """Whether its loop is alive and of this process: a forked child must not talk on its parent's sockets."""
        return not self.loop.is_closed() and self._pid == os.getpid()

    async def opened(self) -> Opened:
        """Return what requests are made with, opening it first if need be."""
        async with self._lock:
            if self._opened is None:
                async with AsyncExitStack() as stack:
                    self._opened = await self._open(stack)
                    self._stack = stack.pop_all()
            return self._opened

    async def _open(self, stack: AsyncExitStack) -> Opened:
        options = self._options
        access = await open_access(
            stack,
            "s3",
            session=options.session,
            profile=options.profile,
            region=options.region,
            endpoint=options.endpoint,
            concurrency=options.concurrency,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            # Every object is a frame with its own checksum, so neither hashing nor trailing checksums add anything.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if options.own_endpoint else "auto", "payload_signing_enabled": False},
        )
        host, base = place_of(options.bucket, access.endpoint, own=bool(options.own_endpoint))
        transport = await self._transport(stack, access, host, base)
        return Opened(access, transport, host, base, Signer("s3", access.region))

    async def _transport(self, stack: AsyncExitStack, access: Access, host: str, base: str) -> Transport:
        options = self._options
        if options.transport == "sdk":
            return SdkTransport(access.client, options.bucket)
        from serverless_gc.aws.http import SignedHttp

        http = SignedHttp(
            "s3",
            access,
            connections=options.concurrency,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
        )
        await http.open()
        transport = HttpTransport(http, host, base)
        stack.push_async_callback(transport.close)
        return transport

    async def attempt(self, operation: str, key: str, call: Callable[[Opened], Awaitable[_T]]) -> _T:
        """Make one request in its turn; once more if it is refused for its credentials and there are newer ones.

        Raises
        ------
        StoreError, ConfigError
            What the service or the network said, in this package's words.
        """
        where = {"operation": operation, "bucket": self._options.bucket, "key": key}
        opened = await self.opened()
        try:
            async with self.slots:
                used = await opened.access.identity.frozen()
                try:
                    return await _told(call, opened)
                except Refused as refused:
                    if refused.code not in EXPIRED_CODES or not await opened.access.identity.renew(used):
                        raise
                return await _told(call, opened)
        except Refused as refused:
            raise from_refusal(refused, **where) from refused
        except transport_errors() as error:
            raise from_transport_error(error, **where) from error

    async def presign(self, requests: Sequence[tuple[str, str]], expires: int) -> list[str]:
        """Return a URL for each method and full name of an object."""
        opened = await self.opened()
        scheme, _, rest = opened.access.endpoint.partition("://")
        host = opened.host or rest.partition("/")[0].removesuffix(":443" if scheme == "https" else ":80")
        try:
            credentials = await opened.access.identity.frozen()
        except transport_errors() as error:
            raise from_transport_error(error, operation="Presign", bucket=self._options.bucket, key="") from error
        urls = []
        for method, name in requests:
            path = encode_path(opened.base + name)
            headers = {"If-None-Match": "*"} if method == "PUT" else {}
            query = opened.signer.presign(method, host, path, credentials=credentials, expires=expires, headers=headers)
            urls.append(f"{scheme}://{host}{path}?{query}")
        return urls

    async def close(self) -> None:
        """Close everything."""
        self._opened = None
        await self._stack.aclose()


async def _told(call: Callable[[Opened], Awaitable[_T]], opened: Opened) -> _T:
    with refusals():
        return await call(opened)
