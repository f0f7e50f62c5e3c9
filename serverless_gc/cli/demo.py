"""``serverless-gc demo``: the same training run by five ways of dealing with stragglers, on real data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.inject import Stragglers
from serverless_gc.observe import Report
from serverless_gc.policies import Speculate, UntilDecodable
from serverless_gc.session import Session
from serverless_gc.stragglers import Trace
from serverless_gc.types import FloatArray, WaitPolicy

__all__ = ["METHODS", "Method", "Run", "train"]

L2 = 1e-4


@dataclass(frozen=True, slots=True)
class Method:
    """One way of dealing with stragglers: a code, its redundancy, and when to stop waiting."""

    title: str
    code: str
    rate: float
    policy: Callable[[Code], WaitPolicy] = UntilDecodable


def _speculative(code: Code) -> WaitPolicy:
    return Speculate(UntilDecodable(code))


METHODS: tuple[Method, ...] = (
    Method("wait for all", "uncoded", 1.0),
    Method("speculative", "uncoded", 1.0, _speculative),
    Method("replication x2", "replication", 0.5),
    Method("MDS", "mds", 0.75),
    Method("polar", "polar", 0.75),
)


@dataclass(slots=True)
class Run:
    """What one method did: a report and two errors per iteration, and where training ended."""

    method: Method
    n_workers: int
    k: int
    reports: list[Report] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> FloatArray:
        """Seconds of each iteration."""
        return np.array([report.elapsed for report in self.reports])

    def total(self, name: str) -> int:
        """Sum one count over all iterations."""
        return int(sum(getattr(report, name) for report in self.reports))


def train(
    X: FloatArray,
    y: FloatArray,
    method: Method,
    *,
    k: int,
    iterations: int,
    inject: Sequence[Stragglers],
    backend: str | None,
    on_iteration: Callable[[], Any] = lambda: None,
    **session_options: Any,
) -> Run:
    """Train a logistic regression by Nesterov's method; every gradient is a coded one.

    Parameters
    ----------
    X, y
        ``(n, p)`` and ``(n,)`` with labels 0 and 1.
    method
        How to deal with stragglers.
    k
        Number of source blocks; every method multiplies the same blocks.
    iterations
        Number of gradients.
    inject
        Stragglers to inject.
    backend
        Where to run.
    on_iteration
        Called after each iteration.
    **session_options
        Further options of `Session`.

    Returns
    -------
    Run
        With the decode error of each gradient against NumPy's at the same point.
    """
    n_workers = round(k / method.rate)
    run = Run(method, n_workers, k)
    with Session(backend, inject=inject, policy=method.policy, **session_options) as session:
        data = session.encode(X, y, code=method.code, n_workers=n_workers, k=k)
        if backend == "aws":
            session.warm(n_workers)  # cold starts come once, whatever the method: they are in none of its figures
        step = 1.0 / (0.25 * largest_eigenvalue(X) + L2)
        w = ahead = np.zeros(X.shape[1])
        for t in range(iterations):
            value, gradient, report = data.value_and_gradient(
                ahead, loss="logistic", reduction="mean", l2=L2, with_report=True
            )
            reference = reference_gradient(X, y, ahead)
            run.reports.append(report)
            run.losses.append(value)
            run.errors.append(float(np.linalg.norm(gradient - reference) / np.linalg.norm(reference)))
            before, w = w, ahead - step * gradient
            ahead = w + t / (t + 3) * (w - before)
            on_iteration()
    return run


def reference_gradient(X: FloatArray, y: FloatArray, w: FloatArray) -> FloatArray:
    """Compute the mean logistic gradient in plain NumPy."""
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    gradient: FloatArray = X.T @ (p - y) / len(y) + L2 * w
    return gradient


def largest_eigenvalue(X: FloatArray, sweeps: int = 12) -> float:
    """Estimate the largest eigenvalue of ``X.T X / n`` by power iteration, with a margin of 5 %."""
    v = np.random.default_rng(0).standard_normal(X.shape[1])
    size = 1.0
    for _ in range(sweeps):
        v /= float(np.linalg.norm(v))
        v = X.T @ (X @ v) / X.shape[0]
        size = float(np.linalg.norm(v))
    return 1.05 * size


def save_trace(run: Run, path: Path) -> None:
    """Save the delays of every attempt, for `serverless_gc.stragglers.Trace.load`."""
    Trace.from_reports(run.reports, method=run.method.title, workers=run.n_workers).save(path)


def save_timeline(run: Run, path: Path) -> None:
    """Draw the rounds of an iteration that took a typical time."""
    from serverless_gc.observe import plot_timeline

    typical = int(np.argsort(run.seconds)[len(run.seconds) // 2])
    report = run.reports[typical]
    plot_timeline(
        report.spans,
        path,
        title=f"{run.method.title}: iteration {typical + 1}, {run.n_workers} workers, {run.k} blocks",
        decodable=report.decodable,
        outside="injected delay and start",
    )
