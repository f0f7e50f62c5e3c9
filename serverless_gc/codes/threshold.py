"""How many results a code needs, and how accurate an answer is then: counted on orders of arrival."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Certifier, Code
from serverless_gc.codes.received import MOST_EXTRA, doubtful_error, guarded_error
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Array

__all__ = [
    "Threshold",
    "arrivals_needed",
    "count_arrivals",
    "count_awaited",
    "first_messages",
    "neighbours_needed",
    "predicted_errors",
    "results_awaited",
]

_LOOKED_AT, _LOOKED_AT_CLOSELY = 20, 100
"""Orders whose predicted errors say whether rounds wait for accuracy at all, and for how many results if they do."""

_GLANCE = 16
"""Arrivals between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Arrivals at the first decodable moment, over uniformly random orders of the workers.

    Attributes
    ----------
    mean, p95, worst
        Of the trials.
    standard_error
        Of the mean.
    never
        Share of the trials in which not even all workers sufficed; they are not in the other figures.
    trials
        How many there were.
    """

    mean: float
    p95: float
    worst: int
    standard_error: float
    never: float
    trials: int


def count_arrivals(code: Code, trials: int = 200, seed: int = 0, *, seconds: float = np.inf) -> Array:
    """Draw random orders of the workers, and count for each how many were needed.

    After so many ``seconds`` it stops, even in the middle of one.

    Returns
    -------
    array
        ``(trials,)`` integers, fewer if time was up; ``n_workers + 1`` where all of them together did not suffice.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> count_arrivals(get("mds", n_workers=10, k=7), trials=3)
    array([7, 7, 7])
    """
    placed = [code.placement(worker) for worker in range(code.n_workers)]
    needed = np.full(trials, code.n_workers + 1)
    end = time.monotonic() + seconds
    for trial, order in enumerate(_orders(code, trials, seed)):
        tracker = code.tracker()
        for arrived, worker in enumerate(order, 1):
            if arrived % _GLANCE == 1 and time.monotonic() > end:
                return needed[:trial]
            if any([bool(tracker.add(message)) for message in placed[worker]]):  # noqa: C419 - all are added
                needed[trial] = arrived
                break
    return needed


def _orders(code: Code, trials: int, seed: int) -> Iterator[list[int]]:
    """Draw random orders of the workers."""
    if trials < 1:
        raise InputError(f"trials must be at least 1, got {trials}")
    rng = np.random.default_rng(check_seed(seed))
    return (rng.permutation(code.n_workers).tolist() for _ in range(trials))


def count_awaited(code: Code, trials: int = 200, seed: int = 0, dtype: DTypeLike = np.float64) -> Array:
    """Count for random orders of the workers what a round waits for that wants its answer accurate.

    With approximate codes it does not wait until they can decode if they say so, `results_awaited`. A round that can
    decode waits for all that can come while the answer would be doubtful, and for at most two results
    more while its predicted error is above the code's guard; see `serverless_gc.policies.UntilDecodable`.

    Parameters
    ----------
    code
        Any code.
    trials, seed
        As of `count_arrivals`.
    dtype
        Of the messages.

    Returns
    -------
    array
        ``(3, n)``: results until the answer is determined (`count_arrivals`), until it is no longer doubtful, and until
        it is as accurate as a round waits for. Where hardly any round waits, ``n`` is ``trials`` and the rows are
        equal; where some do, a hundred orders are enough.

    Examples
    --------
    Some evaluations of a polynomial lie too close together:

    >>> from serverless_gc.codes import get
    >>> count_awaited(get("matdot", n_workers=30), trials=4).tolist()
    [[9, 9, 9, 9], [9, 9, 9, 9], [9, 9, 9, 10]]
    """
    needed = count_arrivals(code, trials, seed)
    if not code.exact:
        needed = np.minimum(needed, results_awaited(code))
    rows = np.tile(needed, (3, 1))
    guard = guarded_error(code.guard, dtype)
    if guard is None or not isinstance(code, Certifier):
        return rows
    for trial, order in enumerate(_orders(code, min(trials, _LOOKED_AT_CLOSELY), seed)):
        if trial == _LOOKED_AT and np.array_equal(rows[0], rows[2]):
            return rows
        if needed[trial] <= code.n_workers:
            rows[1:, trial] = _waiting(code, order, int(needed[trial]), guard, dtype)
    return rows[:, :_LOOKED_AT_CLOSELY]


def _waiting(code: Certifier, order: Sequence[int], decodes: int, guard: float, dtype: DTypeLike) -> tuple[int, int]:
    """Return after how many results the answer is no longer doubtful, and how many a round awaits."""
    assert isinstance(code, Code)  # noqa: S101 - the protocol adds to it
    messages = [message for worker in order[:decodes] for message in code.placement(worker)]
    sure = None
    for arrived in range(decodes, len(order) + 1):
        predicted = code.certify(messages, dtype).predicted_error
        if sure is None and predicted <= doubtful_error(dtype):
            sure = arrived
        if sure is not None and (predicted <= guard or arrived >= decodes + MOST_EXTRA):
            return sure, arrived
        messages += code.placement(order[arrived]) if arrived < len(order) else ()
    return len(order), len(order)


def arrivals_needed(code: Code, trials: int = 200, seed: int = 0, *, seconds: float = np.inf) -> Threshold:
    """Estimate the recovery threshold by the tracker, without values.

    Parameters
    ----------
    code
        Any code.
    trials
        Random orders drawn.
    seed
        Of the orders.
    seconds
        After which to stop; with no trial done, the figures are not numbers.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> found = arrivals_needed(get("replication", n_workers=4, k=2), trials=2000)
    >>> abs(found.mean - 7 / 3) < 3 * found.standard_error, found.worst
    (True, 3)
    """
    needed = count_arrivals(code, trials, seed, seconds=seconds)
    reached = needed[needed <= code.n_workers]
    if not len(reached):
        return Threshold(np.nan, np.nan, code.n_workers + 1, np.nan, 1.0 if len(needed) else np.nan, len(needed))
    return Threshold(
        mean=float(reached.mean()),
        p95=float(np.percentile(reached, 95)),
        worst=int(reached.max()),
        standard_error=float(reached.std(ddof=1) / np.sqrt(len(reached))) if len(reached) > 1 else 0.0,
        never=1 - len(reached) / len(needed),
        trials=len(needed),
    )


def predicted_errors(
    code: Code, trials: int = 20, seed: int = 0, dtype: DTypeLike = np.float64, *, seconds: float = np.inf
) -> Array | None:
    """Predict the relative error of answers at the first decodable moment, over random orders of the workers.

    That of rounding, and of approximate codes that of the approximation: what the largest error of a sum of partitions
    relative to it is if their gradients are alike or independent, and that of blocks for a linear function of them.

    Returns
    -------
    array or None
        ``(trials,)``, fewer if ``seconds`` were up, for messages of this dtype; None if the code does not predict it.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> predicted_errors(get("uncoded", n_workers=4), trials=2)
    array([0., 0.])
    """
    if not isinstance(code, Certifier):
        return None
    begun = time.monotonic()
    certificates: list[Certificate] = []
    for order in _orders(code, trials, seed):
        if certificates and time.monotonic() - begun > seconds:
            break
        certificates.append(code.certify(first_messages(code, order), dtype))
    errors = np.array([certificate.predicted_error for certificate in certificates])
    if not code.exact:
        each = np.array([certificate.error for certificate in certificates])
        errors += np.sqrt(each / code.k if code.target == "sum" else each)
    return errors


def results_awaited(code: Code) -> int:
    """Return after how many results a round closes whatever its answer's error: all, of exact codes.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> results_awaited(get("mds", n_workers=8)), results_awaited(get("berrut", n_workers=8))
    (8, 6)
    """
    awaited = None if code.exact else getattr(code, "awaited", None)
    return awaited or code.n_workers


def first_messages(code: Code, order: Iterable[int]) -> list[int]:
    """Return the messages of the workers in this order, up to the first decodable moment.

    Of approximate codes up to the results that they wait for by default.
    """
    tracker, messages = code.tracker(), list[int]()
    for worker in islice(order, results_awaited(code)):
        for message in code.placement(worker):
            messages.append(message)
            tracker.add(message)
        if tracker.decodable:
            break
    return messages


def neighbours_needed(code: Code, *, seconds: float = np.inf) -> tuple[float, int | None] | None:
    """Let the workers answer in the order of their numbers, as on a machine where none is late.

    Returns
    -------
    predicted, arrivals
        The predicted relative error at the first decodable moment, and the results a round waits for: until it is no
        longer doubtful; None if that was not found in so many seconds. None if the code does not predict it, or nothing
        was found in that time.

    Examples
    --------
    Where points lie close together little is left of a polynomial's digits:

    >>> from serverless_gc.codes import get
    >>> predicted, arrivals = neighbours_needed(get("matdot", n_workers=100))
    >>> predicted > 1, arrivals > 20
    (True, True)
    """
    if not isinstance(code, Certifier):
        return None
    end = time.monotonic() + seconds
    messages = first_messages(code, takewhile(lambda _: time.monotonic() < end, range(code.n_workers)))
    if time.monotonic() >= end:
        return None
    predicted = found = code.certify(messages).predicted_error
    arrivals = 1 + next(worker for worker in range(code.n_workers) if messages[-1] in code.placement(worker))
    while not found <= doubtful_error(np.float64) and arrivals < code.n_workers:
        if time.monotonic() > end:
            return predicted, None
        messages += code.placement(arrivals)
        arrivals += 1
        found = code.certify(messages).predicted_error
    return predicted, arrivals
