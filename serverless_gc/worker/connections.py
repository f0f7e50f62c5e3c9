"""Kept connections to one HTTP server, by ``http.client``."""

from __future__ import annotations

import http.client
import os
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.worker.blobs import BlobError, Buffer

__all__ = ["CONNECT_TIMEOUT", "READ_TIMEOUT", "Answer", "Connections"]

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
_MOST_ERROR_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: memoryview


class Connections:
    """Connections to one server. Safe among threads: a connection serves one request at a time.

    Parameters
    ----------
    scheme, host
        ``"https"`` or ``"http"``; the host with its port, unless it is the scheme's own.
    connect_timeout, read_timeout
        Seconds to wait for a connection, and for the next bytes of an answer.
    """

    def __init__(
        self, scheme: str, host: str, *, connect_timeout: float = CONNECT_TIMEOUT, read_timeout: float = READ_TIMEOUT
    ) -> None:
        self.scheme, self.host = scheme, host
        self._connect_timeout, self._read_timeout = connect_timeout, read_timeout
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def request(self, method: str, target: str, body: Sequence[Buffer], headers: Mapping[str, str]) -> Answer:
        """Send one request and read its whole answer.

        Raises
        ------
        OSError, http.client.HTTPException
            If there is none.
        BlobError
            If no connection can be had in time.
        """
        while True:
            kept = self._take_idle()
            try:
                return self._exchange(kept or self._open(), method, target, body, headers)
            except (OSError, http.client.HTTPException) as error:
                # A kept connection may have been closed by the server meanwhile; a fresh one comes at last.
                if kept is None or not isinstance(error, ConnectionError):
                    raise

    def close(self) -> None:
        """Close idle connections, as the end of the object does."""
        _close_all(self._idle)

    def _take_idle(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: Sequence[Buffer],
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            connection.request(method, target, body=body or None, headers=dict(headers))
            response = connection.getresponse()
            refused = response.status >= 300
            content = memoryview(response.read(_MOST_ERROR_BYTES)) if refused else _read(response)
        except BaseException:
            connection.close()
            raise
        answer = Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)
        if response.isclosed() and not response.will_close:
            self._idle.append(connection)
        else:
            response.close()
            connection.close()
        return answer

    def _open(self) -> http.client.HTTPConnection:
        connection = _connect(self.scheme, self.host, self._connect_timeout)
        try:
            connection.connect()
        except TimeoutError:
            # Not retryable: three SYN packets have been lost by now, more of the same costs billed time.
            raise BlobError(
                f"no connection to {self.host} within {self._connect_timeout:g} s; a function inside a VPC reaches S3 "
                f"only through a gateway endpoint for S3 or a NAT: add one, or take the function out of the VPC"
            ) from None
        connection.sock.settimeout(self._read_timeout)
        return connection


def _connect(scheme: str, host: str, timeout: float) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, timeout=timeout)
    import ssl  # loading the certificates takes 30 ms

    context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    return http.client.HTTPSConnection(host, timeout=timeout, context=context)


def _read(response: http.client.HTTPResponse) -> memoryview:
    """Read a body into one buffer of its announced length."""
    if not response.length:  # chunked, or empty
        return memoryview(response.read())
    view: memoryview = np.empty(response.length, np.uint8).data
    done = 0
    while done < len(view):
        n = response.readinto(view[done:])
        if not n:
            raise http.client.IncompleteRead(b"", len(view) - done)
        done += n
    return view


def _close_all(idle: deque[http.client.HTTPConnection]) -> None:
    while idle:
        idle.pop().close()
