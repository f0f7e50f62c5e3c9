"""Several codes in the same rounds: how exact, how fast and how much work each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Certifier, Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.engine import RoundOutcome
from serverless_gc.errors import InputError
from serverless_gc.inject import Selection
from serverless_gc.plan.rounds import shares, simulated_rounds
from serverless_gc.types import StragglerModel

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one code did in the compared rounds.

    Attributes
    ----------
    name
        Of the code.
    n_workers, k
        Workers, and partitions or source blocks.
    load
        Partitions or blocks that a worker computes, in the mean over workers.
    exact
        Whether the code gives exact answers by nature.
    error_mean, error_worst
        Squared decode error per partition, ``err(F) / k``, over the rounds; 0 for codes of blocks.
    error_bound
        Closed-form bound of it over all sets of stragglers that the waiting rule leaves out; None if none is known.
    rounding
        Largest predicted relative error of an answer by rounding; None for codes whose answers are as accurate as the
        messages (`Code.guard`).
    arrivals_mean, arrivals_p95
        Results that went into the answer, in a tree those of all levels.
    seconds_mean, seconds_p99
        Time from the start of a round to its answer.
    work
        Passes over the data that the issued tasks make together: 1 for uncoded computation.
    given_up
        Rounds without an answer; they are in none of the other figures.
    """

    name: str
    n_workers: int
    k: int
    load: float
    exact: bool
    error_mean: float
    error_worst: float
    error_bound: float | None
    rounding: float | None
    arrivals_mean: float
    arrivals_p95: float
    seconds_mean: float
    seconds_p99: float
    work: float
    given_up: int


def compare(
    codes: Iterable[Code],
    *,
    delay: StragglerModel | None = None,
    stragglers: Selection = 0.1,
    slowdown: float = 10.0,
    rounds: int = 200,
    seed: int = 0,
    unit: float | None = None,
    dtype: DTypeLike = np.float64,
) -> tuple[Comparison, ...]:
    """Run every code through the same simulated rounds.

    A task takes time in proportion to the share of the data that its worker holds. Exact codes wait until they can
    decode, approximate ones for `GradientCode.awaited` results or until the answer is exact. In a round the same
    workers are slow for all codes. A worker answers once, with all its messages: what partial results would gain is
    not shown.

    Parameters
    ----------
    codes
        Gradient codes and codes of blocks, in any mixture.
    delay
        Law of a task of one unit of work; a second and an exponential part of half a second if None.
    stragglers, slowdown
        Fraction of tasks, or the workers, that are so many times slower.
    rounds
        Rounds for each code.
    seed
        Of delays and stragglers.
    unit
        Share of the data that is one unit of work; if None what a worker holds uncoded, with as many workers as the
        first code.
    dtype
        Of the messages: in single precision rounds wait for accuracy more often.

    Returns
    -------
    tuple of Comparison
        One for each code, in the order given.

    Raises
    ------
    InputError
        If a number is out of range, or a code never had an answer.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> codes = [get("uncoded", n_workers=20), get("mds", n_workers=20, k=15)]
    >>> uncoded, mds = compare(codes, stragglers=0.1, rounds=50)
    >>> mds.arrivals_mean, round(mds.work, 3), mds.seconds_mean < uncoded.seconds_mean / 3
    (15.0, 1.333, True)
    """
    rounds = check_whole("rounds", rounds, 1)
    listed = list(codes)
    if unit is None and listed:
        unit = 1 / listed[0].n_workers
    options: Any = {
        "delay": delay,
        "stragglers": stragglers,
        "slowdown": slowdown,
        "seed": seed,
        "unit": unit,
        "dtype": dtype,
    }
    return tuple(_summed_up(code, simulated_rounds(code, rounds, **options), dtype) for code in listed)


def _summed_up(code: Code, outcomes: Iterable[RoundOutcome], dtype: DTypeLike) -> Comparison:
    share = shares(code)
    seconds, arrivals, errors, work, rounds = [], [], [], [], 0
    rounding: float | None = None
    for outcome in outcomes:
        rounds += 1
        if outcome.error is not None:
            continue
        slots = [arrival.task.slot for arrival in outcome.arrivals]
        seconds.append(outcome.duration)
        arrivals.append(len(slots))
        errors.append(_error(code, slots))
        if code.guard is not None and isinstance(code, Certifier):
            messages = [message for slot in slots for message in code.placement(slot)]
            rounding = max(rounding or 0.0, code.certify(messages, dtype).predicted_error)
        work.append(outcome.counts.issued * float(share.mean()))
    if not seconds:
        raise InputError(
            f"{code.name!r} with n_workers={code.n_workers} and k={code.k} had no answer in any of {rounds} rounds: "
            "take more workers for as many blocks, or another seed"
        )
    return Comparison(
        name=code.name,
        n_workers=code.n_workers,
        k=code.k,
        load=float(share.mean()) * code.k,
        exact=code.exact,
        error_mean=float(np.mean(errors)),
        error_worst=max(errors),
        error_bound=_bound(code),
        rounding=rounding,
        arrivals_mean=float(np.mean(arrivals)),
        arrivals_p95=float(np.percentile(arrivals, 95)),
        seconds_mean=float(np.mean(seconds)),
        seconds_p99=float(np.percentile(seconds, 99)),
        work=float(np.mean(work)),
        given_up=rounds - len(seconds),
    )


def _error(code: Code, slots: Sequence[int]) -> float:
    if not isinstance(code, GradientCode):
        return 0.0
    messages = [message for slot in slots for message in code.placement(slot)]
    return code.weights(messages).error / code.k


def _bound(code: Code) -> float | None:
    if code.exact or not isinstance(code, GradientCode):
        return 0.0
    bound = code.worst_error(code.n_workers - (code.awaited or code.n_workers))
    return None if bound is None else bound / code.k
