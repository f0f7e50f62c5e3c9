"""The rig's one port: what is about running functions goes to the data plane, all else to moto, byte for byte."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

from serverless_gc.testing.rig.client import ADMIN
from serverless_gc.testing.rig.http import BUFFER_BYTES, Head, answer, read_body, read_head
from serverless_gc.testing.rig.logs import Logs
from serverless_gc.testing.rig.plane import Answer, Plane, Request, decode_context
from serverless_gc.testing.rig.settings import steps_from_json

__all__ = ["Front"]

_INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/invocations/?")
_SETTINGS = "/2016-08-19/account-settings"
_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_COPY_BYTES = 2**18


class Front:
    """Serves all connections.

    Parameters
    ----------
    plane, log
        The data plane and the log it writes.
    moto_port
        Where moto listens.
    """

    def __init__(self, plane: Plane, log: Logs, moto_port: int) -> None:
        self._plane = plane
        self._logs = log
        self._moto_port = moto_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self, port: int) -> int:
        """Listen on 127.0.0.1; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=BUFFER_BYTES, backlog=1024)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is not None:
            self._server.close()
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._exchange(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the client has gone, or does not speak HTTP
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection goes on."""
        head = await read_head(reader)
        invoke = _INVOKE.fullmatch(head.path) if head.method == "POST" else None
        if head.method == "GET" and head.path.rstrip("/") == _SETTINGS and (scope := _scope(head)):
            writer.write(answer(200, json.dumps({"AccountLimit": self._plane.account_limit(scope[0])}).encode()))
            return True
        if invoke is None and not head.path.startswith(ADMIN):
            await self._pass_through(head, reader, writer)
            return False
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_body(reader, head)
        if invoke is None:
            writer.write(self._admin(head, body))
            return True
        given = await self._invoke(unquote(invoke[1]), head, body)
        if given.cut:
            writer.transport.abort()
            return False
        writer.write(answer(given.status, given.body, given.headers))
        return head.headers.get("connection", "").lower() != "close"

    async def _invoke(self, function: str, head: Head, body: bytes) -> Answer:
        scope = _scope(head)
        if scope is None:
            code = "MissingAuthenticationTokenException"
            return Answer(403, b'{"message":"Missing Authentication Token"}', {"x-amzn-ErrorType": code})
        qualifier = parse_qs(head.query).get("Qualifier", [""])[0]
        kind = head.headers.get("x-amz-invocation-type", "RequestResponse")
        return await self._plane.invoke(
            Request(
                function=function,
                qualifier=qualifier,
                region=scope[0],
                kind=kind,
                body=body,
                tail=head.headers.get("x-amz-log-type", "") == "Tail",
                client_context=decode_context(head.headers.get("x-amz-client-context", "")),
            )
        )

    async def _pass_through(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join the connection with one of moto, which closes it after its answer."""
        scope = _scope(head)
        if scope is not None and scope[1] == "logs":
            self._logs.flush()
        moto_reader, moto_writer = await asyncio.open_connection("127.0.0.1", self._moto_port, limit=BUFFER_BYTES)
        moto_writer.write(head.raw)
        sending = asyncio.create_task(_copy(reader, moto_writer))
        try:
            await _copy(moto_reader, writer)
        finally:
            sending.cancel()
            moto_writer.close()

    def _admin(self, head: Head, body: bytes) -> bytes:
        actions: dict[tuple[str, str], Callable[[Any], Any]] = {
            ("GET", "counts"): lambda _: self._plane.counts,
            ("GET", "environments"): lambda _: self._plane.environments(),
            ("POST", "kill"): lambda content: self._plane.kill(content["function"]),
            ("POST", "faults"): lambda content: self._plane.plan.set(
                content["function"], steps_from_json(content["steps"])
            ),
        }
        action = actions.get((head.method, head.path.removeprefix(ADMIN)))
        if action is None:
            return answer(404, b"{}")
        return answer(200, json.dumps(action(json.loads(body or b"null"))).encode())


def _scope(head: Head) -> tuple[str, str] | None:
    """Return region and service for which a request was signed, None if it was not."""
    found = _SCOPE.search(head.headers.get("authorization", ""))
    return None if found is None else (found[1], found[2])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_COPY_BYTES):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # one side has gone: the other is closed by the caller
