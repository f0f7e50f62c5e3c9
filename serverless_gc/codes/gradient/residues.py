"""Primes and squares modulo them: what graphs and designs are built from."""

from __future__ import annotations

import math

__all__ = ["is_prime", "nonzero_squares"]


def is_prime(number: int) -> bool:
    """Whether ``number`` is a prime.

    Examples
    --------
    >>> [p for p in range(20) if is_prime(p)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def nonzero_squares(prime: int) -> tuple[int, ...]:
    """Return the non-zero squares modulo an odd prime, ascending.

    Examples
    --------
    >>> nonzero_squares(7)
    (1, 2, 4)
    """
    return tuple(sorted({x * x % prime for x in range(1, prime // 2 + 1)}))
