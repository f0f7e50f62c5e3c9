"""The requests that carry blocks and results, in two ways that put the same on the wire.

`HttpTransport` is the hot path: aiohttp with this package's signer. `SdkTransport` is aiobotocore itself, the reference
that the hot path is compared with. What does not carry data (list, delete, describe, begin and end an upload) always
goes through aiobotocore.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from serverless_gc.store.keys import joined
from serverless_gc.store.s3_errors import Refused, refusals
from serverless_gc.types import Buffer
from serverless_gc.wire.sigv4 import UNSIGNED_PAYLOAD, encode_path, encode_query

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from serverless_gc.aws.http import SignedHttp  # loads aiohttp: imported when a store makes its first request

__all__ = ["HttpTransport", "Piece", "SdkTransport", "Transport", "place_of"]

_SMALL_READ = 2**17
"""Bytes up to which a body is taken as aiohttp collects it; a larger one is received where it shall lie."""


_SDK_READ = 2**20


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an object, or all of it; ``size`` and ``etag`` are the whole object's."""

    data: Buffer
    size: int
    etag: str


class Transport(Protocol):
    """Reads and writes objects by their full names; one call is one request.

    Raises `Refused` for an answer that is an error, and whatever the HTTP client raises if there is no answer.
    """

    async def read(self, name: str, *, most: int, first: int) -> Piece:
        """Read an object; of one above ``most`` bytes only the ``first``."""
        ...

    async def read_range(self, name: str, start: int, into: memoryview) -> str:
        """Fill a buffer with the bytes from ``start`` on; return the tag of the object."""
        ...

    async def write(self, name: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Write one object."""
        ...

    async def write_part(self, name: str, upload: str, number: int, parts: Sequence[Buffer]) -> str:
        """Write one part of an upload; return its tag."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def place_of(bucket: str, endpoint: str, *, own: bool) -> tuple[str, str]:
    """Return host (empty for the endpoint's) and path under which the objects of a bucket are.

    Examples
    --------
    >>> place_of("b", "https://s3.eu-west-1.amazonaws.com", own=False)
    ('b.s3.eu-west-1.amazonaws.com', '/')
    >>> place_of("my.b", "https://s3.eu-west-1.amazonaws.com", own=False)
    ('', '/my.b/')
    >>> place_of("b", "http://127.0.0.1:9000/s3", own=True)
    ('', '/s3/b/')
    """
    scheme, _, rest = endpoint.partition("://")
    netloc, slash, path = rest.partition("/")
    base = (slash + path).rstrip("/")
    if own or "." in bucket:  # a certificate for *.s3... does not cover a bucket name with dots
        return "", f"{base}/{bucket}/"
    return f"{bucket}.{netloc.removesuffix(':443' if scheme == 'https' else ':80')}", f"{base}/"


class HttpTransport:
    """Requests by aiohttp, signed here.

    Parameters
    ----------
    http
        Signed requests to the endpoint; opened and closed here.
    host, base
        Where the bucket is, see `place_of`.
    """

    def __init__(self, http: SignedHttp, host: str, base: str) -> None:
        self._http, self._host, self._base = http, host, base

    async def read(self, name: str, *, most: int, first: int) -> Piece:
        """Read an object, or the beginning of a large one."""
        async with await self._send("GET", name) as response:
            size = response.content_length
            if size is not None and size > most:
                data: Buffer = await _received(_chunks(response), _room(first))
                response.close()  # the rest is on its way; the connection goes with it
            elif size is None or size <= _SMALL_READ:
                data = await response.read()
            else:
                data = await _received(_chunks(response), _room(size))
            return Piece(data, len(data) if size is None else size, response.headers.get("ETag", ""))

    async def read_range(self, name: str, start: int, into: memoryview) -> str:
        """Read a part of an object."""
        extent = f"bytes={start}-{start + len(into) - 1}"
        async with await self._send("GET", name, headers={"Range": extent}) as response:
            await _received(_chunks(response), into)
            return response.headers.get("ETag", "")

    async def write(self, name: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Write one object."""
        headers = {"If-None-Match": "*"} if if_absent else {}
        (await self._send("PUT", name, headers=headers, body=parts)).release()

    async def write_part(self, name: str, upload: str, number: int, parts: Sequence[Buffer]) -> str:
        """Write one part of an upload."""
        query = encode_query([("partNumber", str(number)), ("uploadId", upload)])
        response = await self._send("PUT", name, query, body=parts)
        response.release()
        return response.headers.get("ETag", "")

    async def _send(
        self,
        method: str,
        name: str,
        query: str = "",
        *,
        headers: dict[str, str] | None = None,
        body: Sequence[Buffer] | None = None,
    ) -> ClientResponse:
        response = await self._http.request(
            method,
            encode_path(self._base + name),
            query,
            host=self._host,
            headers=headers,
            body=body,
            payload_hash=UNSIGNED_PAYLOAD,  # every object is a frame with its own checksum
        )
        if response.status < 300:
            return response
        async with response:
            raise _refused(response, (await response.read()).decode("utf-8", "replace"))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


def _chunks(response: ClientResponse) -> AsyncIterator[bytes]:
    """Iterate over a body as it arrives; aiohttp's other ways to read join what has arrived first, a copy more."""
    return (chunk async for chunk, _ in response.content.iter_chunks())


def _room(size: int) -> memoryview:
    view: memoryview = np.empty(size, np.uint8).data
    return view


async def _received(chunks: AsyncIterator[bytes], view: memoryview) -> memoryview:
    """Fill a buffer from the beginning of a body."""
    done = 0
    async for chunk in chunks:
        taken = chunk[: len(view) - done]
        view[done : done + len(taken)] = taken
        done += len(taken)
        if done == len(view):
            return view
    raise ConnectionError(f"the body ended after {done} of {len(view)} bytes")


def _refused(response: ClientResponse, text: str) -> Refused:
    code, message = (
        found.group(1) if (found := re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) else ""
        for tag in ("Code", "Message")
    )
    return Refused(
        response.status, code or str(response.status), message, response.headers.get("x-amz-bucket-region", "")
    )


class SdkTransport:
    """Requests through an aiobotocore client, which belongs to whoever made it.

    Parameters
    ----------
    client
        An open S3 client with retries off.
    bucket
        Name of the bucket.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    async def read(self, name: str, *, most: int, first: int) -> Piece:
        """Read an object, or the beginning of a large one."""
        with refusals():
            answer = await self._client.get_object(Bucket=self._bucket, Key=name)
        size: int = answer["ContentLength"]
        async with answer["Body"] as body:
            if size > most:
                data: Buffer = await _received(body.iter_chunks(_SDK_READ), _room(first))
                body.close()
            else:
                data = await body.read()
        return Piece(data, size, answer.get("ETag", ""))

    async def read_range(self, name: str, start: int, into: memoryview) -> str:
        """Read a part of an object."""
        extent = f"bytes={start}-{start + len(into) - 1}"
        with refusals():
            answer = await self._client.get_object(Bucket=self._bucket, Key=name, Range=extent)
        async with answer["Body"] as body:
            await _received(body.iter_chunks(_SDK_READ), into)
        return str(answer.get("ETag", ""))

    async def write(self, name: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Write one object."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        # botocore takes bytes or a file, and signs the file by reading it twice.
        with refusals():
            await self._client.put_object(Bucket=self._bucket, Key=name, Body=joined(parts), **condition)

    async def write_part(self, name: str, upload: str, number: int, parts: Sequence[Buffer]) -> str:
        """Write one part of an upload."""
        with refusals():
            answer = await self._client.upload_part(
                Bucket=self._bucket, Key=name, UploadId=upload, PartNumber=number, Body=joined(parts)
            )
        tag: str = answer["ETag"]
        return tag

    async def close(self) -> None:
        """Nothing: whoever made the client closes it."""
