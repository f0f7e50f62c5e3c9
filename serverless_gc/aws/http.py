"""Signed requests by aiohttp, which is aiobotocore's own HTTP client, without the rest of aiobotocore.

Imported where it is used: it loads aiohttp. Nothing is repeated here, but that aiohttp sends a GET or PUT once more
when the server had closed the connection while it was idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from botocore.utils import get_environ_proxies
from yarl import URL

from serverless_gc.aws.access import Access, keepalive_socket
from serverless_gc.types import Buffer
from serverless_gc.wire.sigv4 import Signer

__all__ = ["Parts", "SignedHttp", "Watch"]

Watch = Callable[[float], None]
"""Called for each request with the seconds between its signature and its first byte on the wire."""

_WRITE_BYTES = 2**18
_IDLE_SECONDS = 12.0  # AWS closes connections that are idle for 20 s; aiobotocore's own figure


class Parts(Payload):
    """A body of several buffers, sent as they lie: neither joined nor copied."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        super().__init__(parts)
        self._views = [memoryview(part).cast("B") for part in parts]
        self._size = sum(len(view) for view in self._views)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return b"".join(self._views).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write everything, a piece at a time, so that a slow reader holds the sender back."""
        for view in self._views:
            for start in range(0, len(view), _WRITE_BYTES):
                await writer.write(view[start : start + _WRITE_BYTES])


class SignedHttp:
    """A pool of connections to one service, and a signature on every request.

    Parameters
    ----------
    service
        Name of the service in signatures.
    access
        Where, and as whom.
    connections
        Size of the pool. Callers keep the number of requests below it: a request that waits for a connection has
        been signed already.
    connect_timeout, read_timeout
        Seconds for a connection, and until the next bytes of an answer.
    watch
        See `Watch`.
    clock
        Its clock.
    """

    def __init__(
        self,
        service: str,
        access: Access,
        *,
        connections: int,
        connect_timeout: float,
        read_timeout: float,
        watch: Watch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(access.endpoint)
        default_port = ":80" if parts.scheme == "http" else ":443"
        self.scheme = parts.scheme
        self.host = parts.netloc.removesuffix(default_port)  # as in the Host header
        self.base = parts.path.rstrip("/")
        self._identity = access.identity
        self._signer = Signer(service, access.region)
        self._tls = access.tls
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=read_timeout)
        self._watch, self._clock = watch, clock
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None

    async def open(self, *, headers: Mapping[str, str] | None = None) -> None:
        """Make the pool; connections are made as they are needed, or by `connect`. ``headers`` go unsigned."""
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    ssl=self._tls or True,
                    socket_factory=keepalive_socket,
                    keepalive_timeout=_IDLE_SECONDS,
                ),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "serverless-gc", **(headers or {})},
                skip_auto_headers=("Accept", "Accept-Encoding"),
                auto_decompress=False,
                read_bufsize=2**20,  # the default pauses a connection after every 64 KB
                # `trust_env` would look the proxy up for every request, on a thread each time.
                proxy=self._proxy,
                trace_configs=[self._trace()] if self._watch else None,
            )
        )

    @property
    def _origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def _proxy(self) -> str | None:
        found: str | None = get_environ_proxies(self._origin).get(self.scheme)
        return found

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("the HTTP client is not open: call open() first")
        return self._http

    async def request(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        host: str = "",
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] | bytes | None = None,
        payload_hash: str,
    ) -> aiohttp.ClientResponse:
        """Sign and send one request; return its answer once the headers are there. The caller releases it.

        Parameters
        ----------
        method
            ``"GET"``, ``"PUT"``, ``"POST"``.
        path, query
            Percent-encoded.
        host
            Another one than the endpoint's, in the same pool.
        headers
            Headers to sign.
        body
            Small bytes, or any number of buffers.
        payload_hash
            As for `Signer.sign`.

        Raises
        ------
        botocore.exceptions.BotoCoreError, aiohttp.ClientError, OSError
            Whatever keeps the request from an answer.
        """
        credentials = await self._identity.frozen()
        host = host or self.host
        signed = self._signer.sign(
            method, host, path, query, credentials=credentials, headers=headers, payload_hash=payload_hash
        )
        url = URL(f"{self.scheme}://{host}{path}" + (f"?{query}" if query else ""), encoded=True)
        data = body if body is None or isinstance(body, bytes) else Parts(body)
        # A followed redirect would be a second request.
        return await self._session.request(
            method,
            url,
            data=data,
            headers=signed,
            allow_redirects=False,
            trace_request_ctx=self._clock() if self._watch else None,
        )

    async def connect(self, n: int, *, host: str = "") -> int:
        """Open connections until ``n`` are idle in the pool, no request being sent; return how many are.

        What goes wrong is not raised: the request that needs a connection meets it, and says so.
        """
        session = self._session
        connector = session.connector
        assert connector is not None  # noqa: S101 - a session that is open has one
        url = URL(f"{self.scheme}://{host or self.host}/")
        proxy = URL(self._proxy) if self._proxy else None
        loop = asyncio.get_running_loop()

        opened: list[aiohttp.connector.Connection] = []

        async def one() -> None:
            request = aiohttp.ClientRequest("GET", url, loop=loop, session=session, proxy=proxy)
            async with asyncio.timeout(self._connect_timeout):
                opened.append(await connector.connect(request, [], self._timeout))

        try:
            await asyncio.gather(*(one() for _ in range(min(n, self._connections))), return_exceptions=True)
        finally:
            for connection in opened:  # only now: one that is given back early would be found by the next
                connection.release()
        return len(opened)

    def _trace(self) -> aiohttp.TraceConfig:
        config = aiohttp.TraceConfig()

        async def sent(_session: Any, context: Any, _params: Any) -> None:
            if self._watch is not None:
                self._watch(self._clock() - context.trace_request_ctx)

        config.on_request_headers_sent.append(sent)
        return config

    async def close(self) -> None:
        """Close all connections."""
        await self._stack.aclose()
