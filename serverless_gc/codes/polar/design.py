"""Which positions of a polar code carry data: erasure probabilities, Reed-Muller sets, thresholds.

A code of ``n`` workers is cut from a transform of length ``M``, the next power of two, by *shortening* (positions
``n..M-1`` are known to be zero) or by *puncturing* (positions ``0..M-n-1`` are never computed). Everything here
speaks of the ``M`` positions in natural index order.

References
----------
E. Arikan, *Channel polarization*, 2009. B. Bartan and M. Pilanci, *Straggler Resilient Serverless Computing Based on
Polar Codes*, 2019. M. Soleymani, M. V. Jamali and H. Mahdavifar, *Coded Computing via Binary Linear Codes*, 2021
(Reed-Muller sets).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = [
    "auto_epsilon",
    "channel_erasures",
    "erasure_profile",
    "guaranteed_threshold",
    "information_set",
    "is_closed",
    "max_k",
    "reed_muller_dimensions",
    "reed_muller_set",
    "split_groups",
    "support_sizes",
    "transform_length",
]

Cut = Literal["shorten", "puncture"]


def transform_length(n: int) -> int:
    """Length of the butterfly for ``n`` workers: the next power of two."""
    return 1 << (n - 1).bit_length()


def _polarize(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Run the recursion on erasure probabilities ``a`` and their complements ``b``; both stay accurate near 0."""
    z, w = a.copy(), b.copy()
    half = len(z) // 2
    while half:
        zs, ws = z.reshape(-1, 2, half), w.reshape(-1, 2, half)
        z0, z1, w0, w1 = zs[:, 0].copy(), zs[:, 1].copy(), ws[:, 0].copy(), ws[:, 1].copy()
        zs[:, 0], ws[:, 0] = z0 + z1 * w0, w0 * w1  # both needed
        zs[:, 1], ws[:, 1] = z0 * z1, w0 + w1 * z0  # either suffices
        half //= 2
    return np.minimum(z, 1.0), w


def channel_erasures(erasures: float | Sequence[float] | Array, length: int | None = None) -> FloatArray:
    """Erasure probability of each virtual channel.

    Parameters
    ----------
    erasures
        Probability that a position does not answer: one number for all, or one a position.
    length
        Number of positions, a power of two; taken from ``erasures`` when that is a vector.

    Returns
    -------
    array
        Probabilities, index 0 first. Their sum equals the sum of the inputs.

    Raises
    ------
    InputError
        If the length is not a power of two or a probability lies outside [0, 1].

    Examples
    --------
    >>> channel_erasures(0.5, 4)
    array([0.9375, 0.5625, 0.4375, 0.0625])
    """
    e = np.atleast_1d(np.asarray(erasures, dtype=np.float64))
    if e.ndim == 1 and e.size == 1 and length is not None:
        e = np.full(length, e[0])
    if e.ndim != 1 or e.size == 0 or e.size & (e.size - 1) or (length is not None and e.size != length):
        raise InputError(f"erasures must have one entry for each of 2**q positions, got shape {e.shape}, {length=}")
    if not np.all((e >= 0) & (e <= 1)):
        raise InputError(f"erasures must lie in [0, 1], got values from {e.min()} to {e.max()}")
    return _polarize(e, 1.0 - e)[0]


def erasure_profile(n: int, cut: Cut, erasures: float | Sequence[float] | Array) -> FloatArray:
    """Erasure probability of each of the ``M`` positions for ``n`` workers.

    Shortened positions never fail, punctured ones always do.
    """
    length = transform_length(n)
    e = np.asarray(erasures, dtype=np.float64)
    if e.shape not in {(), (n,)}:
        raise InputError(f"design must be one number or have one entry for each of {n} workers, got shape {e.shape}")
    if not np.all((e >= 0) & (e <= 1)):
        raise InputError(f"design probabilities must lie in [0, 1], got values from {e.min()} to {e.max()}")
    profile = np.full(length, 0.0 if cut == "shorten" else 1.0)
    profile[_usable(n, cut)] = e
    return profile


def _usable(n: int, cut: Cut) -> slice:
    length = transform_length(n)
    return slice(0, n) if cut == "shorten" else slice(length - n, length)


