"""Execution environments of one function: reused while warm, last one first, replaced when the deployment changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from serverless_gc.testing.rig.environment import Environment, Outcome
from serverless_gc.testing.rig.launch import Launcher
from serverless_gc.testing.rig.logs import Log, stream_name
from serverless_gc.testing.rig.moto_seam import Function
from serverless_gc.testing.rig.settings import Settings

__all__ = ["InitFailed", "Lease", "Pool"]


class InitFailed(Exception):
    """An environment could not load its handler."""

    def __init__(self, outcome: Outcome, output: str, log: Log) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome
        self.output = output
        self.log = log


@dataclass(slots=True)
class Lease:
    """An environment for one invocation; ``reuse`` says whether it may have another."""

    environment: Environment
    key: tuple[Any, ...]
    version: str
    log: Log
    cold: bool = True
    reuse: bool = True


@dataclass(slots=True)
class Pool:
    """All environments of one function, of all its versions.

    Attributes
    ----------
    started
        Environments that were started so far.
    """

    settings: Settings
    launcher: Launcher
    starting: asyncio.Semaphore
    started: int = 0
    all: set[Environment] = field(default_factory=set)
    leases: dict[Environment, Lease] = field(default_factory=dict)
    _idle: list[Lease] = field(default_factory=list)
    _current: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def lease(self, function: Function) -> AsyncIterator[Lease]:
        """Give an environment for one invocation: a warm one, or a new one.

        Raises
        ------
        InitFailed
            If a new one does not start.
        Unrunnable
            If the deployment cannot run.
        """
        lease = await self._warm(function) or await self._start(function)
        try:
            yield lease
        finally:
            lease.cold = False
            current = self._current.get(lease.version) == lease.key
            if lease.reuse and current and lease.environment.usable:
                self._idle.append(lease)
            else:
                await self._close(lease.environment)

    async def close(self) -> None:
        """End all environments."""
        for environment in tuple(self.all):
            environment.kill()
        for environment in tuple(self.all):
            await self._close(environment)
        self._idle.clear()

    def kill(self) -> int:
        """Kill the processes of all environments; returns their number."""
        living = [environment for environment in self.all if environment.pid and environment.usable]
        for environment in living:
            environment.kill()
        return len(living)

    async def _warm(self, function: Function) -> Lease | None:
        key, version = function.key, function.version
        if self._current.get(version) != key:
            self._current[version] = key
            stale = [lease for lease in self._idle if lease.version == version]
            self._idle = [lease for lease in self._idle if lease.version != version]
            for lease in stale:
                await self._close(lease.environment)
        for position in range(len(self._idle) - 1, -1, -1):
            lease = self._idle[position]
            if lease.key != key:
                continue
            del self._idle[position]
            # The last caller has its answer before the runtime asks for more.
            if await lease.environment.ready():
                return lease
            await self._close(lease.environment)
            return await self._warm(function)
        return None

    async def _start(self, function: Function) -> Lease:
        log = Log(function.region, f"/aws/lambda/{function.name}", stream_name(function.version))
        async with self.starting:
            process = await self.launcher.prepare(function, log.stream)
            environment = Environment(process, self.settings.limits.reply_bytes)
            self.all.add(environment)
            self.started += 1
            try:
                failure = await environment.start(self.settings.init_timeout)
            except BaseException:
                await self._close(environment)
                raise
        if failure is not None:
            await self._close(environment)
            raise InitFailed(failure, environment.take_output(), log)
        lease = Lease(environment, function.key, function.version, log)
        self.leases[environment] = lease
        return lease

    async def _close(self, environment: Environment) -> None:
        await environment.close()
        self.all.discard(environment)
        self.leases.pop(environment, None)
