"""Two ways to put one Invoke request on the wire. Neither ever repeats a request by itself.

`HttpTransport` is the hot path: aiohttp, aiobotocore's own HTTP client, and a small signer. `SdkTransport` sends the
same request through the whole of aiobotocore, at about twice the driver's processor time per invocation; it is the
reference that the hot path is compared with.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

__all__ = ["Answer", "HttpTransport", "SdkTransport", "Transport"]

_KEEPALIVE_IDLE, _KEEPALIVE_INTERVAL = 60, 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered.

    ``error`` is the service's error code, empty if it took the request; ``message`` and ``detail`` (the ``Reason`` of
    a 429) belong to it. ``function_error`` is the header of a function that ran and failed.
    """

    status: int
    body: bytes
    request_id: str = ""
    function_error: str = ""
    error: str = ""
    message: str = ""
    detail: str = ""


class Transport(Protocol):
    """Sends one invocation."""

    async def send(self, body: bytes) -> Answer:
        """Send one request and read the whole answer; whatever the HTTP client raises is raised."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class SdkTransport:
    """Requests through an aiobotocore client.

    Parameters
    ----------
    client
        An open Lambda client with retries off.
    function, qualifier
        What to invoke.
    """

    def __init__(self, client: Any, function: str, qualifier: str | None) -> None:
        self._client = client
        self._arguments = {"FunctionName": function} | ({"Qualifier": qualifier} if qualifier else {})

    async def send(self, body: bytes) -> Answer:
        """Send one request."""
        from botocore.exceptions import ClientError

        try:
            response = await self._client.invoke(**self._arguments, Payload=body)
        except ClientError as error:
            return _refusal(error.response)
        async with response["Payload"] as stream:
            reply: bytes = await stream.read()
        return Answer(
            status=response["StatusCode"],
            body=reply,
            request_id=response["ResponseMetadata"].get("RequestId", ""),
            function_error=response.get("FunctionError", ""),
        )

    async def close(self) -> None:
        """Nothing: whoever made the client closes it."""


def _refusal(response: Any) -> Answer:
    about, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    return Answer(
        status=metadata.get("HTTPStatusCode", 0),
        body=b"",
        request_id=metadata.get("RequestId", ""),
        error=about.get("Code") or "Unknown",
        message=about.get("Message") or response.get("message") or "",
        detail=response.get("Reason", ""),
    )


class HttpTransport:
    """Requests by aiohttp, signed here.

    Parameters
    ----------
    endpoint, region, credentials
        Where and as whom, resolved by aiobotocore.
    function, qualifier
        What to invoke.
    connections
        Size of the connection pool.
    connect_timeout, read_timeout
        In seconds.
    verify
        Path of the certificate bundle to trust.
    """

    def __init__(
        self,
        *,
        endpoint: str,
        region: str,
        credentials: Any,
        function: str,
        qualifier: str | None,
        connections: int,
        connect_timeout: float,
        read_timeout: float,
        verify: str,
    ) -> None:
        from yarl import URL

        from serverless_gc.worker.sigv4 import Signer

        parts = urlsplit(endpoint)
        self._credentials = credentials
        self._signer = Signer("lambda", region)
        self._host = parts.netloc
        self._path = f"{parts.path.rstrip('/')}/2015-03-31/functions/{quote(function, safe='')}/invocations"
        self._query = f"Qualifier={quote(qualifier, safe='')}" if qualifier else ""
        query = f"?{self._query}" if qualifier else ""
        self._url = URL(f"{parts.scheme}://{parts.netloc}{self._path}{query}", encoded=True)
        self._secure = parts.scheme == "https"
        self._connections, self._verify = connections, verify
        self._timeouts = {"sock_connect": connect_timeout, "sock_read": read_timeout}
        self._stack = AsyncExitStack()
        self._http: Any = None

    async def open(self) -> None:
        """Make the connection pool; connections are made as they are needed."""
        import aiohttp
        from botocore.utils import get_environ_proxies

        # Reading certificates takes tens of milliseconds: not on the loop.
        context = await asyncio.to_thread(ssl.create_default_context, cafile=self._verify) if self._secure else True
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, ssl=context, socket_factory=keepalive_socket),
                timeout=aiohttp.ClientTimeout(total=None, **self._timeouts),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "serverless-gc", "Content-Type": "application/json"},
                auto_decompress=False,
                read_bufsize=2**20,  # the default pauses a connection after every 64 KB
                # `trust_env` would look the proxy up for every request, on a thread each time.
                proxy=get_environ_proxies(str(self._url)).get(self._url.scheme),
            )
        )

    async def send(self, body: bytes) -> Answer:
        """Send one request."""
        headers = self._sign(await self._frozen(), body)
        # A followed redirect would be a second request.
        async with self._http.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            reply = await response.read()
            head = response.headers
        request_id = head.get("x-amzn-RequestId", "")
        if response.status >= 300 or "x-amzn-ErrorType" in head:
            code, message, detail = _described(head.get("x-amzn-ErrorType", ""), reply)
            return Answer(response.status, b"", request_id, error=code, message=message, detail=detail)
        return Answer(response.status, reply, request_id, head.get("X-Amz-Function-Error", ""))

    async def _frozen(self) -> Any:
        if self._credentials is None:
            from botocore.exceptions import NoCredentialsError

            raise NoCredentialsError
        return await self._credentials.get_frozen_credentials()  # refreshes them when they are about to expire

    def _sign(self, frozen: Any, body: bytes) -> dict[str, str]:
        from serverless_gc.worker.sigv4 import Credentials

        return self._signer.sign(
            "POST",
            self._host,
            self._path,
            self._query,
            credentials=Credentials(frozen.access_key, frozen.secret_key, frozen.token or ""),
            payload_hash=sha256(body).hexdigest(),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._stack.aclose()


def _described(header: str, body: bytes) -> tuple[str, str, str]:
    """Code, message and reason of an error answer."""
    try:
        about = json.loads(body)
    except ValueError:
        about = {}
    if not isinstance(about, dict):
        about = {}
    code = (header or str(about.get("__type", ""))).partition(":")[0].rpartition("#")[2]
    message = about.get("message") or about.get("Message") or ""
    return code or "Unknown", str(message), str(about.get("Reason", ""))


def keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """Make a socket whose idle connection is probed every minute: paths drop idle ones after about five."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _KEEPALIVE_IDLE), ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL)):
        if hasattr(socket, option):  # Linux and Windows have both, macOS names the first TCP_KEEPALIVE
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
