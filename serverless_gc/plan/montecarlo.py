"""Completion times of one round, many at once, from sampled arrival orders.

For independent delays of equal work every order of arrival is equally likely and independent of the times: a round
takes ``X_(T:n)``, with ``T`` from the threshold distribution of the code. Otherwise the order of each round is put
to the code's tracker, in a tree that of each parent's children.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.codes.threshold import count_awaited, results_awaited
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.plan.methods import Method
from serverless_gc.plan.results import Rounds
from serverless_gc.policies import Speculate
from serverless_gc.stragglers import Law
from serverless_gc.types import Array, FloatArray

__all__ = ["Independent", "expected_seconds", "sample_rounds"]

_CHUNK = 2_000_000
"""Delays held in memory at once."""

_ORDERS = 200
"""Random orders from which a threshold distribution is estimated."""


@runtime_checkable
class Independent(Protocol):
    """A delay model whose tasks are independent of slot, round and one another."""

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks of ``work`` units."""
        ...


@dataclass(frozen=True, slots=True)
class _Starts:
    """When tasks start: one after another, and as many at a time as the account allows."""

    per_second: float
    concurrency: int

    def apply(self, seconds: FloatArray) -> FloatArray:
        """Return when each task ends; ``seconds`` is ``(rounds, n)``."""
        n = seconds.shape[1]
        sent = np.arange(n) / self.per_second
        if n <= self.concurrency:
            return seconds + sent
        return np.array([self._queued(row, sent.tolist()) for row in seconds.tolist()])

    def _queued(self, seconds: list[float], sent: list[float]) -> list[float]:
        running: list[float] = []
        ends = []
        for task, at in zip(seconds, sent, strict=True):
            if len(running) < self.concurrency:
                end = at + task
                heapq.heappush(running, end)
            else:
                end = max(at, running[0]) + task
                heapq.heapreplace(running, end)
            ends.append(end)
        return ends


