"""Parity checks of LDPC codes: the staircase and the regular ensemble, and how large their parities grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import qr

from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["balanced_rows", "parity_matrix", "regular_checks", "staircase_checks", "staircase_energy", "staircase_sets"]

_DRAWS = 100
"""Graphs to try for one whose parity part is invertible."""
_WORST_CONDITION = 1e8


def balanced_rows(n: int, n_rows: int, weight: int, rng: np.random.Generator) -> Array:
    """Give each of ``n`` columns ``weight`` distinct rows at random, loading the rows within one of each other.

    The rows are dealt from shuffled decks; where a hand spans two decks, rows that it already holds stay in the second.

    Returns
    -------
    array of int
        Shape ``(n, weight)``.

    Examples
    --------
    >>> rows = balanced_rows(8, 6, 3, np.random.default_rng(0))
    >>> np.bincount(rows.ravel()).tolist()
    [4, 4, 4, 4, 4, 4]
    """
    hands = np.empty((n, weight), dtype=np.int64)
    deck: list[int] = []
    for column in rng.permutation(n).tolist():
        hand, deck = deck[:weight], deck[weight:]
        if len(hand) < weight:
            fresh = rng.permutation(n_rows).tolist()
            drawn = [row for row in fresh if row not in hand][: weight - len(hand)]
            deck = [row for row in fresh if row not in drawn]
            hand += drawn
        hands[column] = hand
    return hands


def _members(rows: Array, n_rows: int) -> list[list[int]]:
    """Columns of each row, ascending."""
    members: list[list[int]] = [[] for _ in range(n_rows)]
    for column, hand in enumerate(rows.tolist()):
        for row in hand:
            members[row].append(column)
    return members


def staircase_checks(n: int, k: int, weight: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw checks ``x[k + i] + x[k + i - 1] + sum of x[j], j in Q_i, = 0`` (without the second term for ``i = 0``).

    Every source ``j < k`` is in ``weight`` of the sets ``Q_i``, whose sizes differ by one at most.
    """
    sets = _members(balanced_rows(k, n - k, weight, rng), n - k)
    return [[*sources, *range(k + max(i - 1, 0), k + i + 1)] for i, sources in enumerate(sets)]


def staircase_sets(checks: Sequence[Sequence[int]], k: int) -> list[list[int]] | None:
    """Return the sets ``Q_i`` of a staircase code, or None if the checks are of another form."""
    sets: list[list[int]] = []
    for i, members in enumerate(checks):
        if sorted(j for j in members if j >= k) != list(range(k + max(i - 1, 0), k + i + 1)):
            return None
        sets.append([j for j in members if j < k])
    return sets


def staircase_energy(sets: Sequence[Sequence[int]], k: int) -> FloatArray:
    """Return the mean square of each parity for independent sources of unit mean square.

    With signs ``(-1)^i`` a parity is the one before plus or minus the sources of its check: each source enters with a
    running sum of signs, whose square is followed from check to check.
    """
    jumps = np.zeros(len(sets))
    running = [0] * k
    for i, sources in enumerate(sets):
        sign = -1 if i & 1 else 1
        for j in sources:
            running[j] += sign
            jumps[i] += 2 * sign * running[j] - 1
    energy: FloatArray = np.cumsum(jumps)
    return energy


def regular_checks(n: int, k: int, weight: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw checks of equal size in which every symbol occurs ``weight`` times, with an invertible parity part.

    Raises
    ------
    InputError
        If the sizes cannot be equal, or no draw is invertible.
    """
    if n * weight % (n - k):
        raise InputError(
            f"column_weight * n_workers must be a multiple of n_workers - k = {n - k}, for checks of equal size; got "
            f"{weight} * {n}"
        )
    for _ in range(_DRAWS):
        checks = _members(balanced_rows(n, n - k, weight, rng), n - k)
        # Which symbols are parities is free: take those whose columns are the most independent.
        columns = qr(_incidence(checks, n), mode="r", pivoting=True)[1]
        label = np.empty(n, dtype=np.int64)
        label[np.concatenate([np.sort(columns[n - k :]), columns[: n - k]])] = np.arange(n)
        checks = [sorted(label[members].tolist()) for members in checks]
        if parity_matrix(checks, n, k) is not None:
            return checks
    raise InputError(
        f"column_weight={weight} with n_workers={n}, k={k} gave no graph with an invertible parity part in {_DRAWS} "
        "draws; choose another weight, size or seed, or ensemble='staircase'"
    )


def _incidence(checks: Sequence[Sequence[int]], n: int) -> FloatArray:
    h = np.zeros((len(checks), n))
    for row, members in enumerate(checks):
        h[row, list(members)] = 1.0
    return h


def parity_matrix(checks: Sequence[Sequence[int]], n: int, k: int) -> FloatArray | None:
    """Return the parity rows of the generator, shape ``(n - k, k)``; None if the checks do not determine them well."""
    h = _incidence(checks, n)
    if not np.linalg.cond(h[:, k:]) < _WORST_CONDITION:
        return None
    parity: FloatArray = np.linalg.solve(h[:, k:], -h[:, :k]).astype(np.float64)
    return parity
