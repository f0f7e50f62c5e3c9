"""An HTTP server on 127.0.0.1 that answers what a test tells it, byte for byte, and remembers what it was asked.

For what no S3 emulator does: 503 SlowDown, dropped connections, truncated bodies.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Asked", "HttpDouble", "http_double", "response", "s3_error"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; header names are in lower case, ``connection`` counts from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass(slots=True)
class HttpDouble:
    """The running server: what it was asked so far, on how many connections."""

    answer: Callable[[Asked, int], bytes]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


def response(status: int, body: bytes = b"", *, headers: str = "", length: int | None = None) -> bytes:
    r"""Return a raw response; ``headers`` are further lines, ``length`` a false Content-Length.

    Examples
    --------
    >>> response(200, b"ok")
    b'HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok'
    """
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n{headers}\r\n".encode() + body


def s3_error(status: int, code: str, message: str = "no", headers: str = "") -> bytes:
    """Return a raw response with S3's XML for an error."""
    return response(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(), headers=headers)


@contextlib.contextmanager
def http_double(answer: Callable[[Asked, int], bytes]) -> Iterator[HttpDouble]:
    """Serve while the block runs.

    Parameters
    ----------
    answer
        Gives the raw bytes to send for a request and its number (1, 2, ...). An empty answer drops the connection.

    Examples
    --------
    >>> import urllib.request
    >>> with http_double(lambda asked, number: response(200, asked.path.encode())) as server:
    ...     with urllib.request.urlopen(server.endpoint + "/a") as reply:
    ...         reply.read()
    b'/a'
    """
    state = HttpDouble(answer)
    lock = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with lock:
                state.connections += 1
                connection = state.connections
            while line := self.rfile.readline():
                method, path, _ = line.decode().split()
                headers: dict[str, str] = {}
                while header := self.rfile.readline().decode().strip():
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                if headers.get("expect") == "100-continue":
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                asked = Asked(method, path, headers, self.rfile.read(int(headers.get("content-length", 0))), connection)
                with lock:
                    state.asked.append(asked)
                    number = len(state.asked)
                raw = state.answer(asked, number)
                try:
                    self.wfile.write(raw)
                except OSError:
                    return
                if not raw or b"Connection: close" in raw:
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
