"""What each backend is made of: a store, an invoker and a host.

========== ============================ ================================== =====================
backend    store                        invoker                            host
========== ============================ ================================== =====================
local      memory                       the real worker entry on threads   asyncio, real clock
processes  a temporary directory        the real worker entry, processes   asyncio, real clock
aws        S3                           AWS Lambda, throttled and retried  asyncio, real clock
simulated  memory                       the real worker entry, inline      virtual clock
========== ============================ ================================== =====================
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serverless_gc.engine import AioHost, Host, VirtualHost
from serverless_gc.errors import ConfigError, InputError
from serverless_gc.inject import Faults, Injection, Stragglers
from serverless_gc.invoke import LocalInvoker, ProcessInvoker, RetryingInvoker, SimulatedInvoker, inject
from serverless_gc.invoke.base import Invoker
from serverless_gc.limits import ACCOUNT_CONCURRENCY, Limits
from serverless_gc.refusals import unknown_name
from serverless_gc.rounds.collect import Presign
from serverless_gc.store import FaultyStore, LocalStore, MemoryStore, RetryingStore, S3Store, StoreStats, StoreWrapper
from serverless_gc.store.base import Store
from serverless_gc.store.s3_presign import with_urls
from serverless_gc.stragglers import Injected, LambdaLike, Unanswered
from serverless_gc.types import StragglerModel
from serverless_gc.wire import Task

__all__ = ["BACKENDS", "Backend", "open_backend"]

SLEEPERS = 32
"""Threads of the local backend where stragglers are injected."""

BACKENDS = ("local", "processes", "aws", "simulated")


@dataclass(slots=True)
class Backend:
    """An opened backend. ``release`` undoes what opening made, once store and invoker are closed."""

    store: Store
    invoker: Invoker
    host: Host
    store_stats: StoreStats
    release: Callable[[], Any] = field(default=lambda: None)
    logs_hint: str = ""
    presign: Presign | None = None


def open_backend(
    name: str,
    *,
    injections: Sequence[Injection],
    limits: Limits,
    settings: dict[str, Any],
    store: Store | None = None,
    invoker: Invoker | None = None,
    delay: StragglerModel | None = None,
    seed: int = 0,
    presigned: bool = False,
) -> Backend:
    """Put a backend together. Nothing is contacted yet.

    Raises
    ------
    InputError
        If the backend is unknown or an option does not go with it.
    ConfigError
        If a setting that the backend needs is missing.
    """
    if name not in BACKENDS:
        raise InputError(unknown_name("backend", name, BACKENDS))
    if delay is not None and name != "simulated":
        raise InputError(f"delay= is a law of the simulated clock; backend {name!r} has a real one")
    release: Callable[[], Any] = lambda: None  # noqa: E731 - a default, not a definition
    logs_hint = ""
    if store is None and name == "processes":
        folder = Path(tempfile.mkdtemp(prefix="serverless-gc-"))
        store = LocalStore(folder)
        release = _remover(folder)
    elif store is None and name == "aws":
        store = _s3_store(settings, limits)
    elif store is None:
        store = MemoryStore()
    presign = _presigning(store, limits) if presigned else None
    store, store_stats = _guarded(store, injections)
    if invoker is None:
        invoker = _invoker(name, store, limits, settings, slowed=any(isinstance(i, Stragglers) for i in injections))
    if name == "aws":
        logs_hint = f"Logs: aws logs tail /aws/lambda/{settings['function']} --since 15m"
    if name == "simulated":
        model: StragglerModel = delay if delay is not None else LambdaLike()
        for injection in injections:
            if isinstance(injection, Stragglers):
                model = Injected(model, injection)
        faults = [injection for injection in injections if isinstance(injection, Faults)]
        for fault in faults:
            if fault.drop:  # an invoker that never answers would stop the clock
                model = Unanswered(model, fault)
        host: Host = VirtualHost(model, seed=seed)
        return Backend(store, inject(invoker, faults), host, store_stats, release, logs_hint, presign)
    guarded = RetryingInvoker(inject(invoker, injections))
    return Backend(store, guarded, AioHost(), store_stats, release, logs_hint, presign)


def _remover(folder: Path) -> Callable[[], None]:
    """Return what removes a folder in the process that made it, and does nothing in one forked from it."""
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def _presigning(store: Store, limits: Limits) -> Presign:
    """Return what gives a task its URLs."""
    while isinstance(store, StoreWrapper):
        store = store.inner
    if not isinstance(store, S3Store):
        raise InputError(
            f"presigned=True needs a store that can sign URLs, an S3Store; this is a {type(store).__name__}"
        )
    signing = store
    # A function that starts just before its attempt is given up runs on for its whole time.
    expires = math.ceil(2 * limits.function_timeout) + 60

    async def presign(task: Task) -> Task:
        return await with_urls(signing, task, expires=expires)

    return presign


def _invoker(name: str, store: Store, limits: Limits, settings: dict[str, Any], *, slowed: bool) -> Invoker:
    if name == "local":
        # A worker that is slow on purpose sleeps on its thread: the others must not queue behind it.
        return LocalInvoker(store, limits=limits, threads=max(SLEEPERS, os.cpu_count() or 1) if slowed else None)
    if name == "processes":
        return ProcessInvoker(store, limits=limits)
    if name == "simulated":
        return SimulatedInvoker(store)
    from serverless_gc.invoke.aws import LambdaInvoker

    return LambdaInvoker(
        settings["function"],
        region=settings["region"],
        concurrency=settings["concurrency"] or ACCOUNT_CONCURRENCY,
        limits=limits,
    )


def _s3_store(settings: dict[str, Any], limits: Limits) -> Store:
    if not settings["bucket"]:
        raise ConfigError(
            "backend 'aws' needs a bucket: pass bucket=, set SERVERLESS_GC_BUCKET, or put bucket = \"...\" "
            "into the settings file"
        )
    return S3Store(settings["bucket"], settings["prefix"], region=settings["region"], limits=limits)


def _guarded(store: Store, injections: Sequence[Injection]) -> tuple[Store, StoreStats]:
    """Wrap the store in what is injected and in retries; S3 brings its own."""
    for injection in injections:
        if isinstance(injection, Faults) and injection.touches_store():
            store = FaultyStore(store, injection)
    if isinstance(store, S3Store):
        return store, store.stats
    retrying = RetryingStore(store)
    return retrying, retrying.stats
