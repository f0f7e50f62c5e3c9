"""How the decode error of a code grows with the number of workers that are missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code, Tracker
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import FloatArray

__all__ = ["ErrorCurve", "error_curve"]


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Decode error against the share of workers that are missing, over random sets of them.

    Attributes
    ----------
    name
        Of the code.
    fraction
        Share of workers missing, ascending.
    mean, worst
        Squared error per partition, ``err(F) / k``; for codes of blocks the share of blocks not determined.
    """

    name: str
    fraction: FloatArray
    mean: FloatArray
    worst: FloatArray


def error_curve(code: Code, *, most: float = 0.5, trials: int = 200, seed: int = 0) -> ErrorCurve:
    """Measure the decode error for every number of missing workers.

    In a tree a worker is missing too if too many of its children are.

    Parameters
    ----------
    code
        Any code.
    most
        Largest share of workers to leave out.
    trials
        Random orders in which workers arrive.
    seed
        Of the orders.

    Raises
    ------
    InputError
        If ``trials`` is less than 1, ``seed`` negative or ``most`` not in ``[0, 1]``.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> curve = error_curve(get("bibd", n_workers=7), most=0.3)
    >>> curve.fraction.round(3).tolist(), (7 * curve.mean).round(4).tolist()
    ([0.0, 0.143, 0.286], [0.0, 0.25, 0.5714])
    """
    trials = check_whole("trials", trials, 1)
    if not 0 <= most <= 1:
        raise InputError(f"most must be a share of the workers in [0, 1], got {most}")
    n = code.n_workers
    lost = np.arange(int(most * n + 1e-9) + 1)
    rng = np.random.default_rng(check_seed(seed))
    placed = [code.placement(worker) for worker in range(n)]
    errors = np.empty((trials, len(lost)))
    for trial in range(trials):
        tracker, arrived = code.tracker(), list[int]()
        for number, worker in enumerate(rng.permutation(n).tolist(), 1):
            arrived.extend(placed[worker])
            for message in placed[worker]:
                tracker.add(message)
            if n - number < len(lost):
                errors[trial, n - number] = _error(code, tracker, arrived)
        if len(lost) == n + 1:
            errors[trial, n] = code.k
    errors = np.maximum(errors, 0.0) / code.k
    return ErrorCurve(code.name, lost / n, errors.mean(axis=0), errors.max(axis=0))


def _error(code: Code, tracker: Tracker, arrived: list[int]) -> float:
    """Return the error of what the tracker was told, by the tracker itself where it knows."""
    if isinstance(code, CodedReduceCode):  # the tracker knows the driver's children only
        return code.weights(code.sending(arrived)).error
    if tracker.decodable:
        return 0.0
    known = getattr(tracker, "error", None)
    if known is not None:
        return float(known)
    return code.weights(arrived).error if isinstance(code, GradientCode) else float(len(tracker.missing()))
