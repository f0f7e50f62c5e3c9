"""One address for all of AWS on this machine: invocations go to the endpoint that runs the worker, all else to moto."""

import contextlib
import http.client
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Front:
    """The running front.

    ``overrides`` maps (method, end of the path) to a canned (status, headers, body); ``undeletable`` keys are kept,
    as by a policy, when a batch that names them is deleted.
    """

    moto: str
    worker: str
    url: str = ""
    overrides: dict = field(default_factory=dict)
    undeletable: frozenset = frozenset()
    asked: list = field(default_factory=list)

    def reset(self):
        """Forget everything, moto's state included."""
        self.overrides, self.undeletable = {}, frozenset()
        with contextlib.closing(http.client.HTTPConnection(urlsplit(self.moto).netloc, timeout=30)) as connection:
            connection.request("POST", "/moto-api/reset")
            assert connection.getresponse().status == 200
        self.asked.clear()

    def count(self, method, query):
        """How often a method was asked for with such a query."""
        return sum(m == method and query in path.partition("?")[2] for m, path in self.asked)

    def without_undeletable(self, body):
        """Take the undeletable keys out of a DeleteObjects request."""
        kept = []

        def strike(match):
            key = match[1].decode()
            if key not in self.undeletable:
                return match[0]
            kept.append(key)
            return b""

        return re.sub(rb"<Object><Key>([^<]*)</Key>.*?</Object>", strike, body), kept


def denied(key):
    return f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@contextlib.contextmanager
def aws_front(moto, worker):
    front = Front(moto, worker)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def relay(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            front.asked.append((self.command, self.path))
            for (method, end), canned in front.overrides.items():
                if self.command == method and urlsplit(self.path).path.endswith(end):
                    return self.answer(*canned)
            kept = []
            if self.command == "POST" and front.undeletable and "delete" in urlsplit(self.path).query:
                body, kept = front.without_undeletable(body)
            if kept and b"<Object>" not in body:
                errors = "".join(map(denied, kept))
                return self.answer(200, [], f"<DeleteResult>{errors}</DeleteResult>".encode())
            target = front.worker if self.path.endswith("/invocations") else front.moto
            headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
            with contextlib.closing(http.client.HTTPConnection(urlsplit(target).netloc, timeout=60)) as connection:
                connection.request(self.command, self.path, body, headers)
                reply = connection.getresponse()
                content = reply.read()
            if kept:
                errors = "".join(map(denied, kept)).encode()
                content = content.replace(b"</DeleteResult>", errors + b"</DeleteResult>")
                assert errors in content
            return self.answer(reply.status, reply.getheaders(), content)

        def answer(self, status, headers, body):
            self.send_response_only(status)
            skipped = {"connection", "transfer-encoding"} | ({"content-length"} if self.command != "HEAD" else set())
            for name, value in headers:
                if name.lower() not in skipped:
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def __getattr__(self, name):
            if name.startswith("do_"):
                return self.relay
            raise AttributeError(name)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    front.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield front
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
