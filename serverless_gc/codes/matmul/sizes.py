"""How many workers and blocks: completing sizes that the caller leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError

__all__ = ["DEFAULT_WORKERS", "complete_grid", "complete_sides", "cut", "two_factors"]

DEFAULT_WORKERS = 16


def two_factors(k: int) -> tuple[int, int]:
    """Return the most equal ``(p, q)`` with ``p * q == k`` and ``p <= q``.

    Examples
    --------
    >>> two_factors(12), two_factors(7)
    ((3, 4), (1, 7))
    """
    p = next(d for d in range(math.isqrt(k), 0, -1) if k % d == 0)
    return p, k // p


def cut(most: int) -> tuple[int, int]:
    """Return a nearly square grid of at most so many cells.

    Examples
    --------
    >>> cut(12), cut(15), cut(1)
    ((3, 4), (3, 5), (1, 1))
    """
    p = max(1, math.isqrt(max(1, most)))
    return p, max(1, most // p)


def complete_grid(
    n_workers: int | None,
    k: int | None,
    p: int | None,
    q: int | None,
    *,
    needed: Callable[[int], int] = lambda k: k,
    spare: float = 4 / 3,
    most: int | None = None,
) -> tuple[int, int, int]:
    """Return ``(n_workers, p, q)``, choosing what is not given.

    Parameters
    ----------
    n_workers, k, p, q
        What the caller gave; ``k = p * q``.
    needed
        Results needed for ``k`` blocks; ascending.
    spare
        Workers for each result needed.
    most
        Largest ``k`` to choose.

    Raises
    ------
    InputError
        If a number is not whole and positive, or they contradict one another.
    """
    for label, value in (("n_workers", n_workers), ("k", k), ("p", p), ("q", q)):
        if value is not None:
            check_whole(label, value, 1)
    if k is None and (p is None or q is None):
        n_workers = DEFAULT_WORKERS if n_workers is None else n_workers
        room = n_workers / spare
        limit = max((c for c in range(1, int(room) + 1) if needed(c) <= room), default=1)
        limit = limit if most is None else min(limit, most)
        if p is None and q is None:
            p, q = cut(limit)
        elif p is None:
            p = max(1, limit // (q or 1))
        else:
            q = max(1, limit // p)
    elif k is not None and p is None and q is None:
        p, q = two_factors(k)
    elif k is not None:
        p = p if p is not None else k // (q or 1)
        q = q if q is not None else k // p
        if p * q != k:
            raise InputError(f"k must be p * q, got k={k} with p={p}, q={q}")
    assert p is not None  # noqa: S101 - every branch sets both
    assert q is not None  # noqa: S101
    return math.ceil(spare * needed(p * q)) if n_workers is None else n_workers, p, q


def complete_sides(
    given: dict[str, int | None],
    *,
    pairs: Callable[[int], list[tuple[int, int]]],
    coded: Callable[[int, int], tuple[int, int]],
    source: Callable[[int], int],
) -> tuple[int, int, int, int]:
    """Return ``(n_left, n_right, p, q)`` of a code on a grid of workers, choosing what is not given.

    Parameters
    ----------
    given
        ``n_workers``, ``k``, ``p``, ``q``, ``n_left`` and ``n_right``; None where the caller gave none.
    pairs
        Number of workers to the grids possible.
    coded
        ``(p, q)`` to how many coded blocks of both operands to have.
    source
        Number of coded blocks to how many source blocks to have.

    Raises
    ------
    InputError
        If a number is not whole and positive, or they contradict one another.
    """
    for label, value in given.items():
        if value is not None:
            check_whole(label, value, 1)
    n, k, p, q, left, right = (given[label] for label in ("n_workers", "k", "p", "q", "n_left", "n_right"))
    blocks: list[tuple[int, int]] = []
    if k is not None:
        blocks = [(d, k // d) for d in range(1, k + 1) if k % d == 0 and p in {None, d} and q in {None, k // d}]
        if not blocks:
            raise InputError(f"k must be p * q, got k={k} with p={p}, q={q}")
    elif p is not None and q is not None:
        blocks = [(p, q)]
    if n is None and blocks:
        sides = coded(*min(blocks, key=lambda pair: abs(pair[0] - pair[1])))
        n = (sides[0] if left is None else left) * (sides[1] if right is None else right)
    elif n is None:
        n = DEFAULT_WORKERS if left is None or right is None else left * right
    grids = [(a, b) for a, b in pairs(n) if left in {None, a} and right in {None, b}]
    if not grids:
        raise InputError(
            f"n_workers must be n_left * n_right (for polar codes n_right a power of two), got {n} with "
            f"n_left={left}, n_right={right}"
        )
    options = [
        (a, b, c, d) for a, b in grids for c, d in blocks or [(p or source(a), q or source(b))] if c <= a and d <= b
    ]
    if not options:
        raise InputError(
            f"p must be at most n_left and q at most n_right, got p={p}, q={q}, k={k} for {n} workers with "
            f"n_left={left}, n_right={right}"
        )

    def order(option: tuple[int, int, int, int]) -> tuple[int, int, int]:
        a, b, c, d = option
        return (a == c) + (b == d), abs(a - b), abs(c - d)  # redundancy on both sides, then the most square

    return min(options, key=order)
