"""Runs tasks on AWS Lambda: one announced attempt is one request."""

from __future__ import annotations

import asyncio
import importlib
import os
from contextlib import AsyncExitStack
from typing import Any, Literal

from serverless_gc.errors import ConfigError, InputError, InvokeError
from serverless_gc.invoke.aws_errors import Target, function_failed, refused, transport_failed
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.envelope import check_request, decode_reply, encode_request
from serverless_gc.invoke.transport import Answer, HttpTransport, SdkTransport, Transport, keepalive_socket
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.types import Buffer, TaskSpec

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
        concurrency: int = 1000,
        limits: Limits = DEFAULT_LIMITS,
        connect_timeout: float = 10.0,
        session: Any = None,
        transport: Literal["http", "sdk"] = "http",
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
        self._kind = transport
        self._target = Target(function, region or "?")
        self._slots = asyncio.Semaphore(concurrency)
        self._stack: AsyncExitStack | None = None
        self._transport: Transport | None = None
        self._broken: tuple[type[Exception], ...] = ()
        self.client_config: Any = None

    async def open(self) -> None:
        """Resolve region, endpoint and credentials; connections are made as they are needed.

        Raises
        ------
        ConfigError
            If region, profile or endpoint are missing or wrong.
        """
        if self._stack is not None:
            return
        await asyncio.to_thread(_import_sdk)  # takes a quarter of a second: not on the loop
        from aiobotocore.session import get_session
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError

        session = self._session or get_session()
        self._slots = asyncio.Semaphore(self.concurrency)  # made here: it belongs to the loop that opens
        async with AsyncExitStack() as stack:
            try:
                # botocore itself reads AWS_DEFAULT_REGION and the profile only; every other tool reads AWS_REGION.
                region = self._region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
                client = await stack.enter_async_context(
                    session.create_client(
                        "lambda", region_name=region, endpoint_url=self._endpoint, config=self._config()
                    )
                )
                self._transport = await self._make_transport(session, client)
            except (BotoCoreError, ValueError, OSError) as error:
                raise ConfigError(
                    f"cannot make a Lambda client: {str(error).rstrip('.')}. "
                    "Check AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_LAMBDA and AWS_CA_BUNDLE"
                ) from error
            stack.push_async_callback(self._transport.close)
            self.client_config = client.meta.config
            self._target = Target(self._function, client.meta.region_name)
            self._broken = (BotoCoreError, ClientError, OSError)
            self._stack = stack.pop_all()

    async def _make_transport(self, session: Any, client: Any) -> Transport:
        if self._kind == "sdk":
            return SdkTransport(client, self._function, self._qualifier)
        from botocore.httpsession import get_cert_path

        transport = HttpTransport(
            endpoint=client.meta.endpoint_url,
            region=client.meta.region_name,
            credentials=await session.get_credentials(),
            function=self._function,
            qualifier=self._qualifier,
            connections=self.concurrency,
            connect_timeout=self._connect_timeout,
            read_timeout=self._read_timeout,
            verify=str(session.get_config_variable("ca_bundle") or get_cert_path(True)),
        )
        await transport.open()
        return transport

    @property
    def _read_timeout(self) -> float:
        return self._limits.function_timeout + READ_MARGIN

    def _config(self) -> Any:
        from aiobotocore.config import AioConfig

        return AioConfig(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=self._connect_timeout,
            read_timeout=self._read_timeout,
            max_pool_connections=self.concurrency,
            connector_args={"socket_factory": keepalive_socket},  # `tcp_keepalive` is accepted and then ignored
            parameter_validation=False,
            user_agent="serverless-gc",  # put together anew for every request otherwise: a quarter of the time
            warm_up_loader_caches=True,
        )

    async def invoke(self, task: TaskSpec, payload: Buffer, *, timeout: float) -> Buffer:
        """Send one request and return the packed reply.

        Raises
        ------
        InvokeError
            Whatever went wrong, told apart by ``kind`` and ``reason``.
        """
        transport = self._transport
        if transport is None:
            raise InputError("the Lambda invoker is not open: call open() first")
        check_request(task, payload, self._limits.request_bytes)
        sent = False
        try:
            async with asyncio.timeout(timeout), self._slots:
                sent = True
                answer = await self._send(transport, task, payload)
        except TimeoutError:
            raise InvokeError(
                f"task {task.task_id}, attempt {task.attempt}: function {self._target.function} gave no reply "
                f"within {timeout:g} s",
                kind="timeout",
                reason="no reply" if sent else "not started",
                may_have_run=sent,
            ) from None
        return self._frame(task, answer)

    async def _send(self, transport: Transport, task: TaskSpec, payload: Buffer) -> Answer:
        stats = self.stats
        stats.invocations += 1
        stats.in_flight += 1
        stats.peak = max(stats.peak, stats.in_flight)
        try:
            return await transport.send(encode_request(payload))
        except self._broken as error:
            raise transport_failed(error, task, self._target) from error
        finally:
            stats.in_flight -= 1

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
        stack, self._stack, self._transport = self._stack, None, None
        if stack is not None:
            await stack.aclose()


def _import_sdk() -> None:
    for name in ("aiobotocore.session", "aiobotocore.config", "botocore.exceptions", "aiohttp"):
        importlib.import_module(name)
