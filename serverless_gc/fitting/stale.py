"""Training on stale gradients: workers run on while the model moves, and nobody waits for the slowest.

Every task is the gradient of one worker's share at the model of its version. Consumed ones are summed up and scaled to
the whole data set: stochastic gradient descent with the workers' shares as batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.collect import Attempts, Collector
from serverless_gc.engine import Completion, Engine, RoundOutcome
from serverless_gc.engine.accounting import Counts
from serverless_gc.errors import InputError
from serverless_gc.fitting.loop import Loop
from serverless_gc.fitting.methods import iterate_of
from serverless_gc.fitting.result import Reason
from serverless_gc.gradient_data import GradientData
from serverless_gc.jobs import Job
from serverless_gc.observe import Report
from serverless_gc.observe.timeline import spans_of
from serverless_gc.optim.line_search import Searching
from serverless_gc.pipeline import INLINE_OPERAND
from serverless_gc.resources import Resources
from serverless_gc.training import Training
from serverless_gc.types import Array, Arrival, TaskSpec, Update, UpdateContext
from serverless_gc.wire import Task, pack_block

__all__ = ["StaleLoop"]

_OF_TASKS = ("loss", "reduction", "sample_weight")


@dataclass(slots=True, kw_only=True)
class StaleLoop(Loop):
    """One training under a policy that keeps tasks in flight."""

    async def _begin(self) -> None:
        data = self.data
        if not isinstance(data, GradientData):
            raise InputError(
                "policies that keep tasks in flight need a gradient code, whose results are gradients: the rounds of "
                f"{data.code.name!r} only mean something together; use KSync, or encode with a gradient code"
            )
        code = data.code
        if (
            not isinstance(code, GradientCode)
            or isinstance(code, CodedReduceCode)
            or code.fold > 1
            or np.iscomplexobj(code.generator)
            or code.generator.min() < 0
        ):
            raise InputError(
                f"stale gradients need a code whose results are sums of partition gradients: those of "
                f"{data.code.name!r} only make sense together; use code='frc', or 'bgc'"
            )
        if given := {"max_error", "wait", "on_undecodable"} & set(self.objective):
            raise InputError(f"{min(given)} does not go with a policy that keeps tasks in flight")
        await super(StaleLoop, self)._begin()
        if isinstance(self.rule, Searching):
            raise InputError(
                f"a line search compares exact values, and stale gradients have none: {self.plan.name} does not go "
                "with this policy; take 'gradient-descent', 'momentum' or 'adam' with lr="
            )

    async def _steps(self, bar: Any) -> Reason:
        data = self.data
        assert isinstance(data, GradientData)  # noqa: S101 - _begin has checked it
        assert self.policy is not None  # noqa: S101 - it is what brought us here
        objective = {name: self.objective[name] for name in _OF_TASKS if name in self.objective}
        res = await data.owner.resources()
        async with data.job(self.x, **objective) as (job, finish):
            work = _Work(res, job)
            engine = Engine(
                data.owner.policy_for(data.code, self.objective.get("deadline"), inner=self.policy(data.code)),
                data.code.n_workers,
                max_attempts=res.max_attempts,
                seed=self.seed,
                version=self.step,
            )
            training = Training(
                engine,
                res.host,
                work.run,
                self.x,
                aggregator=_Sum(data, finish, float(self.objective["l2"])),
                optimizer=self.rule,
                seed=self.seed,
            )
            training.state = self.state
            try:
                reason = await self._train(training, work, bar)
            finally:
                await training.close()
                await work.close()
        self.evaluations.spent(work.report(engine.counts), (), evaluations=0)
        if reason != "diverged":  # what came out is measured by one coded gradient
            self.last = await self.evaluations.at(self.w)
            self._note(*self.last)
        return reason

    def _note(self, value: float, gradient: Array) -> None:
        self._record(value + self.plan.l1 * float(np.abs(self.w).sum()), float(np.linalg.norm(gradient)))

    async def _train(self, training: Training, work: _Work, bar: Any) -> Reason:
        while self.step < self.limits.max_rounds:
            step = await anext(training.steps(1))
            self.evaluations.spent(work.report(step.outcome.counts, step.outcome), step.staleness)
            value, gradient = step.update.meta["value"], step.update.direction
            self.last, before = (value, gradient), self.w
            if not (np.isfinite(value) and np.isfinite(step.x).all()):
                return "diverged"
            self._note(value, gradient)
            self.x, self.state = step.x, training.state
            self.w = iterate_of(self.rule, self.x, self.state)
            self._stepped()
            bar.update(1)
            reason = await self._finish_step(before)
            if reason is not None or self.evaluations.time_is_up:
                return reason or "seconds"
        return "rounds"


class _Sum:
    """Adds up what arrived and scales it to all partitions."""

    def __init__(self, data: GradientData, finish: Callable[[Array], tuple[float, Array]], l2: float) -> None:
        code = data.code
        counted = code.generator.sum(axis=1)
        self._covered = [float(counted[list(code.placement(slot))].sum()) for slot in range(code.n_workers)]
        self._k = code.k
        self._finish = finish
        self._l2 = l2

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:
        """Estimate value and gradient."""
        covered = sum(self._covered[arrival.task.slot] for arrival in arrivals)
        total = np.sum([arrival.body for arrival in arrivals], axis=0)
        value, gradient = self._finish(total * (self._k / covered))
        value += 0.5 * self._l2 * float(np.vdot(ctx.x, ctx.x))
        return Update(gradient + self._l2 * ctx.x, n_eff=covered, meta={"value": value})


class _Work:
    """Does tasks at the model of their version, through the session's invoker and store."""

    def __init__(self, res: Resources, job: Job) -> None:
        self._res = res
        self._job = job
        self._number = next(res.rounds)
        self._base = f"{res.prefix}/round/{self._number:07d}"
        self._attempts = Attempts(
            res.store, res.invoker, res.attempt_timeout, self._task, lambda *_: None, presign=res.presign
        )
        self._points: dict[int, tuple[Array, str]] = {}  # version -> the model, and its key if it is stored
        self._users: Counter[int] = Counter()
        self._over: list[str] = []  # objects that nobody needs any more
        self._reported = (0, 0)
        self._alive = ""

    async def run(self, task: TaskSpec, x: Array) -> Completion:
        """Do one attempt."""
        version = task.version
        self._users[version] += 1
        try:
            if version not in self._points:
                await self._publish(version, x)
            value, stats = await self._attempts.run(task)
            assert value is not None  # noqa: S101 - nothing stays in the store
        finally:
            self._users[version] -= 1
        self._over.append(self._key(task))
        code = self._job.code
        messages = code.placement(task.slot)
        collector = Collector(code, self._job.shape, self._job.dtype)
        collector.file_all(messages, value)
        return Completion(np.sum([collector.values[message] for message in messages], axis=0), stats=stats)

    async def _publish(self, version: int, x: Array) -> None:
        key = ""
        if x.nbytes > INLINE_OPERAND:
            key = f"{self._base}/model/{version:07d}"
            await self._res.store.put(key, pack_block(x))
        self._alive = await self._res.alive()
        self._points[version] = (x, key)

    def _key(self, task: TaskSpec) -> str:
        return f"{self._base}/{task.task_id}"

    def _task(self, spec: TaskSpec) -> Task:
        job, res = self._job, self._res
        x, key = self._points[spec.version]
        reply_bytes = job.shape[0] * job.dtype.itemsize * len(job.code.placement(spec.slot))
        room = res.limits.reply_bytes * 3 // 4 - INLINE_OPERAND
        return Task(
            run=res.run,
            round=self._number,
            task_id=spec.task_id,
            slot=spec.slot,
            attempt=spec.attempt,
            kernel=job.kernel,
            blocks=tuple(job.blocks(spec)),
            result_key=self._key(spec),
            store=res.store.url,
            operand=None if key else x,
            operand_key=key,
            inline_limit=reply_bytes if reply_bytes <= room else 0,
            cancel_key=f"{self._base}/cancel",
            alive_key=self._alive,
            params=dict(job.params(spec)),
        )

    def report(self, counts: Counts, outcome: RoundOutcome | None = None) -> Report:
        """Account for the tasks that ended; what they stored is deleted."""
        idle = [version for version in self._points if not self._users[version]]
        for version in idle[:-1]:
            _, key = self._points.pop(version)
            self._over += [key] if key else []
        self._res.chore(self._res.store.delete(self._over))
        self._over = []
        sent, got = self._attempts.bytes_up, self._attempts.counts["bytes_down"]
        before, self._reported = self._reported, (sent, got)
        code = self._job.code
        return Report(
            issued=counts.issued,
            used=counts.used,
            surplus=counts.surplus,
            failed=counts.failed,
            voided=counts.voided,
            elapsed=0.0 if outcome is None else outcome.duration,
            rounds=0 if outcome is None else 1,
            awaited=counts.used,
            retries=counts.retries,
            late=counts.late,
            duplicates=counts.copies,
            failures={str(kind): n for kind, n in counts.failures.items()},
            code=code.name,
            n_workers=code.n_workers,
            k=code.k,
            bytes_up=sent - before[0],
            bytes_down=got - before[1],
            spans=() if outcome is None else tuple(spans_of(outcome.records, self._number)),
        )

    async def close(self) -> None:
        """Tell workers that are still at it to stop."""
        await self._res.store.put(f"{self._base}/cancel", b"")
