"""Density evolution: how many symbols of a long regular LDPC code stay unknown, round by round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["Evolution", "density_evolution", "erasure_threshold"]


@dataclass(frozen=True, slots=True)
class Evolution:
    """Expected unknown fractions after ``0 .. rounds`` rounds, in the limit of long codes.

    Attributes
    ----------
    messages
        Of the messages that symbols send to checks.
    symbols
        Of the symbols.
    """

    messages: FloatArray
    symbols: FloatArray


def density_evolution(erasure: float, l: int, r: int, rounds: int) -> Evolution:  # noqa: E741  # the letter of the field
    """Follow independent erasures through rounds of peeling in the regular ``(l, r)`` ensemble.

    ``q[d + 1] = q0 (1 - (1 - q[d])^(r - 1))^(l - 1)``; a symbol is unknown after that round with probability
    ``q0 (1 - (1 - q[d])^(r - 1))^l``.

    Parameters
    ----------
    erasure
        Probability ``q0`` that a symbol does not arrive.
    l, r
        Checks of a symbol, and symbols of a check.
    rounds
        How many.

    Raises
    ------
    InputError
        If the probability is not between 0 and 1, ``l < 1``, ``r < 2`` or ``rounds < 0``.

    References
    ----------
    T. Richardson and R. Urbanke, *Modern Coding Theory*, 2008, section 3.10.

    Examples
    --------
    >>> density_evolution(0.3, 3, 6, 2).messages.round(6).tolist()
    [0.3, 0.207632, 0.141861]
    """
    _check(l, r)
    if not 0 <= erasure <= 1:
        raise InputError(f"erasure must be between 0 and 1, got {erasure}")
    if rounds < 0:
        raise InputError(f"rounds must be at least 0, got {rounds}")
    messages, symbols = [float(erasure)], [float(erasure)]
    for _ in range(rounds):
        silent = 1 - (1 - messages[-1]) ** (r - 1)
        messages.append(erasure * silent ** (l - 1))
        symbols.append(erasure * silent**l)
    return Evolution(np.array(messages), np.array(symbols))


def erasure_threshold(l: int, r: int) -> float:  # noqa: E741  # the letter of the field
    """Return the largest erasure probability from which peeling recovers all of a long regular code.

    It is the minimum over ``q`` of ``q / (1 - (1 - q)^(r - 1))^(l - 1)``.

    Raises
    ------
    InputError
        If ``l < 1`` or ``r < 2``.

    Examples
    --------
    >>> round(erasure_threshold(3, 6), 4)
    0.4294
    """
    _check(l, r)
    low, high = 1e-9, 1.0
    for _ in range(4):
        q = np.linspace(low, high, 10_001)
        ratio = q / (1 - (1 - q) ** (r - 1)) ** (l - 1)
        best = int(np.argmin(ratio))
        low, high = float(q[max(best - 1, 0)]), float(q[min(best + 1, len(q) - 1)])
    return float(min(ratio[best], 1.0))


def _check(l: int, r: int) -> None:  # noqa: E741  # the letter of the field
    if l < 1:
        raise InputError(f"l must be at least 1, got {l}")
    if r < 2:
        raise InputError(f"r must be at least 2, got {r}")
