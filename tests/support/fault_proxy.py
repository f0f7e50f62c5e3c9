"""A proxy on the wire, before S3 and Lambda on this machine, that spoils chosen requests: refused, cut, late.

Which requests are spoilt depends on the seed and on what they ask for, not on the order in which they come: a request
is its method and path (without the run's name) or, of an invocation, its task's round, slot and attempt.
"""

import asyncio
import contextlib
import datetime as dt
import io
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass

import aiohttp

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import draw
from serverless_gc.invoke.envelope import decode_reply
from serverless_gc.testing.http_double import s3_error
from serverless_gc.testing.lambda_endpoint import error_step
from serverless_gc.testing.rig.http import BUFFER_BYTES, answer, read_body, read_head
from serverless_gc.types import TaskSpec
from serverless_gc.wire import FrameError, Task

INVOKE = r"POST /2015-03-31/functions/"
BLOCKS = r"GET .*/data/.*/\d+$"
OBJECTS = r"(GET|PUT|HEAD) .*/runs/"

_OWN_HEADERS = {"connection", "expect", "content-length", "transfer-encoding", "keep-alive"}

_FAILED = answer(
    200,
    b'{"errorType": "RuntimeError", "errorMessage": "by the proxy", "stackTrace": []}',
    {"X-Amz-Function-Error": "Unhandled", "Content-Type": "application/json"},
)


@dataclass(frozen=True)
class Fault:
    """One kind of fault; the first that meets a request spoils it.

    Parameters
    ----------
    what
        ``"refuse"``: answer an error, nothing behind sees the request; ``"fail"``: answer as for a function that
        raised; ``"break"``: close the connection instead;
        ``"cut"``: the request is served, its answer ends in the middle; ``"delay"``: it is served later.
    only
        Begins what is concerned, as a regular expression: ``"PUT /bucket/key"``.
    share
        Fraction of these requests, repeats included.
    status, code
        Of the refusal.
    seconds
        Of the delay.
    until
        Only so many seconds after the first request that is concerned.
    older
        Only requests signed at least so many seconds ago.
    """

    what: str
    only: str
    share: float = 1.0
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    until: float = float("inf")
    older: float = float("-inf")


def slow_down(share, **options):
    """S3 is busy."""
    return Fault("refuse", OBJECTS, share, **options)


def throttled(share, **options):
    """Lambda has no room."""
    return Fault("refuse", INVOKE, share, 429, "TooManyRequestsException", **options)


class FaultProxy:
    """The running proxy.

    Attributes
    ----------
    url
        Where it listens, for S3 and Lambda both.
    faults
        In force; may be replaced at any time.
    met
        How many requests each fault has met, by its ``what`` and, of refusals, the code.
    asked
        Time and identity of every request.
    """

    def __init__(self, s3, functions, seed):
        self._targets = (s3, functions)
        self._seed = seed
        self._begun = {}
        self._connections = set()
        self._numbers = Counter()
        self.url = ""
        self.faults = ()
        self.met = Counter()
        self.asked = []

    def environment(self):
        """Variables that lead AWS clients here."""
        return dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_LAMBDA"), self.url)

    async def serve(self, started):
        """Serve until cancelled."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._behind:
            server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=BUFFER_BYTES, backlog=1024)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started()
            try:
                await asyncio.Event().wait()
            finally:
                server.close()
                for task in tuple(self._connections):
                    task.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader, writer):
        self._connections.add(asyncio.current_task())
        try:
            while await self._exchange(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
            pass  # one side has gone, or the proxy ends
        finally:
            self._connections.discard(asyncio.current_task())
            writer.transport.abort()

    async def _exchange(self, reader, writer):
        """Serve one request; whether the connection goes on."""
        head = await read_head(reader)
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_body(reader, head)
        name = f"{head.method} {head.path}"
        identity = _identity(name, body)
        self.asked.append((time.monotonic(), identity))
        fault = self._fault(name, identity, head)
        if fault is not None:
            self.met[fault.code if fault.what == "refuse" else fault.what] += 1
            if fault.what == "break":
                return False
            if fault.what in {"refuse", "fail"}:
                writer.write(_refusal(fault, head) if fault.what == "refuse" else _FAILED)
                return True
            await asyncio.sleep(fault.seconds)
        raw = await self._forward(head, body)
        if fault is not None and fault.what == "cut":
            beginning = raw.index(b"\r\n\r\n") + 4
            writer.write(raw[: beginning + (len(raw) - beginning) // 2])
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            return False
        writer.write(raw)
        return True

    def _fault(self, name, identity, head):
        self._numbers[identity] += 1
        number = self._numbers[identity]
        for place, fault in enumerate(self.faults):
            if not re.match(fault.only, name):
                continue
            since = time.monotonic() - self._begun.setdefault(fault, time.monotonic())
            drawn = draw(self._seed, place, identity, number) < fault.share
            if drawn and since < fault.until and _age(head) >= fault.older:
                return fault
        return None

    async def _forward(self, head, body):
        target = self._targets[re.match(INVOKE, f"{head.method} {head.path}") is not None]
        url = aiohttp.client.URL(target + head.path + (f"?{head.query}" if head.query else ""), encoded=True)
        lines = head.raw.decode("latin-1").split("\r\n")[1:-2]
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        headers = [(name, value) for name, value in pairs if name.lower() not in _OWN_HEADERS]
        skipped = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
        async with self._behind.request(
            head.method,
            url,
            data=io.BytesIO(body) if body else None,
            headers=headers,
            skip_auto_headers=skipped,
            allow_redirects=False,
        ) as reply:
            content = await reply.read()
            given = {name: value for name, value in reply.headers.items() if name.lower() not in _OWN_HEADERS}
            size = reply.headers.get("Content-Length", "0")
        if head.method == "HEAD":
            return answer(reply.status, b"", given).replace(b"Content-Length: 0", f"Content-Length: {size}".encode())
        return answer(reply.status, content, given)


def _identity(name, body):
    if re.match(INVOKE, name):
        try:
            task = Task.from_bytes(decode_reply(TaskSpec("", 0, 0), body))
        except (InvokeError, FrameError, InputError):
            return name
        return f"{task.kernel} {task.round} {task.slot} {task.attempt}"
    return re.sub(r"/runs/[^/]*", "/runs/", name)


def _age(head):
    """Seconds since the request was signed, as far as its whole seconds tell: never more than there were."""
    stamp = head.headers.get("x-amz-date", "")
    if not stamp:
        return float("-inf")
    signed = dt.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    return time.time() - signed.timestamp() - 1.0


def _refusal(fault, head):
    if head.path.startswith("/2015-03-31/"):
        step = error_step(fault.status, fault.code, "by the proxy", Reason="CallerRateLimitExceeded")
        return answer(step.status, step.body.encode(), step.headers)
    if head.method == "HEAD":
        return answer(fault.status)
    return s3_error(fault.status, fault.code)


@contextlib.contextmanager
def fault_proxy(s3, functions, *, seed=0):
    """Run a proxy before these two URLs while the block runs."""
    proxy = FaultProxy(s3, functions, seed)
    started = threading.Event()
    loop = asyncio.new_event_loop()

    def run():
        nonlocal serving
        asyncio.set_event_loop(loop)
        serving = loop.create_task(proxy.serve(started.set))
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    serving = None
    thread = threading.Thread(target=run, name="fault-proxy")
    thread.start()
    try:
        assert started.wait(10.0)
        yield proxy
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
