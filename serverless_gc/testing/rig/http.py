"""The little of HTTP/1.1 that the rig speaks itself: heads, bodies with a length or in chunks, answers."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BUFFER_BYTES", "Head", "answer", "read_body", "read_head"]

BUFFER_BYTES = 2**21
"""Room for a head: the runtime client sends stack traces of up to a megabyte in one."""

_MOST_BODY = 2**28


@dataclass(frozen=True, slots=True)
class Head:
    """Request line and headers.

    Attributes
    ----------
    path, query
        As on the wire, percent-encoded.
    headers
        Names are in lower case.
    raw
        All of it as it came.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    raw: bytes


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the empty line.

    Raises
    ------
    asyncio.IncompleteReadError
        If the connection ends first.
    ValueError
        If this is not HTTP.
    """
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    path, _, query = target.partition("?")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Head(method, path, query, headers, raw)


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read the body that a head announces.

    Raises
    ------
    asyncio.IncompleteReadError
        If the connection ends first.
    ValueError
        If the body is not well formed, or larger than any that the rig is made for.
    """
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    size = int(head.headers.get("content-length", "0"))
    if size > _MOST_BODY:
        raise ValueError(f"a body of {size} bytes")
    return await reader.readexactly(size)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        if len(body) + size > _MOST_BODY:
            raise ValueError(f"a body of more than {_MOST_BODY} bytes")
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailing headers
    return bytes(body)


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    r"""Write a whole answer.

    Examples
    --------
    >>> answer(202, b"{}", {"Content-Type": "application/json"})
    b'HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}'
    """
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    if status != http.HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Length: {len(body)}")
    lines.extend(f"{name}: {value}" for name, value in (headers or {}).items())
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
