"""How many results a code needs: counted on random orders of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Array

__all__ = ["Threshold", "arrivals_needed", "count_arrivals"]


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