def sample_rounds(
    method: Method,
    delay: Independent,
    *,
    rounds: int = 10_000,
    seed: int = 0,
    unit: float | None = None,
    per_second: float = np.inf,
    concurrency: int | None = None,
    needed: Array | None = None,
    dtype: DTypeLike = np.float64,
) -> Rounds:
    """Sample the completion times of many rounds without running the engine.

    Rounds of codes that lose digits wait for accuracy, too. What workers of unequal work would be waited for beyond the
    first decodable moment is not counted.

    Parameters
    ----------
    method
        Code and waiting rule.
    delay
        Law of a task of one unit of work.
    rounds
        How many.
    seed
        Equal seeds give equal delays for every method: comparisons are fair, and differences precise.
    unit
        Share of the data that is one unit of work; an ``n_workers``-th if None.
    per_second
        Invocations that the driver sends a second.
    concurrency
        How many run at once; no limit if None.
    needed
        Draws of the number of results that a round waits for, `serverless_gc.codes.threshold.count_awaited`, or that
        the code needs, `serverless_gc.codes.threshold.count_arrivals`; made here if None.
    dtype
        Of the messages.

    Raises
    ------
    InputError
        If ``rounds`` is less than 1 or ``seed`` negative, the delays depend on the slot, or no round has an answer.

    Examples
    --------
    >>> from serverless_gc.plan import method
    >>> from serverless_gc.stragglers import Exponential
    >>> found = sample_rounds(method("mds", 10, 7), Exponential(2.0), seed=1, unit=1 / 7)
    >>> abs(found.mean - Exponential(2.0).mean_order_stat(7, 10)) < 3 * found.standard_error
    True
    """
    rounds = check_whole("rounds", rounds, 1)
    if not isinstance(delay, Independent):
        raise InputError(f"{delay!r} depends on slot or round: run it through serverless_gc.plan.simulate")
    code, n = method.code, method.code.n_workers
    unit = 1.0 / n if unit is None else unit
    work = method.work(unit)
    starts = None
    if np.isfinite(per_second) or (concurrency is not None and concurrency < n):
        starts = _Starts(per_second, n if concurrency is None else concurrency)
    rng, orders = np.random.default_rng(check_seed(seed)), np.random.default_rng((seed, 1))
    if not np.all(work == work[0]) or isinstance(code, CodedReduceCode):
        needed = None  # the order depends on who holds how much, or on who begins when
    elif needed is None:
        needed = count_awaited(code, _ORDERS, seed, dtype)
    parts = []
    for first in range(0, rounds, max(1, _CHUNK // n)):
        size = min(rounds - first, max(1, _CHUNK // n))
        parts.append(_sampled(method, delay, work, (size, n), starts, needed, (rng, orders)))
    seconds, billed, awaited, issued = (np.concatenate(each) for each in zip(*parts, strict=True))
    ok = np.isfinite(seconds)
    tasks = float(issued.mean())
    return Rounds(
        name=method.name,
        n_workers=n,
        k=code.k,
        seconds=seconds[ok],
        billed=billed[ok],
        awaited=awaited[ok],
        work=float(work.mean()) * unit * tasks,
        failed=int((~ok).sum()),
        copies=tasks - n if method.speculative else 0.0,
        events=int(rounds * tasks + awaited[ok].sum()),
    )


def _sampled(
    method: Method,
    delay: Independent,
    work: FloatArray,
    shape: tuple[int, int],
    starts: _Starts | None,
    needed: Array | None,
    rngs: tuple[np.random.Generator, np.random.Generator],
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return seconds (infinite without an answer), billed seconds, results awaited and tasks of each round."""
    rng, orders = rngs
    size, n = shape
    seconds = _draw(delay, work, rng, shape)
    if isinstance(method.code, CodedReduceCode):
        return _up_the_tree(method.code, seconds, starts)
    ends = seconds if starts is None else starts.apply(seconds)
    if method.speculative:
        return _with_copies(method, delay, float(work[0]), seconds, ends, rng)
    if needed is None:
        at, done = _by_tracker(method.code, ends)
    else:
        at, done = _awaited(ends, np.atleast_2d(needed)[:, orders.integers(needed.shape[-1], size=size)])
    waiting = ends - seconds >= done[:, None]  # never started: the round was over
    billed = np.where(waiting, 0.0, seconds).sum(axis=1)
    return done, billed, np.minimum(at, n).astype(np.float64), np.full(size, float(n))


def _draw(delay: Independent, work: FloatArray, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    if np.all(work == work[0]):
        return delay.totals(float(work[0]), rng, shape)
    seconds = np.empty(shape)
    for amount in np.unique(work):
        mine = work == amount
        seconds[:, mine] = delay.totals(float(amount), rng, (shape[0], int(mine.sum())))
    return seconds


def _order_stat(ends: FloatArray, at: Array) -> FloatArray:
    """Return the ``at[i]``-th smallest of row ``i``; infinite where ``at[i]`` exceeds the row."""
    n = ends.shape[1]
    places = np.unique(np.minimum(at, n)) - 1
    ordered = np.partition(ends, places.tolist(), axis=1) if len(places) <= 4 else np.sort(ends, axis=1)
    picked = ordered[np.arange(len(ends)), np.minimum(at, n) - 1]
    return np.where(at > n, np.inf, picked)


def _awaited(ends: FloatArray, needed: Array) -> tuple[Array, FloatArray]:
    """Return how many results each round took, and when it closed; ``needed`` has a column of counts for each."""
    at = needed[0]
    done = _order_stat(ends, at)
    if len(needed) == 1 or np.array_equal(at, needed[-1]):
        return at, done
    _, sure, enough = needed
    # While the answer is doubtful a round waits for whatever comes, then not longer than it took to decode.
    until = np.maximum(_order_stat(ends, sure), 2 * done)
    late = _order_stat(ends, enough) > until
    arrived = np.clip((ends <= until[:, None]).sum(axis=1), sure, enough)
    return np.where(late, arrived, enough), np.minimum(_order_stat(ends, enough), until)


def _by_tracker(code: Code, ends: FloatArray) -> tuple[Array, FloatArray]:
    placed = [code.placement(worker) for worker in range(code.n_workers)]
    at = np.full(len(ends), code.n_workers + 1 if code.exact else results_awaited(code))
    for row, order in enumerate(np.argsort(ends, axis=1).tolist()):
        if row == _ORDERS and not code.exact and (at == results_awaited(code)).all():
            break  # an approximate code whose answers are not exact before it stops
        tracker = code.tracker()
        for arrived, worker in enumerate(order[: results_awaited(code)], 1):
            for message in placed[worker]:
                tracker.add(message)
            if tracker.decodable:
                at[row] = arrived
                break
    return at, _order_stat(ends, at)


def _up_the_tree(
    code: CodedReduceCode, seconds: FloatArray, starts: _Starts | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Let leaves begin first, and every parent when its children suffice."""
    *parents, leaves = code.levels()
    ended = seconds.copy()
    if starts is not None:
        ended[:, leaves.start :] = starts.apply(seconds[:, leaves.start :])
    begun = ended - seconds
    for node in reversed([node for level in parents for node in level]):
        children = code.children(node)
        _, begun[:, node] = _by_tracker(code.inner, ended[:, children.start : children.stop])
        ended[:, node] = begun[:, node] + seconds[:, node]
    _, done = _by_tracker(code.inner, ended[:, : code.branching])
    ran = begun < done[:, None]
    billed = np.where(ran, seconds, 0.0).sum(axis=1)
    return done, billed, (ended <= done[:, None]).sum(axis=1, dtype=float), ran.sum(axis=1, dtype=float)


def _with_copies(
    method: Method, delay: Independent, work: float, seconds: FloatArray, ends: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Follow the rule of `Speculate` around an uncoded round: what is late by it gets one copy."""
    rule = method.policy()
    assert isinstance(rule, Speculate)  # noqa: S101 - what the method says it is
    size, n = ends.shape
    enough = max(int(np.ceil(rule.quantile * n)), 3)
    if enough > n:
        return ends.max(axis=1), seconds.sum(axis=1), np.full(size, float(n)), np.full(size, float(n))
    known = np.partition(ends, enough - 1, axis=1)[:, enough - 1]
    late = np.maximum(rule.factor * known, rule.min_seconds)[:, None]
    copied = ends > late
    again = np.where(copied, delay.totals(work, rng, ends.shape), 0.0)
    done = np.where(copied, np.minimum(ends, late + again), ends)
    issued = n + copied.sum(axis=1, dtype=float)
    return done.max(axis=1), (seconds + again).sum(axis=1), np.full(size, float(n)), issued


def expected_seconds(method: Method, law: Law, *, trials: int = 2000, seed: int = 0) -> float:
    """Mean of one round by order statistics, averaged over the threshold distribution; equal ``law`` for every task.

    Codes that lose digits are waited for until the answer is accurate, in double precision, however long two more
    results may take.

    Raises
    ------
    InputError
        If late tasks are copied, workers wait for others, or not even all results suffice in some of the trials.

    Examples
    --------
    >>> from serverless_gc.plan import method
    >>> from serverless_gc.stragglers import Exponential
    >>> round(expected_seconds(method("mds", 10, 7), Exponential(2.0)), 6)
    0.547817
    """
    n = method.code.n_workers
    if method.speculative or isinstance(method.code, CodedReduceCode):
        raise InputError("rounds with backup copies and rounds of a tree have no closed form: use sample_rounds")
    at, counts = np.unique(count_awaited(method.code, trials, seed)[-1], return_counts=True)
    if at[-1] > n:
        raise InputError(f"{method.name!r}: not even all {n} results suffice in some orders, the mean is infinite")
    times = [law.mean_order_stat(int(k), n) for k in at]
    return float(np.dot(times, counts) / counts.sum())
