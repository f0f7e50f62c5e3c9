"""The worst set of stragglers of a gradient code: by enumeration where that is feasible, else by a greedy adversary."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.errors import InputError

__all__ = ["ENUMERABLE", "WorstCase", "greedy_worst", "worst_case"]

ENUMERABLE = 200_000
"""Most sets of stragglers that are tried one by one."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The largest error found over sets of stragglers of one size.

    Attributes
    ----------
    error
        ``err(F)`` of the arrivals that ``stragglers`` leave.
    stragglers
        Workers whose absence causes it, ascending.
    proven
        Whether every set was tried; otherwise the true worst case may be larger.
    """

    error: float
    stragglers: tuple[int, ...]
    proven: bool


def worst_case(code: GradientCode, stragglers: int, *, method: str = "optimal") -> WorstCase:
    """Find the worst set of so many stragglers.

    Every set is tried if there are at most `ENUMERABLE` of them; otherwise see `greedy_worst`.

    Parameters
    ----------
    code
        Any gradient code; a straggling worker sends none of its messages.
    stragglers
        Size of the set, ``0 <= stragglers <= n_workers``.
    method
        Decoder, see `GradientCode.weights`.

    Raises
    ------
    InputError
        If ``stragglers`` is out of range, or the method is unknown.

    Examples
    --------
    >>> from serverless_gc.codes.gradient import LinearGradientCode
    >>> circulant = [[1 if (j - i) % 7 < 3 else 0 for j in range(7)] for i in range(7)]
    >>> found = worst_case(LinearGradientCode(circulant, exact=False), 2)
    >>> round(found.error, 6), found.proven
    (0.25, True)
    """
    _check(code, stragglers)
    if math.comb(code.n_workers, stragglers) > ENUMERABLE:
        return greedy_worst(code, stragglers, method=method)
    worst = -1.0
    where: tuple[int, ...] = ()
    for lost in combinations(range(code.n_workers), stragglers):
        error = _error(code, lost, method)
        if error > worst:
            worst, where = error, lost
    return WorstCase(worst, where, proven=True)


def greedy_worst(code: GradientCode, stragglers: int, *, method: str = "optimal") -> WorstCase:
    """Remove, one after another, the worker whose absence raises the error most (the first one of equals).

    A lower bound of the worst case, after ``stragglers * n_workers`` decodes.

    Raises
    ------
    InputError
        If ``stragglers`` is out of range, or the method is unknown.
    """
    _check(code, stragglers)
    lost: tuple[int, ...] = ()
    for _ in range(stragglers):
        left = (w for w in range(code.n_workers) if w not in lost)
        lost = max(((*lost, w) for w in left), key=lambda tried: _error(code, tried, method))
    return WorstCase(_error(code, lost, method), tuple(sorted(lost)), proven=stragglers in {0, code.n_workers})


def _check(code: GradientCode, stragglers: int) -> None:
    if not 0 <= stragglers <= code.n_workers:
        raise InputError(f"stragglers must be in 0..n_workers={code.n_workers}, got {stragglers}")


def _error(code: GradientCode, lost: Iterable[int], method: str) -> float:
    gone = set(lost)
    messages = [i for w in range(code.n_workers) if w not in gone for i in code.placement(w)]
    return code.weights(messages, method).error
