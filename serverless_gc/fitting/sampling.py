"""The loop of a stochastic training: steps of the driver, what they cost, and when to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from serverless_gc.data.gradient import GradientData
from serverless_gc.errors import NotDecodableError
from serverless_gc.fitting.delays import Delays
from serverless_gc.fitting.result import Account, Fit, Iterate, Reason, said
from serverless_gc.fitting.sample_tasks import SampleTasks
from serverless_gc.fitting.training import Step, Training
from serverless_gc.fitting.unseen import Unseen
from serverless_gc.observe import Report

__all__ = ["StochasticLoop"]

_MEMORY = 0.8
"""How much of the running mean of the loss lasts from one update to the next."""


class StochasticLoop:
    """One training.

    Parameters
    ----------
    data
        Where the objective is stored.
    training, tasks
        What is run.
    name
        The scheme's.
    rounds, seconds
        When it ends: after so many updates, or so many seconds on the backend's clock.
    callback, progress
        As for `minimize_stochastic`.
    """

    def __init__(
        self,
        data: GradientData,
        training: Training,
        tasks: SampleTasks,
        name: str,
        *,
        rounds: int,
        seconds: float | None,
        callback: Callable[[Iterate], Any] | None,
        progress: bool,
    ) -> None:
        self._data = data
        self._training = training
        self._tasks = tasks
        self._name = name
        self._rounds = rounds
        self._seconds = seconds
        self._callback = callback
        self._progress = progress
        self._account = Account()
        self._report = Report(rounds=0)
        self._delays = Delays(training.engine.policy.leftover)
        self._unseen = Unseen(training.host)
        self._history: list[tuple[float, float, float, float]] = []  # value, norm, seconds, billed seconds
        self._direction = np.full_like(training.x, np.nan)
        self._loss = self._weight = 0.0

    async def run(self) -> Fit:
        """Step until there is a reason to stop."""
        training, tasks = self._training, self._tasks
        try:
            with tqdm(
                total=self._rounds, desc=self._name, unit="step", disable=None if self._progress else True
            ) as bar:
                reason = await self._steps(bar)
        except NotDecodableError as error:
            if tasks.overflowed:
                reason = "diverged"
            else:
                if tasks.traceback:
                    error.add_note(f"The first failure of the loss, on its worker:\n{tasks.traceback}")
                raise
        finally:
            await training.close()
            given_up = tasks.report(training.engine.counts)
            await tasks.close()
        self._spend(given_up, (), samples=0.0)
        return self._fit(reason)

    async def _steps(self, bar: Any) -> Reason:
        async for step in self._training.steps(self._rounds):
            value = self._account_for(step)
            self._direction = step.update.direction
            norm = float(np.linalg.norm(self._direction))
            account = self._account
            self._history.append((value, norm, account.seconds, account.billed_seconds))
            bar.update(1)
            bar.set_postfix_str(f"value {value:.6g}", refresh=False)
            if not np.isfinite(step.x).all():
                return "diverged"
            if self._callback is not None:
                told = Iterate(step.version + 1, step.x, value, norm, account.seconds, account.billed_seconds)
                if await asyncio.to_thread(self._callback, told):
                    return "callback"
            if self._seconds is not None and account.seconds >= self._seconds:
                return "seconds"
        return "rounds"

    def _account_for(self, step: Step) -> float:
        """Enter what an update cost; return the mean loss of its samples, NaN if nobody told it."""
        outcome = step.outcome
        report = self._tasks.report(outcome.counts, outcome)
        self._spend(report, step.staleness, samples=self._tasks.samples(outcome), updates=1)
        self._delays.add(report)
        told = [(a.work_done, a.stats["loss"]) for a in outcome.arrivals if a.work_done > 0 and "loss" in a.stats]
        if not told:
            return self._history[-1][0] if self._history else np.nan
        value = float(np.average([loss for _, loss in told], weights=[work for work, _ in told]))
        self._loss = _MEMORY * self._loss + (1.0 - _MEMORY) * value
        self._weight = _MEMORY * self._weight + (1.0 - _MEMORY)
        self._training.engine.loss_estimate = self._loss / self._weight
        return value

    def _spend(self, report: Report, staleness: tuple[int, ...], *, samples: float, updates: int = 0) -> None:
        account = self._account.with_report(
            report, staleness, evaluations=len(staleness), samples=samples, **self._unseen.news()
        )
        self._account = replace(account, updates=account.updates + updates)
        self._report = self._report.merge(report.without_spans())

    def _fit(self, reason: Reason) -> Fit:
        values, norms, seconds, billed = np.array(self._history, dtype=np.float64).reshape(-1, 4).T.copy()
        return Fit(
            w=np.array(self._training.x),
            value=float(values[-1]) if len(values) else np.nan,
            gradient=np.array(self._direction),
            values=values,
            gradient_norms=norms,
            seconds=seconds,
            billed_seconds=billed,
            steps=len(values),
            reason=reason,
            message=said(reason, "the steps are too long, give a smaller lr=" if reason == "diverged" else ""),
            method=self._name,
            account=self._account,
            report=self._data.reported(self._report),
            trace=self._delays.trace(),
        )
