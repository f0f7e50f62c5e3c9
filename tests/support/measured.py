"""Times and ratios for benchmarks: what is measured beside its bound, in turns, and what absolute goals amount to.

A benchmark may fail on a ratio to a bound of the same run only. Goals that were stated in milliseconds, for two cores
of a Zen 4 processor, become ratios here: those of interpreted work to additions to a set, those of work on long
arrays to copies of their bytes, those of dense codes to bare matrix products. The constants are what that machine does.
"""

import timeit

ADDITION_US = 0.019
"""One turn of ``for i in range(1000): seen.add(i)`` on the machine of the goals."""

COPIED_PER_S = 11.5e9
"""Bytes that ``np.copyto`` copies there on one thread, between arrays too long for a cache: 23 GB/s read or written."""

FLOPS = 102e9
"""Operations a second of a product of large double precision matrices there, on both cores."""


def seconds(call):
    """Return how long one call takes."""
    return timeit.timeit(call, number=1)


def fastest(call, repeats=5):
    """Return the least time of a few calls, in seconds."""
    return min(timeit.repeat(call, number=1, repeat=repeats))


def ratio(run, bound, repeats=5):
    """Return the least time of ``run`` over that of ``bound``; they take turns, so that a busy moment hits both."""
    pairs = [(seconds(run), seconds(bound)) for _ in range(repeats)]
    ours, theirs = map(min, zip(*pairs, strict=True))
    return ours / theirs


def _ten_thousand_additions():
    for _ in range(10):
        seen = set()
        for i in range(1000):
            seen.add(i)


def seconds_of_an_addition():
    """Return the least time that an addition to a set takes now."""
    return fastest(_ten_thousand_additions) / 10_000


def additions(run, repeats=5, each=1):
    """Return the least time of ``run``, or of each of its ``each`` parts, in additions to a set."""
    return 10_000 * ratio(run, _ten_thousand_additions, repeats) / each


def goal_in_additions(microseconds):
    """Return what a goal stated in microseconds is in additions to a set."""
    return microseconds / ADDITION_US


def goal_in_products(milliseconds, m, k, n):
    """Return what a goal stated in milliseconds is in products of a matrix ``(m, k)`` and one ``(k, n)``."""
    return 1e-3 * milliseconds * FLOPS / (2 * m * k * n)


def goal_in_copies(milliseconds, nbytes):
    """Return what a goal stated in milliseconds is in copies of so many bytes."""
    return 1e-3 * milliseconds * COPIED_PER_S / nbytes
