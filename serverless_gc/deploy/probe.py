"""Trying a deployment out: objects from here, and the worker on real tasks."""

from __future__ import annotations

import asyncio
import platform
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import ConfigError, InvokeError, ProtocolMismatch
from serverless_gc.invoke import RetryingInvoker
from serverless_gc.invoke.base import Invoker
from serverless_gc.store import S3Store
from serverless_gc.types import TaskSpec
from serverless_gc.wire import PROTOCOL, Reply, Task
from serverless_gc.wire.block import pack_block

__all__ = ["Warmth", "exercise", "probe_store"]

FOLDER = "runs/doctor"  # where the lifecycle rule reaches it, should anything be left
BURST = 4
MOST_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Warmth:
    """What the worker told of itself, and seconds of a cold and of a warm call where one was seen."""

    python: str
    driver_python: str
    numpy: str
    cold: float | None
    warm: float | None


async def probe_store(bucket: str, prefix: str, region: str) -> float:
    """Write an object, read it back and delete it; returns the seconds it took.

    Raises
    ------
    StoreError, ConfigError
        If any of it fails, or what is read is not what was written.
    """
    store = S3Store(bucket, prefix, region=region)
    key = f"{FOLDER}/{uuid.uuid4().hex}"
    content = uuid.uuid4().bytes
    started = time.perf_counter()
    try:
        await store.put(key, content)
        if bytes(await store.get(key)) != content:
            raise ConfigError(f"{store.url}/{key} was read back with other content than written")
        failed = await store.delete([key])
        if failed:
            raise ConfigError(f"{store.url}/{key} could not be deleted: {failed[key]}")
        return time.perf_counter() - started
    finally:
        await store.close()


async def exercise(bucket: str, prefix: str, function: str, region: str, *, deadline: float) -> Warmth:
    """Let the worker multiply a block that it reads from the bucket, then time empty tasks.

    The first shows that the function's role reaches the objects, that a missing object is reported as missing, and
    that both sides speak one protocol.

    Raises
    ------
    InvokeError
        If there is no reply.
    ProtocolMismatch
        If driver and worker differ in version.
    ConfigError
        If the worker answers with an error or a wrong product.
    """
    store = S3Store(bucket, prefix, region=region)
    base = f"{FOLDER}/{uuid.uuid4().hex}"
    timeout = min(deadline, MOST_SECONDS)
    block, operand = np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0, 2.0])
    try:
        async with _opened(function, region) as invoker:
            await store.put(f"{base}/block", pack_block(block))
            task = Task(
                base, 0, "doctor", 0, 0, kernel="matvec", blocks=(f"{base}/block",), result_key=f"{base}/result",
                store=store.url, operand=operand, inline_limit=1024, cancel_key=f"{base}/cancel",
            )  # fmt: skip
            empty = Task(base, 1, "empty", 0, 0, kernel="noop", blocks=(), result_key="", store=store.url)
            calls = [await _ask(invoker, empty, timeout)]  # the first: cold, if nobody called before
            reply, _ = await _ask(invoker, task, timeout)
            if reply.value is None or not np.array_equal(reply.value, block @ operand):
                raise ConfigError(f"function {function} computed {reply.value}, expected {block @ operand}")
            # More at once than are warm make the function start another environment.
            calls += await asyncio.gather(*(_ask(invoker, empty, timeout) for _ in range(BURST)))
            calls.append(await _ask(invoker, empty, timeout))
    finally:
        await store.delete([f"{base}/block", f"{base}/result"])
        await store.close()
    cold = [seconds for reply, seconds in calls if reply.stats.get("cold")]
    warm = [seconds for reply, seconds in calls if not reply.stats.get("cold")]
    stats = reply.stats
    return Warmth(
        str(stats.get("python", "?")),
        platform.python_version(),
        str(stats.get("numpy", "?")),
        max(cold, default=None),
        min(warm, default=None),
    )


@asynccontextmanager
async def _opened(function: str, region: str) -> AsyncIterator[Invoker]:
    from serverless_gc.invoke.aws import LambdaInvoker

    invoker = RetryingInvoker(LambdaInvoker(function, region=region, concurrency=BURST))
    await invoker.open()
    try:
        yield invoker
    finally:
        await invoker.close()


async def _ask(invoker: Invoker, task: Task, timeout: float) -> tuple[Reply, float]:
    started = time.perf_counter()
    frame = await invoker.invoke(TaskSpec(task.task_id, 0, 0), task.to_bytes(), timeout=timeout)
    seconds = time.perf_counter() - started
    reply = Reply.from_bytes(frame)
    if reply.protocol != PROTOCOL or reply.error.get("kind") == "protocol":
        raise ProtocolMismatch(
            f"the worker speaks protocol {reply.stats.get('worker_protocol', reply.protocol)}, this driver {PROTOCOL}"
        )
    if reply.status != "ok":
        raise _worker_failed(reply)
    return reply, seconds


def _worker_failed(reply: Reply) -> ConfigError | InvokeError:
    error = reply.error
    said = f"{error.get('type', '?')}: {error.get('message', '?')}"
    advice = {
        "denied": "The function's role may not use the bucket: deploy again, and check its KMS key",
        "missing": "The role may write but not see what it wrote",
        "unavailable": "A function in a VPC needs an S3 gateway endpoint: deploy with --vpc-route-tables",
    }.get(error.get("kind", ""), "")
    return ConfigError(f"the worker ran and failed: {said}" + (f". {advice}" if advice else ""))
