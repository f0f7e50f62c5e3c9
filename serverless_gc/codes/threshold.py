"""How many results a code needs, and how accurate an answer is then: counted on orders of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.base import Certifier, Code
from serverless_gc.codes.received import doubtful_error
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Array

__all__ = ["Threshold", "arrivals_needed", "count_arrivals", "first_messages", "neighbours_needed", "predicted_errors"]


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
    """

    mean: float
    p95: float
    worst: int
    standard_error: float
    never: float


def count_arrivals(code: Code, trials: int = 200, seed: int = 0) -> Array:
    """Draw random orders of the workers, and count for each how many were needed.

    Returns
    -------
    array
        ``(trials,)`` integers; ``n_workers + 1`` where all of them together did not suffice.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> count_arrivals(get("mds", n_workers=10, k=7), trials=3)
    array([7, 7, 7])
    """
    if trials < 1:
        raise InputError(f"trials must be at least 1, got {trials}")
    rng = np.random.default_rng(check_seed(seed))
    placed = [code.placement(worker) for worker in range(code.n_workers)]
    needed = np.full(trials, code.n_workers + 1)
    for trial in range(trials):
        tracker = code.tracker()
        for arrived, worker in enumerate(rng.permutation(code.n_workers).tolist(), 1):
            if any([bool(tracker.add(message)) for message in placed[worker]]):  # noqa: C419 - all are added
                needed[trial] = arrived
                break
    return needed


def arrivals_needed(code: Code, trials: int = 200, seed: int = 0) -> Threshold:
    """Estimate the recovery threshold by the tracker, without values.

    Parameters
    ----------
    code
        Any code.
    trials
        Random orders drawn.
    seed
        Of the orders.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> found = arrivals_needed(get("replication", n_workers=4, k=2), trials=2000)
    >>> abs(found.mean - 7 / 3) < 3 * found.standard_error, found.worst
    (True, 3)
    """
    needed = count_arrivals(code, trials, seed)
    reached = needed[needed <= code.n_workers]
    if not len(reached):
        return Threshold(np.nan, np.nan, code.n_workers + 1, np.nan, 1.0)
    return Threshold(
        mean=float(reached.mean()),
        p95=float(np.percentile(reached, 95)),
        worst=int(reached.max()),
        standard_error=float(reached.std(ddof=1) / np.sqrt(len(reached))) if len(reached) > 1 else 0.0,
        never=1 - len(reached) / trials,
    )


def predicted_errors(code: Code, trials: int = 20, seed: int = 0) -> Array | None:
    """Predict the relative error of answers at the first decodable moment, over random orders of the workers.

    Returns
    -------
    array or None
        ``(trials,)``, in double precision; None if the code does not predict it.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> predicted_errors(get("uncoded", n_workers=4), trials=2)
    array([0., 0.])
    """
    if not isinstance(code, Certifier):
        return None
    rng = np.random.default_rng(seed)
    orders = [first_messages(code, rng.permutation(code.n_workers).tolist()) for _ in range(trials)]
    return np.array([code.certify(messages).predicted_error for messages in orders])


def first_messages(code: Code, order: Iterable[int]) -> list[int]:
    """Return the messages of the workers in this order, up to the first decodable moment."""
    tracker, messages = code.tracker(), list[int]()
    for worker in order:
        for message in code.placement(worker):
            messages.append(message)
            tracker.add(message)
        if tracker.decodable:
            break
    return messages


def neighbours_needed(code: Code) -> tuple[float, int] | None:
    """Let the workers answer in the order of their numbers, as on a machine where none is late.

    Returns
    -------
    predicted, arrivals
        The predicted relative error at the first decodable moment, and the results a round waits for: until it is no
        longer doubtful. None if the code does not predict it.

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
    messages = first_messages(code, range(code.n_workers))
    predicted = found = code.certify(messages).predicted_error
    arrivals = 1 + next(worker for worker in range(code.n_workers) if messages[-1] in code.placement(worker))
    while not found <= doubtful_error(np.float64) and arrivals < code.n_workers:
        messages += code.placement(arrivals)
        arrivals += 1
        found = code.certify(messages).predicted_error
    return predicted, arrivals
