"""Lambda's Runtime API (2018-06-01) of one execution environment, on a port of its own.

The runtime client takes nothing but host and port, so one port serves one environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from serverless_gc.testing.rig.http import BUFFER_BYTES, answer, read_body, read_head

__all__ = ["Listener", "RuntimeApi", "Send"]

Send = Callable[[bytes, Mapping[str, str]], None]
"""Sends an event: its body and headers."""

_PREFIX = "/2018-06-01/runtime/"
_ACCEPTED = b'{"status":"OK"}'


class Listener(Protocol):
    """Who is told what the runtime says."""

    def runtime_polls(self, send: Send) -> None:
        """Take note that the runtime is ready for its next event."""

    def runtime_replies(self, request_id: str, body: bytes, *, failed: bool) -> bool:
        """Take what the handler has returned or raised; says whether it is small enough."""

    def runtime_cannot_start(self, body: bytes) -> None:
        """Take note that the handler could not be loaded."""


class RuntimeApi:
    """The server; `open` gives its address."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """Listen on 127.0.0.1 and return ``host:port``."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=BUFFER_BYTES)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        """Free the port; connections end with the runtime's process."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._exchange(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_body(reader, head)
        what = head.path.removeprefix(_PREFIX).split("/")
        status = 202
        match head.method, what:
            case "GET", ["invocation", "next"]:
                self._listener.runtime_polls(lambda event, headers: writer.write(answer(200, event, headers)))
                return
            case "POST", ["invocation", request_id, "response" | "error" as kind]:
                if not self._listener.runtime_replies(request_id, body, failed=kind == "error"):
                    status = 413
            case "POST", ["init", "error"]:
                self._listener.runtime_cannot_start(body)
            case _:
                status = 404
        writer.write(answer(status, _ACCEPTED, {"Content-Type": "application/json"}))
