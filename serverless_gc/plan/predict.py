"""How long one computation of a candidate takes, and what is billed for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.threshold import count_arrivals, count_awaited
from serverless_gc.plan.memory import Problem, passes
from serverless_gc.plan.methods import Method
from serverless_gc.plan.montecarlo import Independent, sample_rounds
from serverless_gc.plan.platform import Platform
from serverless_gc.plan.results import Rounds
from serverless_gc.stragglers import LambdaLike, ShiftedExponential
from serverless_gc.types import FloatArray

__all__ = ["Prediction", "default_delay", "predict"]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Sampled computations: one or two coded rounds each.

    Attributes
    ----------
    rounds
        The coded rounds.
    seconds
        ``(n,)``: of whole computations, decoding excluded.
    work
        Passes over the data that all tasks of a computation make.
    """

    rounds: tuple[Rounds, ...]
    seconds: FloatArray
    work: float

    @property
    def failed(self) -> float:
        """Share of rounds in which not even all results sufficed."""
        each = [one.failed / (one.failed + one.seconds.size) for one in self.rounds]
        return max(each)

    @property
    def awaited(self) -> float:
        """Results awaited in a round, on average."""
        return float(np.mean([one.awaited.mean() for one in self.rounds]))


def predict(
    method: Method,
    problem: Problem,
    platform: Platform,
    delay: Independent,
    unit: float,
    *,
    draws: int,
    orders: int,
    seed: int = 0,
    closely: bool = True,
) -> Prediction:
    """Sample the computation; ``draws`` is the number of delays drawn in all, ``orders`` that of orders of arrival.

    Looked at ``closely``, rounds wait for accurate answers too, and not only until they can decode.
    ``delay`` is the law of one task that multiplies a share ``unit`` of the matrix once. A task that computes whole
    gradients goes through its share twice.
    """
    steps = passes(problem, method.code)
    needed = (
        count_awaited(method.code, orders, seed, problem.dtype)
        if closely
        else count_arrivals(method.code, orders, seed)
    )
    count = max(200, draws // (method.code.n_workers * len(steps)))
    sampled = tuple(
        sample_rounds(
            method,
            delay,
            rounds=count,
            seed=seed + i,
            unit=unit / step.factor,
            per_second=platform.invocations_per_second,
            concurrency=platform.concurrency,
            needed=needed,
        )
        for i, step in enumerate(steps)
    )
    least = min(one.seconds.size for one in sampled)
    work = sum(one.work * step.factor for one, step in zip(sampled, steps, strict=True))
    return Prediction(sampled, np.sum([one.seconds[:least] for one in sampled], axis=0), work)


def default_delay(problem: Problem, n_workers: int, platform: Platform) -> LambdaLike:
    """Law of a task that multiplies an ``n_workers``-th of the matrix once, where nothing was measured.

    Start, store latency and cold starts of `LambdaLike`; four fifths of the computation are certain, the rest is
    exponential.
    """
    seconds = problem.nbytes / n_workers / (platform.scan_bytes_per_second * platform.processors)
    operand = problem.cols * problem.columns * 8
    return LambdaLike(
        ShiftedExponential(shift=0.8 * seconds, rate=5.0 / seconds),
        read_bytes=float(operand),
        write_bytes=problem.rows / n_workers * problem.columns * 8,
    )
