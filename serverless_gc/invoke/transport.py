"""Two ways to put one Invoke request on the wire. Neither ever repeats a request by itself.

`HttpTransport` is the hot path: aiohttp, aiobotocore's own HTTP client, and a small signer. `SdkTransport` sends the
same request through the whole of aiobotocore, at about twice the driver's processor time per invocation; it is the
reference that the hot path is compared with.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from serverless_gc.aws.http import SignedHttp  # loads aiohttp: imported when an invoker is opened

__all__ = ["Answer", "HttpTransport", "SdkTransport", "Transport"]

_SMALL_BODY = 2**18
"""Bytes below which a body is written at once, with the headers; a larger one is fed to the connection."""


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

    async def connect(self, n: int) -> int:
        """Open connections for that many requests at once, if the transport can; return how many are open."""
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

        # aiohttp warns of large bytes, not of large files
        payload = body if len(body) < _SMALL_BODY else io.BytesIO(body)
        try:
            response = await self._client.invoke(**self._arguments, Payload=payload)
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

    async def connect(self, n: int) -> int:  # noqa: ARG002 - the seam's
        """Nothing: aiobotocore opens connections as it needs them."""
        return 0

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
    http
        Signed requests to the Lambda endpoint; opened and closed here.
    function, qualifier
        What to invoke.
    """

    def __init__(self, http: SignedHttp, function: str, qualifier: str | None) -> None:
        self._http = http
        self.path = f"{http.base}/2015-03-31/functions/{quote(function, safe='')}/invocations"
        self.query = f"Qualifier={quote(qualifier, safe='')}" if qualifier else ""

    async def open(self) -> None:
        """Make the connection pool; connections are made as they are needed."""
        await self._http.open(headers={"Content-Type": "application/json"})

    async def send(self, body: bytes) -> Answer:
        """Send one request."""
        response = await self._http.request(
            "POST",
            self.path,
            self.query,
            body=body if len(body) < _SMALL_BODY else (body,),
            payload_hash=sha256(body).hexdigest(),
        )
        async with response:
            reply = await response.read()
            head = response.headers
        request_id = head.get("x-amzn-RequestId", "")
        if response.status >= 300 or "x-amzn-ErrorType" in head:
            code, message, detail = _described(head.get("x-amzn-ErrorType", ""), reply)
            return Answer(response.status, b"", request_id, error=code, message=message, detail=detail)
        return Answer(response.status, reply, request_id, head.get("X-Amz-Function-Error", ""))

    async def connect(self, n: int) -> int:
        """Open connections ahead; see `SignedHttp.connect`."""
        return await self._http.connect(n)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


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
