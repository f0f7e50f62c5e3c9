"""The loop of a training: evaluate, look whether to stop, step, save."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from serverless_gc.errors import InputError
from serverless_gc.fitting.evaluate import Evaluations, TimeIsUp
from serverless_gc.fitting.methods import Plan, gradient_mapping, iterate_of
from serverless_gc.fitting.result import Account, Fit, Iterate, Reason, said
from serverless_gc.fitting.saved import Place, random_states, restore_random_states
from serverless_gc.fitting.smoothness import Data, smoothness
from serverless_gc.optim.checkpoint import Checkpoint
from serverless_gc.optim.line_search import Searching
from serverless_gc.policies.waiting import PolicyFactory
from serverless_gc.types import Array, FloatArray, Update

__all__ = ["Limits", "Loop"]

_BEYOND = 1e20
"""By how much an objective may exceed its first value before its run counts as lost."""

_RECORDED = ("values", "gradient_norms", "seconds", "billed_seconds")


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop, and how often to save."""

    max_rounds: int
    tolerance: float
    change: float
    every: int


@dataclass(slots=True, kw_only=True)
class Loop:
    """One training."""

    data: Data
    plan: Plan
    w0: Array
    objective: Mapping[str, Any]
    limits: Limits
    settings: Mapping[str, str]
    place: Place | None
    resume: bool
    callback: Callable[[Iterate], Any] | None
    progress: bool
    evaluations: Evaluations
    policy: PolicyFactory | None
    seed: int
    sketch_rows: int | None = None
    step: int = 0
    x: Array = field(init=False)
    w: Array = field(init=False)
    known: tuple[float, Array] | None = None
    last: tuple[float, Array] | None = None
    rule: Any = field(init=False)
    state: Any = field(init=False)
    bound: float | None = None
    saved: Checkpoint | None = None  # what was taken up
    resumed_at: int | None = None
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _RECORDED})
    detail: str = ""

    async def run(self) -> Fit:
        """Step until there is a reason to stop."""
        try:
            await self._begin()
            with tqdm(
                total=self.limits.max_rounds,
                initial=self.step,
                desc=self.plan.name,
                unit="step",
                disable=None if self.progress else True,
            ) as bar:
                reason = await self._steps(bar)
            if self.place is not None and self.last is not None and reason != "diverged":
                await self._save_end(self.place)
        finally:
            if self.place is not None:
                await self.place.close()
        return self._fit(reason)

    # -- beginning -----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        res = await self.data.owner.resources()
        self.evaluations.watch(res.host)
        saved = None if self.place is None else await self.place.read()  # also to learn what must not be replaced
        if not self.resume:
            saved = None
        if saved is not None and self.place is not None:
            saved.check(self.settings, self.place.where)
            self.bound = saved.meta["bound"]
            self.evaluations.account = Account.from_dict(saved.meta["account"])
        elif self.plan.needs_smoothness:
            await self._estimate()
        self.rule = self.plan.make(self.bound)
        self.evaluations.needing(self.needs)
        if self.place is not None and not _storable(self.rule.init(self.w0)):
            raise InputError(
                f"a checkpoint needs an optimizer whose state is a tuple of arrays, and that of {self.plan.name} is not"
            )
        if saved is None:
            self.x = self.w = _frozen(self.w0)
            self.state = self.rule.init(self.x)
            return
        self.step = self.resumed_at = saved.step
        self.x, self.state = _frozen(saved.x), saved.state
        self.w = _frozen(iterate_of(self.rule, self.x, self.state))
        self.saved = saved
        self.last = (saved.meta["last_value"], saved.known[0])
        self.known = (saved.meta["known_value"], saved.known[1]) if len(saved.known) > 1 else None
        if len(saved.known) > 2:
            self.evaluations.remember(self.x, saved.known[2])
        self.history = {name: saved.history[name].tolist() for name in _RECORDED}
        restore_random_states(res, saved.meta["random"])

    async def _estimate(self) -> None:
        """Estimate by how much the gradient can change, for the step length."""
        found = await smoothness(
            self.data,
            self.objective["loss"],
            l2=float(self.objective["l2"]),
            scale=1.0 if self.objective["reduction"] == "sum" else 1.0 / self.data.n_rows,
            sample_weight=self.objective.get("sample_weight"),
            deadline=self.objective.get("deadline"),
        )
        if found is not None:
            self.bound, cost = found
            self.evaluations.spent(cost, evaluations=0)

    # -- stepping ------------------------------------------------------------------------------------

    async def _steps(self, bar: Any) -> Reason:
        try:
            while True:
                reason = await self._look()
                if reason is None:
                    reason = await self._advance()
                    bar.update(1)
                    bar.set_postfix_str(f"value {self.history['values'][-1]:.6g}", refresh=False)
                if reason is not None:
                    return reason
        except TimeIsUp:
            return "seconds"

    async def _look(self) -> Reason | None:
        """Evaluate where the next step begins, and see whether one is needed."""
        if self.known is None and self.step >= self.limits.max_rounds:
            return "rounds"
        if not np.isfinite(self.x).all():
            return "diverged"
        value, gradient = self.last = self.known or await self.evaluations.at(self.x)
        self.known = self.last
        mapping, settled = gradient_mapping(self.rule, self.plan.prox, self.x, gradient, self.step)
        norm = float(np.linalg.norm(mapping))
        first = abs(self.history["values"][0]) if self.history["values"] else abs(value)
        if not (abs(value) <= _BEYOND * (1 + first) and np.isfinite(norm)):
            return "diverged"
        self._record(value + self.plan.l1 * float(np.abs(self.x).sum()), norm)
        if norm <= self.limits.tolerance * self.history["gradient_norms"][0]:
            self.w = _frozen(settled)
            return "gradient"
        if self.step >= self.limits.max_rounds:
            return "rounds"
        return "seconds" if self.evaluations.time_is_up else None

    def _record(self, value: float, norm: float) -> None:
        account = self.evaluations.account
        for name, figure in zip(_RECORDED, (value, norm, account.seconds, account.billed_seconds), strict=True):
            del self.history[name][self.step :]  # a run taken up again has been here
            self.history[name].append(figure)

    async def _advance(self) -> Reason | None:
        """Make a step from where value and gradient are known."""
        assert self.known is not None  # noqa: S101 - _look has just been here
        value, gradient = self.known
        before = self.w
        meta = {self.needs: await self._curvature()} if self.needs else {}
        if isinstance(self.rule, Searching):
            stuck = await self._search(value, gradient, {"meta": meta} if meta else {})
            if stuck:
                self.detail = stuck
                return "stuck"
        else:
            x, self.state = self.rule.step(self.x, Update(gradient, meta=meta), self.state, self.step)
            self.x, self.known = _frozen(x), None
        self._stepped()
        if not np.isfinite(self.x).all():
            return "diverged"
        self.w = _frozen(iterate_of(self.rule, self.x, self.state))
        return await self._finish_step(before)

    def _stepped(self) -> None:
        self.step += 1
        account = self.evaluations.account
        self.evaluations.account = replace(account, updates=account.updates + 1)

    @property
    def needs(self) -> str:
        """What the rule has to know of a point besides value and gradient; empty if nothing."""
        return str(getattr(self.rule, "needs", ""))

    async def _curvature(self) -> FloatArray:
        """Ask for the curvature where the step begins, by a sketch of its own."""
        return await self.evaluations.curvature(self.x, self.needs, (self.seed, self.step), self.sketch_rows)

    async def _search(self, value: float, gradient: Array, told: Mapping[str, Any]) -> str:
        trials = self.rule.search(self.x, value, gradient, self.state, **told)
        try:
            point = next(trials)
            while True:
                # Far out a trial may not even be a number; it counts as infinitely bad.
                finite = np.isfinite(point).all()
                point = trials.send(
                    await self.evaluations.at(point) if finite else (np.inf, np.full_like(gradient, np.nan))
                )
        except StopIteration as stop:
            end = stop.value
        self.x, self.state, self.known = _frozen(end.x), end.state, end.known
        stuck: str = end.stuck
        return stuck

    async def _finish_step(self, before: Array) -> Reason | None:
        if self.place is not None and self.step % self.limits.every == 0:
            await self._save(self.place)
        if self.callback is not None and await asyncio.to_thread(self.callback, self._iterate()):
            return "callback"
        moved = float(np.linalg.norm(self.w - before))
        if moved <= self.limits.change * float(np.linalg.norm(self.w)):
            return "change"
        return None

    def _iterate(self) -> Iterate:
        account = self.evaluations.account
        return Iterate(
            self.step,
            self.w,
            self.history["values"][-1],
            self.history["gradient_norms"][-1],
            account.seconds,
            account.billed_seconds,
        )

    # -- ending --------------------------------------------------------------------------------------

    async def _save_end(self, place: Place) -> None:
        """Keep how it ended."""
        await self._save(place)

    async def _pending(self) -> tuple[dict[str, Any], Mapping[int, Array]]:
        """Return what else the next steps depend on, as JSON types, and the models that it refers to."""
        return {"random": random_states(await self.data.owner.resources())}, {}

    async def _save(self, place: Place) -> None:
        pending, models = await self._pending()
        assert self.last is not None  # noqa: S101 - there was a step
        known = [] if self.known is None else [self.known[1]]
        if known and self.needs:
            along = self.evaluations.remembered(self.x)  # else it would take another round
            known += [] if along is None else [along]
        await place.write(
            Checkpoint(
                self.step,
                self.x,
                tuple(self.state),
                (self.last[1], *known),
                {name: np.array(figures) for name, figures in self.history.items()},
                self.settings,
                {
                    "bound": self.bound,
                    "last_value": self.last[0],
                    "known_value": None if self.known is None else self.known[0],
                    "account": self.evaluations.account.to_dict(),
                    **pending,
                },
                models,
            )
        )

    def _fit(self, reason: Reason) -> Fit:
        value, gradient = self.last if self.last is not None else (np.nan, np.full_like(self.w0, np.nan))
        values, norms, seconds, billed = (np.array(self.history[name]) for name in _RECORDED)
        detail = self.detail
        if reason == "diverged":
            detail = "the steps are too long, give a smaller lr=, or lr='backtracking' where there is a line search"
        return Fit(
            w=np.array(self.w),
            value=float(values[-1]) if len(values) else value,
            gradient=np.array(gradient),
            values=values,
            gradient_norms=norms,
            seconds=seconds,
            billed_seconds=billed,
            steps=self.step,
            reason=reason,
            message=said(reason, detail),
            method=self.plan.name,
            account=self.evaluations.account,
            report=self.evaluations.report,
            resumed_at=self.resumed_at,
            trace=self.evaluations.delays.trace(),
        )


def _storable(state: Any) -> bool:
    return isinstance(state, tuple) and all(isinstance(part, np.ndarray) for part in state)


def _frozen(x: Array) -> Array:
    """Return a read-only copy: callbacks and rules share it."""
    x = np.array(x, copy=True)
    x.setflags(write=False)
    return x
