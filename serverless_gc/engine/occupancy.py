"""How many attempts run at the same time, those included that were given up and run on."""

from __future__ import annotations

import numpy as np

__all__ = ["Occupancy"]

_BLOCK = 8192
"""Attempts counted at once: a simulation makes 100,000 a second."""


class Occupancy:
    """Counts attempts from their start to their true end, whatever became of them.

    Starts and ends are told as soon as they are known; time never goes back.

    Examples
    --------
    >>> running = Occupancy()
    >>> for start, end in [(0.0, 3.0), (0.0, 1.0), (1.0, 2.0), (2.5, 4.0)]:
    ...     running.add(start, end, now=start)
    >>> [running.peak_since(time, now=9.0) for time in (0.0, 2.0, 3.0)]
    [2, 2, 0]
    """

    def __init__(self) -> None:
        self._told: list[tuple[float, float]] = []  # not counted yet
        self._ends = np.zeros(0)  # of those that run, sorted
        self._times = np.zeros(0)
        self._counts = np.zeros(0, dtype=int)  # each more than all later ones: the others are the peak of no time

    def add(self, start: float, end: float, now: float) -> None:
        """Count an attempt that starts now or later; an infinite end stands for one that never answers."""
        self._told.append((start, end))
        if len(self._told) >= _BLOCK:
            self._count(now)

    def withdraw(self, start: float, end: float) -> None:
        """Count an attempt no more that will not start."""
        self._told.remove((start, end))

    def give_up_endless(self, now: float) -> None:
        """Count an attempt no more that never answers: something else must end it, and nobody knows when."""
        self._count(now)
        self._ends = self._ends[:-1]

    def peak_since(self, time: float, now: float) -> int:
        """Return how many ran at once, at most, at the starts from ``time`` to ``now``; 0 if none started."""
        self._count(now)
        first = np.searchsorted(self._times, time)
        return int(self._counts[first]) if first < len(self._counts) else 0

    def _count(self, now: float) -> None:
        due = np.array(sorted(told for told in self._told if told[0] <= now)).reshape(-1, 2)
        self._told = [told for told in self._told if told[0] > now]
        starts, ends = due[:, 0], np.sort(np.concatenate([self._ends, due[:, 1]]))
        running = len(self._ends) + np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
        times, counts = np.concatenate([self._times, starts]), np.concatenate([self._counts, running])
        later = np.maximum.accumulate(np.append(counts, 0)[::-1])[::-1][1:]
        self._times, self._counts = times[counts > later], counts[counts > later]
        self._ends = ends[ends > now]
