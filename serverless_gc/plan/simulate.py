"""Rounds of a method in virtual time, through the same engine and policies as real ones; nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.plan.methods import Method
from serverless_gc.plan.results import Rounds
from serverless_gc.stragglers import Loaded
from serverless_gc.types import FloatArray, StragglerModel, Timing

__all__ = ["Ramped", "simulate"]


@dataclass(frozen=True, slots=True)
class _Equal:
    """The same for a law of independent times and equal work, which is drawn many at a time."""

    model: StragglerModel
    work: float

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        return self.model.sample(slot, k, work * self.work, rng)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        totals: FloatArray = self.model.totals(work * self.work, rng, shape)  # type: ignore[attr-defined]
        return totals


@dataclass(frozen=True, slots=True)
class Ramped:
    """A delay model whose first attempts start one after another, as a driver sends them.

    Parameters
    ----------
    model
        Law of a task that starts at once.
    per_second
        Invocations that the driver sends a second.
    """

    model: StragglerModel
    per_second: float

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:
        """Draw the timing of a first attempt."""
        timing = self.model.sample(slot, k, work, rng)
        return replace(timing, start=timing.start + slot / self.per_second)


def simulate(
    method: Method,
    delay: StragglerModel,
    *,
    rounds: int = 200,
    seed: int = 0,
    unit: float | None = None,
    dtype: DTypeLike = np.float64,
) -> Rounds:
    """Run rounds of a method in virtual time.

    Parameters
    ----------
    method
        Code and waiting rule, `serverless_gc.plan.method`.
    delay
        Law of a task of one unit of work, or a replayed trace.
    rounds
        How many.
    seed
        Of the delays. Equal seeds give equal runs.
    unit
        Share of the data that is one unit of work; an ``n_workers``-th if None, so that redundancy costs time.
    dtype
        Of the messages: in single precision rounds wait for accuracy more often.

    Raises
    ------
    InputError
        If no round had an answer, or ``rounds`` is less than 1.

    Examples
    --------
    >>> from serverless_gc.plan import method
    >>> from serverless_gc.stragglers import Constant
    >>> simulate(method("mds", 8, 6), Constant(3.0), rounds=5).mean
    4.0
    """
    rounds = check_whole("rounds", rounds, 1)
    code = method.code
    unit = 1.0 / code.n_workers if unit is None else unit
    work = method.work(unit)
    host = VirtualHost(_loaded(delay, work), seed=seed)
    engine = Engine(method.policy(dtype), code.n_workers, keep_records=False, seed=seed)
    seconds, billed, awaited = [], [], []
    failed = issued = copies = events = 0
    ignored = 0.0
    for outcome in host.simulate(engine, rounds):
        counts, ran_on = outcome.counts, host.ignored_seconds - ignored
        ignored = host.ignored_seconds
        issued += counts.issued
        copies += counts.copies
        events += counts.issued + counts.used + counts.surplus
        if outcome.error is not None:
            failed += 1
            continue
        seconds.append(outcome.duration)
        billed.append(counts.busy_used + counts.busy_wasted + ran_on)
        awaited.append(counts.used + counts.surplus)
    return Rounds(
        name=method.name,
        n_workers=code.n_workers,
        k=code.k,
        seconds=np.array(seconds),
        billed=np.array(billed),
        awaited=np.array(awaited, dtype=np.float64),
        work=float(work.mean()) * unit * issued / rounds,
        failed=failed,
        copies=copies / rounds,
        events=events,
    )


def _loaded(delay: StragglerModel, work: FloatArray) -> StragglerModel:
    if hasattr(delay, "totals") and np.all(work == work[0]):
        return _Equal(delay, float(work[0]))
    return Loaded(delay, work)
