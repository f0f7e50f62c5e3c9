"""Gradients at the model of a task's version, for trainings that keep tasks in flight while the model moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.engine import Completion, Counts, RoundOutcome
from serverless_gc.observe import Report
from serverless_gc.observe.timeline import spans_of
from serverless_gc.rounds.collect import Attempts, Collector
from serverless_gc.rounds.jobs import Job
from serverless_gc.rounds.operands import INLINE_OPERAND
from serverless_gc.rounds.resources import Resources
from serverless_gc.types import Array, TaskSpec
from serverless_gc.wire import Task, pack_block

__all__ = ["GradientTasks"]

_Point: TypeAlias = tuple[int, int]  # version and row of a model


class GradientTasks:
    """Does tasks at the model of their version, through the session's invoker and store.

    Parameters
    ----------
    res
        The session's.
    job
        What a task computes at a point; its operand is not used.
    row
        Task to the row of the model at which it computes; None for the whole model.
    """

    def __init__(self, res: Resources, job: Job, row: Callable[[TaskSpec], int] | None = None) -> None:
        self._res = res
        self._job = job
        self._row = row
        self._inline = INLINE_OPERAND
        self.number = next(res.rounds)
        self._base = f"{res.prefix}/round/{self.number:07d}"
        self._attempts = Attempts(
            res.store, res.invoker, res.attempt_timeout, self._task, lambda *_: None, presign=res.presign
        )
        self._points: dict[_Point, tuple[Array, str]] = {}  # the model there, and its key if it is stored
        self._users: Counter[_Point] = Counter()
        self._over: list[str] = []  # objects that nobody needs any more
        self._reported: Counter[str] = Counter()
        self._alive = ""

    async def run(self, task: TaskSpec, x: Array) -> Completion:
        """Do one attempt."""
        point = self._point(task)
        self._users[point] += 1
        self._alive = await self._res.alive()
        try:
            if point not in self._points:
                await self._publish(point, x if self._row is None else x[point[1]])
            value, stats = await self._attempt(task)
        finally:
            self._users[point] -= 1
        self._over.append(self._key(task))
        return self._completed(task, x, value, stats)

    async def _attempt(self, task: TaskSpec) -> tuple[Array, Mapping[str, Any]]:
        """Have a worker do it; return its value and what it said about it."""
        value, stats = await self._attempts.run(task)
        assert value is not None  # noqa: S101 - nothing stays in the store
        return value, stats

    def _completed(self, task: TaskSpec, x: Array, value: Array, stats: Mapping[str, Any]) -> Completion:  # noqa: ARG002 - others need x
        """Make a result of what a worker sent."""
        code = self._job.code
        messages = code.placement(task.slot)
        collector = Collector(code, self._job.shape, self._job.dtype)
        collector.file_all(messages, value)
        return Completion(np.sum([collector.values[message] for message in messages], axis=0), stats=stats)

    def _point(self, task: TaskSpec) -> _Point:
        return task.version, 0 if self._row is None else self._row(task)

    async def _publish(self, point: _Point, x: Array) -> None:
        key = ""
        if x.nbytes > self._inline:
            key = f"{self._base}/model/{point[0]:07d}-{point[1]}"
            if key not in self._res.once:  # all tasks of a round want it at the same time
                self._attempts.bytes_up += x.nbytes
            await self._res.put_once(key, pack_block(x))
        self._points[point] = (x, key)

    def _mark(self, version: int) -> str:  # noqa: ARG002 - one for all
        """Return the key of the object that tells workers to stop."""
        return f"{self._base}/cancel"

    def _needed(self, point: _Point) -> bool:
        """Whether a model must be kept though no task in flight is about it."""
        return self._users[point] > 0

    def _key(self, task: TaskSpec) -> str:
        return f"{self._base}/{task.task_id}"

    def _task(self, spec: TaskSpec) -> Task:
        job, res = self._job, self._res
        x, key = self._points[self._point(spec)]
        return Task(
            run=res.run,
            round=self.number,
            task_id=spec.task_id,
            slot=spec.slot,
            attempt=spec.attempt,
            kernel=job.kernel,
            blocks=tuple(job.blocks(spec)),
            result_key=self._key(spec),
            store=res.store.url,
            operand=None if key else x,
            operand_key=key,
            inline_limit=res.limits.reply_bytes * 3 // 4 - INLINE_OPERAND,
            cancel_key=self._mark(spec.version),
            alive_key=self._alive,
            params=dict(job.params(spec)),
        )

    def report(self, counts: Counts, outcome: RoundOutcome | None = None) -> Report:
        """Account for the tasks that ended; what they stored is deleted."""
        idle = [point for point in self._points if not self._needed(point)]
        for point in idle[:-1]:
            _, key = self._points.pop(point)
            if key:
                self._over.append(key)
                self._res.once.pop(key, None)
        self._res.chore(self._res.discard(self._over))
        self._over = []
        so_far = Counter({**self._attempts.counts, "bytes_up": self._attempts.bytes_up})
        new, self._reported = so_far - self._reported, so_far
        reads, writes = self._res.store_requests()
        code = self._job.code
        return Report.of(
            counts,
            elapsed=0.0 if outcome is None else outcome.duration,
            rounds=0 if outcome is None else 1,
            awaited=counts.used,
            code=code.name,
            n_workers=code.n_workers,
            k=code.k,
            recovered=new["recovered"],
            slow_downs=new["slow_downs"],
            by_reference=new["by_reference"],
            reads=reads + new["reads"],
            writes=writes + new["writes"],
            bytes_up=new["bytes_up"],
            bytes_down=new["bytes_down"],
            simulated=self._res.simulated,
            spans=() if outcome is None else tuple(spans_of(outcome.records, self.number)),
        )

    async def close(self) -> None:
        """Tell workers that are still at it to stop."""
        await self._res.store.put(self._mark(0), b"")
