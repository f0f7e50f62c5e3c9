"""Training on stale gradients: workers run on while the model moves, and nobody waits for the slowest.

Every task is the gradient of one worker's share at the model of its version. Consumed ones are summed up and scaled to
the whole data set: stochastic gradient descent with the workers' shares as batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.data.gradient import GradientData
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.fitting.gradient_tasks import GradientTasks
from serverless_gc.fitting.loop import Loop
from serverless_gc.fitting.methods import iterate_of
from serverless_gc.fitting.result import Reason
from serverless_gc.fitting.saved import Place
from serverless_gc.fitting.training import Training
from serverless_gc.optim.line_search import Searching
from serverless_gc.policies.following import Following
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["StaleLoop", "gives_shares"]

_OF_TASKS = ("loss", "reduction", "sample_weight")


def gives_shares(code: Code) -> bool:
    """Whether each result of a code is a gradient by itself, of some of the rows: what stale gradients need.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> gives_shares(get("frc", n_workers=4)), gives_shares(get("polar", n_workers=4))
    (True, False)
    """
    return (
        isinstance(code, GradientCode)
        and not isinstance(code, CodedReduceCode)
        and code.fold == 1
        and not np.iscomplexobj(code.generator)
        and bool(code.generator.min() >= 0)
    )


@dataclass(slots=True, kw_only=True)
class StaleLoop(Loop):
    """One training under a policy that keeps tasks in flight."""

    running: tuple[Training, int] | None = None  # and the number of its round

    async def _save_end(self, place: Place) -> None:
        """Leave what was kept before the last tasks were given up."""

    async def _pending(self) -> tuple[dict[str, Any], Mapping[int, Array]]:
        pending, models = await super(StaleLoop, self)._pending()
        assert self.running is not None  # noqa: S101 - steps are saved while it runs
        training, number = self.running
        pending["random"]["round"] = number  # the tasks to come are of the same round
        told = None if _remembers(training.engine.policy) else training.in_flight()
        if told is not None:
            pending["in_flight"], models = told
        return pending, models

    async def _begin(self) -> None:
        data = self.data
        if not isinstance(data, GradientData):
            raise InputError(
                "policies that keep tasks in flight need a gradient code, whose results are gradients: the rounds of "
                f"{data.code.name!r} only mean something together; use KSync, or encode with a gradient code"
            )
        code = data.code
        if not gives_shares(code):
            raise InputError(
                f"stale gradients need a code whose results are sums of partition gradients: those of "
                f"{data.code.name!r} only make sense together; use code='frc', or 'bgc'"
            )
        if given := {"max_error", "wait", "on_undecodable"} & set(self.objective):
            raise InputError(f"{min(given)} does not go with a policy that keeps tasks in flight")
        await super(StaleLoop, self)._begin()
        if self.needs or isinstance(self.rule, Searching):
            raise InputError(
                f"line searches and second-order steps take exact values of one point, and stale gradients have none: "
                f"{self.plan.name} does not go with this policy; take 'gradient-descent', 'momentum' or 'adam' with lr="
            )

    async def _steps(self, bar: Any) -> Reason:
        data = self.data
        assert isinstance(data, GradientData)  # noqa: S101 - _begin has checked it
        assert self.policy is not None  # noqa: S101 - it is what brought us here
        objective = {name: self.objective[name] for name in _OF_TASKS if name in self.objective}
        res = await data.owner.resources()
        async with data.job(self.x, **objective) as (job, finish):
            work = GradientTasks(res, job)
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
            self.running = (training, work.number)
            told = None if self.saved is None else self.saved.meta.get("in_flight")
            if self.saved is not None and told is not None and isinstance(res.host, VirtualHost):
                training.take_up(told, self.saved.models)
            try:
                reason = await self._train(training, work, bar)
                if self.place is not None and reason != "diverged":
                    await self._save(self.place)  # before what is in flight is given up: the run may be prolonged
            finally:
                self.running = None
                await training.close()
                await work.close()
        self.evaluations.spent(work.report(engine.counts), (), evaluations=0)
        if reason != "diverged":  # what came out is measured by one coded gradient
            self.last = await self.evaluations.at(self.w)
            self._note(*self.last)
        return reason

    def _note(self, value: float, gradient: Array) -> None:
        self._record(value + self.plan.l1 * float(np.abs(self.w).sum()), float(np.linalg.norm(gradient)))

    async def _train(self, training: Training, work: GradientTasks, bar: Any) -> Reason:
        while self.step < self.limits.max_rounds:
            step = await anext(training.steps(1))
            cost = work.report(step.outcome.counts, step.outcome)
            rows = step.update.n_eff / self.data.code.k * self.data.n_rows
            self.evaluations.spent(cost, step.staleness, samples=rows)
            self.evaluations.delays.add(cost)
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


def _remembers(policy: Any) -> bool:
    """Whether a policy, or one that it follows, has a memory of its own, which no checkpoint holds."""
    while isinstance(policy, Following):
        policy = policy.inner
    return isinstance(policy, Stateful)


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
