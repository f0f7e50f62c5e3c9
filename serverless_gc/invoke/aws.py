"""Runs tasks on AWS Lambda: one announced attempt is one request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

from serverless_gc.aws.access import Access, open_access, transport_errors
from serverless_gc.aws.identity import EXPIRED_CODES
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.invoke.aws_errors import Target, function_failed, refused, transport_failed
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.envelope import check_request, decode_reply, encode_request
from serverless_gc.invoke.transport import Answer, HttpTransport, SdkTransport, Transport
from serverless_gc.invoke.warm import Warmth, warm
from serverless_gc.limits import ACCOUNT_CONCURRENCY, DEFAULT_LIMITS, Limits
from serverless_gc.types import Buffer, TaskSpec

if TYPE_CHECKING:
    from serverless_gc.aws.http import Watch

__all__ = ["READ_MARGIN", "LambdaInvoker"]

READ_MARGIN = 30.0
"""Seconds by which the client waits longer than a function can run, so that it never hangs up on one that runs."""


class LambdaInvoker(Invoker):
    """Invokes a deployed worker synchronously.

    Nothing below this class repeats a request; the read timeout exceeds the longest run of a function; TCP
    keep-alive probes idle connections every minute, well before networks drop them; at most ``concurrency``
    requests exist at a time, and a request waits for its turn *before* it is built and signed.

    Parameters
    ----------
    function
        Name or ARN of the deployed function.
    region
        AWS region; by default the session's profile, ``AWS_DEFAULT_REGION`` or ``AWS_REGION``.
    endpoint
        URL of the Lambda service; by default ``AWS_ENDPOINT_URL_LAMBDA``, ``AWS_ENDPOINT_URL`` or the public one.
    qualifier
        Version or alias of the function.
    concurrency
        Most requests under way at once, and size of the connection pool.
    limits
        Sizes checked before anything is sent, and the longest run of a function.
    connect_timeout
        Seconds to establish a connection.
    session
        An ``aiobotocore.session.AioSession`` with credentials of your own, refreshable ones included.
    transport
        ``"http"``: aiohttp with this package's signer, half the driver's processor time per invocation. ``"sdk"``:
        every request through aiobotocore, the reference.
    watch
        Called for each request of the HTTP transport with the seconds between its signature and its first byte on
        the wire.

    Examples
    --------
    >>> invoker = LambdaInvoker("serverless-gc-worker", region="eu-central-1", concurrency=200)
    >>> invoker.name, invoker.concurrency
    ('aws', 200)
    """

    name = "aws"

    def __init__(
        self,
        function: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        qualifier: str | None = None,
        concurrency: int = ACCOUNT_CONCURRENCY,
        limits: Limits = DEFAULT_LIMITS,
        connect_timeout: float = 10.0,
        session: Any = None,
        transport: Literal["http", "sdk"] = "http",
        watch: Watch | None = None,
    ) -> None:
        super().__init__()
        if not function:
            raise InputError("function must be the name or ARN of a deployed function, got an empty string")
        if concurrency < 1:
            raise InputError(f"concurrency must be at least 1, got {concurrency}")
        if not connect_timeout > 0:
            raise InputError(f"connect_timeout must be positive, got {connect_timeout}")
        if transport not in {"http", "sdk"}:
            raise InputError(f"transport must be 'http' or 'sdk', got {transport!r}")
        self.concurrency = concurrency
        self._limits = limits
        self._connect_timeout = connect_timeout
        self._session, self._region, self._endpoint = session, region, endpoint
        self._function, self._qualifier = function, qualifier
        self._kind, self._watch = transport, watch
        self._target = Target(function, region or "?")
        self._slots = asyncio.Semaphore(concurrency)
        self._stack: AsyncExitStack | None = None
        self._access: Access | None = None
        self._transport: Transport | None = None

    async def open(self) -> None:
        """Resolve region, endpoint and credentials; connections are made as they are needed.

        Raises
        ------
        ConfigError
            If region, profile or endpoint are missing or wrong.
        """
        if self._stack is not None:
            return
        async with AsyncExitStack() as stack:
            access = await open_access(
                stack,
                "lambda",
                session=self._session,
                region=self._region,
                endpoint=self._endpoint,
                concurrency=self.concurrency,
                connect_timeout=self._connect_timeout,
                read_timeout=self._read_timeout,
                parameter_validation=False,
            )
            transport = await self._make_transport(access)
            stack.push_async_callback(transport.close)
            self._slots = asyncio.Semaphore(self.concurrency)  # made here: it belongs to the loop that opens
            self._access, self._transport = access, transport
            self._target = Target(self._function, access.region)
            self._stack = stack.pop_all()

    async def _make_transport(self, access: Access) -> Transport:
        if self._kind == "sdk":
            return SdkTransport(access.client, self._function, self._qualifier)
        from serverless_gc.aws.http import SignedHttp

        http = SignedHttp(
            "lambda",
            access,
            connections=self.concurrency,
            connect_timeout=self._connect_timeout,
            read_timeout=self._read_timeout,
            watch=self._watch,
        )
        transport = HttpTransport(http, self._function, self._qualifier)
        await transport.open()
        return transport

    @property
    def client_config(self) -> Any:
        """Configuration of the aiobotocore client, None while the invoker is not open."""
        return None if self._access is None else self._access.client.meta.config

    @property
    def _read_timeout(self) -> float:
        return self._limits.function_timeout + READ_MARGIN

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Send one request and return the packed reply.

        Raises
        ------
        InvokeError
            Whatever went wrong, told apart by ``kind`` and ``reason``.
        """
        if self._stack is None:
            raise InputError("the Lambda invoker is not open: call open() first")
        check_request(task, payload, self._limits.request_bytes)
        sent = False
        try:
            async with asyncio.timeout(timeout), self._slots:
                sent = True
                answer = await self._send(task, payload)
        except TimeoutError:
            raise InvokeError(
                f"task {task.task_id}, attempt {task.attempt}: function {self._target.function} gave no reply "
                f"within {timeout:g} s",
                kind="timeout",
                reason="no reply" if sent else "not started",
                may_have_run=sent,
            ) from None
        return self._frame(task, answer)

    async def _send(self, task: TaskSpec, payload: Buffer) -> Answer:
        stats = self.stats
        stats.in_flight += 1
        stats.peak = max(stats.peak, stats.in_flight)
        try:
            return await self._exchange(encode_request(payload))
        except transport_errors() as error:
            raise transport_failed(error, task, self._target) from error
        finally:
            stats.in_flight -= 1

    async def _exchange(self, body: bytes) -> Answer:
        """Send one request; once more if it was refused for its credentials and there are newer ones."""
        assert self._access is not None  # noqa: S101 - the invoker is open
        assert self._transport is not None  # noqa: S101 - the invoker is open
        used = await self._access.identity.frozen()
        self.stats.invocations += 1
        answer = await self._transport.send(body)
        if answer.error in EXPIRED_CODES and await self._access.identity.renew(used):
            self.stats.invocations += 1
            answer = await self._transport.send(body)
        return answer

    async def connect(self, n: int) -> int:
        """Open connections for ``n`` invocations at once, none being made; return how many were opened.

        The HTTP transport can do so. Unused connections close after some seconds, as AWS would close them.
        """
        return 0 if self._transport is None else await self._transport.connect(n)

    async def memory(self) -> int | None:
        """Return the bytes of memory of the deployed function; None if it may not be asked, or there is none."""
        from botocore.exceptions import BotoCoreError, ClientError

        assert self._access is not None  # noqa: S101 - the invoker is open
        which = {"Qualifier": self._qualifier} if self._qualifier else {}
        try:
            found = await self._access.client.get_function_configuration(FunctionName=self._function, **which)
        except (BotoCoreError, ClientError):
            return None  # the first invocation meets the same, and says it properly
        return int(found["MemorySize"]) * 2**20

    async def warm(self, n: int, *, timeout: float = 60.0) -> Warmth:
        """Open connections and start environments: ``n`` no-op invocations at once. Lambda bills them.

        Raises
        ------
        ConfigError
            If function or credentials are refused.
        """
        return await warm(self, n, timeout=timeout)

    def _frame(self, task: TaskSpec, answer: Answer) -> bytes:
        """Take the reply's frame out of an answer, if it is one."""
        if answer.error:
            refusal = refused(answer, task, self._target)
            self.stats.throttles += refusal.kind == "throttled"
            raise refusal
        if answer.function_error:
            raise function_failed(answer, task, self._target)
        if answer.status != 200:
            raise InvokeError(
                f"task {task.task_id}: function {self._target.function} answered status {answer.status}, a synchronous "
                "invocation answers 200: something between here and Lambda changed the request",
                kind="bad-reply",
                reason="unexpected status",
                request_id=answer.request_id,
            )
        return decode_reply(task, answer.body, answer.request_id)

    async def close(self) -> None:
        """Close all connections."""
        stack, self._stack, self._transport, self._access = self._stack, None, None, None
        if stack is not None:
            await stack.aclose()