def _check_k(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise InputError(f"k must be between 1 and n_workers={n}, got {k}")


def _best(n: int, k: int, cut: Cut, key: Callable[[int], float]) -> tuple[int, ...]:
    positions = range(transform_length(n))[_usable(n, cut)]
    return tuple(sorted(sorted(positions, key=lambda i: (key(i), -i))[:k]))


def information_set(n: int, k: int, cut: Cut, erasures: float | Sequence[float] | Array) -> tuple[int, ...]:
    """Positions of the ``k`` most reliable channels, ascending.

    Channels whose erasure probabilities agree to 12 significant digits count as tied; ties go to the higher index.
    The set is closed under domination: with ``i`` it holds every usable index that contains the bits of ``i``.

    Examples
    --------
    >>> information_set(8, 4, "shorten", 0.2)
    (3, 5, 6, 7)
    """
    _check_k(n, k)
    z = [float(f"{p:.11e}") for p in channel_erasures(erasure_profile(n, cut, erasures))]
    return _best(n, k, cut, z.__getitem__)


def auto_epsilon(n: int, k: int, cut: Cut = "shorten", groups: int = 1) -> float:
    """Largest erasure probability at which the best channels fail with total probability 0.5.

    This designs the code at the level where it operates. The ``k`` best count of each of ``groups`` codes of ``n``
    workers: the total is that of all groups.

    Examples
    --------
    >>> round(auto_epsilon(8, 4), 6)
    0.464473
    >>> round(auto_epsilon(8, 4, groups=2), 6)
    0.37687
    """
    _check_k(n, k)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        z = channel_erasures(erasure_profile(n, cut, middle))[_usable(n, cut)]
        if np.partition(z, k - 1)[:k].sum() <= 0.5 / groups:
            low = middle
        else:
            high = middle
    return low


def reed_muller_set(n: int, k: int, cut: Cut = "shorten") -> tuple[int, ...]:
    """Positions of the ``k`` heaviest indices (most 1 bits), ascending.

    Inside the weight class that ``k`` cuts through, each index taken is the one that overlaps least with those
    taken before it (sum of squared numbers of common bits; ties to the higher index). That spreads the class evenly
    over all pairs of bits. Measured share of random sets of exactly ``k`` results that decode, against taking the
    more reliable channels first: 0.79 against 0.37 at (256, 192), 0.96 against 0.75 at (512, 448), 0.24 against
    0.15 at (64, 48).

    Examples
    --------
    >>> reed_muller_set(8, 4)
    (3, 5, 6, 7)
    >>> reed_muller_set(16, 7)
    (3, 7, 11, 12, 13, 14, 15)
    """
    _check_k(n, k)
    usable = range(transform_length(n))[_usable(n, cut)]
    chosen: list[int] = []
    for weight in range(transform_length(n).bit_length(), -1, -1):
        members = [i for i in reversed(usable) if i.bit_count() == weight]
        space = k - len(chosen)
        chosen += members if len(members) <= space else _spread(members, space)
    return tuple(sorted(chosen))


def _spread(members: list[int], count: int) -> list[int]:
    """Choose ``count`` members that overlap little with one another, greedily."""
    indices = np.array(members)
    bits = indices[:, None] >> np.arange(max(members).bit_length()) & 1
    overlap = np.zeros(len(members))
    taken = []
    for _ in range(count):
        best = int(overlap.argmin())
        taken.append(members[best])
        overlap += np.square(bits @ bits[best])
        overlap[best] = math.inf
    return taken


def reed_muller_dimensions(n: int) -> tuple[int, ...]:
    """Numbers of blocks at which a Reed-Muller set cuts no weight class, ascending.

    At these ``k`` the set is a Reed-Muller code and loses least against an MDS code.

    Examples
    --------
    >>> reed_muller_dimensions(16)
    (1, 5, 11, 15, 16)
    """
    q = n.bit_length() - 1
    if n < 1 or n != 1 << q:
        raise InputError(f"n must be a power of two, got {n}")
    sizes = [math.comb(q, w) for w in range(q, -1, -1)]
    return tuple(int(s) for s in np.cumsum(sizes))


def is_closed(info: Sequence[int], n: int, cut: Cut) -> bool:
    """Whether every usable index that contains the bits of a member is a member too."""
    members = set(info)
    length = transform_length(n)
    usable = range(length)[_usable(n, cut)]
    bits = [1 << b for b in range(length.bit_length() - 1)]
    return all(i | b in members or i | b not in usable for i in members for b in bits)


def split_groups(info: Sequence[int], groups: int, length: int) -> tuple[tuple[int, ...], ...]:
    """Return the data positions of each group of ``length``, counted from its first one, ascending.

    Examples
    --------
    >>> split_groups((2, 3, 6, 7), groups=2, length=4)
    ((2, 3), (2, 3))
    """
    local: list[list[int]] = [[] for _ in range(groups)]
    for i in info:
        local[i // length].append(i % length)
    return tuple(map(tuple, local))


def support_sizes(info: Sequence[int], length: int) -> Array:
    """Count the information indices that contain the bits of each position: the row supports of the plain code."""
    counts = np.zeros(length, dtype=np.int64)
    counts[list(info)] = 1
    half = 1
    while half < length:
        pairs = counts.reshape(-1, 2, half)
        pairs[:, 0] += pairs[:, 1]
        half *= 2
    return counts


def guaranteed_threshold(info: Sequence[int], n: int, cut: Cut = "shorten") -> int:
    """Smallest number of arrivals of which every set decodes, whatever the stragglers.

    ``n - d + 1`` with ``d`` the fewest losses that hide a member of the set.

    Examples
    --------
    >>> guaranteed_threshold((3, 5, 6, 7), 8)
    5
    """
    length = transform_length(n)
    d = np.full(length, math.inf if cut == "shorten" else 0.0)
    d[_usable(n, cut)] = 1.0
    half = length // 2
    while half:
        pairs = d.reshape(-1, 2, half)
        pairs[:, 0], pairs[:, 1] = np.minimum(pairs[:, 0], pairs[:, 1]), pairs[:, 0] + pairs[:, 1]
        half //= 2
    return n - int(d[list(info)].min()) + 1


def max_k(n: int, p: float, delta: float) -> int:
    """Most blocks that survive stragglers with probability at least ``1 - delta``.

    Parameters
    ----------
    n
        Number of workers.
    p
        Probability that a worker misses the deadline, independently of the others.
    delta
        Accepted probability that the sequential decoder fails; the union bound over channels is used, and it is
        close.

    Returns
    -------
    int
        0 when not even one block is that safe.

    Examples
    --------
    >>> max_k(64, 0.1, 0.01)
    43
    """
    if n < 1:
        raise InputError(f"n must be at least 1, got {n}")
    if not 0 < delta < 1:
        raise InputError(f"delta must lie in (0, 1), got {delta}")
    z = np.sort(channel_erasures(erasure_profile(n, "shorten", p))[:n])
    return int(np.searchsorted(np.cumsum(z), delta, side="right"))
