"""Who serves in which cluster: spreading predicted stragglers evenly, each worker in its own slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["StragglerPredictor", "allowed_clusters", "balanced_assignment"]

_STARTS = 20


@dataclass(frozen=True, slots=True)
class StragglerPredictor:
    """Predicts that the workers that were late last time will be late again. Holds nothing that changes.

    Examples
    --------
    >>> StragglerPredictor(4).update([2])
    (False, False, True, False)
    """

    n_workers: int

    def update(self, late: Iterable[int]) -> tuple[bool, ...]:
        """Return a flag for each worker from the ids of those that were late in the last iteration.

        Raises
        ------
        InputError
            If an id is unknown.
        """
        flags = [False] * self.n_workers
        for worker in late:
            if not 0 <= worker < self.n_workers:
                raise InputError(f"late must name workers in 0..{self.n_workers - 1}, got {worker}")
            flags[worker] = True
        return tuple(flags)


def allowed_clusters(worker: int, n_workers: int, clusters: int, flexibility: int) -> tuple[int, ...]:
    """Return the clusters a worker may serve in: its home ``worker // size`` and the next ones, circularly.

    Examples
    --------
    >>> allowed_clusters(9, n_workers=10, clusters=5, flexibility=2)
    (4, 0)
    """
    home = worker // (n_workers // clusters)
    return tuple((home + step) % clusters for step in range(flexibility))


def balanced_assignment(
    n_workers: int, clusters: int, flexibility: int, flags: Sequence[bool], *, seed: int = 0
) -> tuple[int, ...]:
    """Assign workers to clusters so that flagged ones are spread evenly.

    Minimizes ``sum_p x_p**2``, where ``x_p`` flagged workers serve in cluster ``p``, by descents that reassign one slot
    at a time optimally: the first from the home clusters, the others from random starts, 20 in all.

    Parameters
    ----------
    n_workers, clusters
        Workers, a multiple of the clusters; worker ``i`` keeps slot ``i mod (n_workers / clusters)``.
    flexibility
        How many clusters a worker may serve in, see `allowed_clusters`.
    flags
        Whether each worker is expected to straggle.
    seed
        Of the random starts.

    Returns
    -------
    tuple
        Cluster of each worker; every cluster has one worker in each slot.

    Raises
    ------
    InputError
        If ``clusters`` does not divide ``n_workers``, ``flexibility`` is not in ``1 ... clusters``, or there is not one
        flag for each worker.

    Examples
    --------
    >>> flags = [True, True, False, False, False, False]
    >>> assignment = balanced_assignment(6, 2, 2, flags)
    >>> sorted(assignment[:2]), balanced_assignment(6, 2, 1, flags)
    ([0, 1], (0, 0, 0, 1, 1, 1))
    """
    check_clusters(n_workers, clusters, flexibility)
    if len(flags) != n_workers:
        raise InputError(f"flags must have one entry per worker (n_workers={n_workers}), got {len(flags)}")
    size = n_workers // clusters
    slots = _Slots(np.array(flags, dtype=bool).reshape(clusters, size).T, flexibility)
    homes = np.tile(np.arange(clusters), (size, 1))
    best = slots.descend(homes)
    rng = np.random.default_rng(seed)
    for _ in range(_STARTS - 1):
        if flexibility == 1 or slots.imbalance(best) <= slots.least:
            break
        best = min((best, slots.descend(slots.random_start(rng))), key=slots.imbalance)
    return tuple(int(p) for p in best.T.ravel())


def check_clusters(n_workers: int, clusters: int, flexibility: int) -> None:
    """Raise `InputError` unless the workers make so many equal clusters and may serve in so many of them."""
    check_whole("clusters", clusters, 1)
    if n_workers % clusters:
        raise InputError(f"clusters must divide n_workers={n_workers}, got {clusters}")
    check_whole("flexibility", flexibility, 1)
    if flexibility > clusters:
        raise InputError(f"flexibility must be at most clusters={clusters}, got {flexibility}")


class _Slots:
    """Flagged workers by slot and home cluster; an assignment has the cluster of each, of the same shape."""

    def __init__(self, flags: Array, flexibility: int) -> None:
        clusters = flags.shape[1]
        self._flags = flags
        steps = (np.arange(clusters) - np.arange(clusters)[:, None]) % clusters
        self._forbidden = np.where(steps < flexibility, 0.0, np.inf)
        each, left = divmod(int(flags.sum()), clusters)
        self.least = (clusters - left) * each**2 + left * (each + 1) ** 2

    def counts(self, assignment: Array) -> Array:
        """Count the flagged workers in each cluster."""
        return np.bincount(assignment[self._flags], minlength=self._flags.shape[1])

    def imbalance(self, assignment: Array) -> int:
        """Sum of the squared counts."""
        return int((self.counts(assignment) ** 2).sum())

    def descend(self, assignment: Array) -> Array:
        """Reassign one slot after another, each optimally, until a whole sweep gains nothing."""
        assignment = assignment.copy()
        while True:
            before = self.imbalance(assignment)
            counts = self.counts(assignment)
            for t, flagged in enumerate(self._flags):
                counts = counts - np.bincount(assignment[t, flagged], minlength=len(counts))
                assignment[t] = self._matched(counts, flagged, 0.0)
                counts = counts + np.bincount(assignment[t, flagged], minlength=len(counts))
            if self.imbalance(assignment) >= before:
                return assignment

    def random_start(self, rng: np.random.Generator) -> Array:
        """Build an assignment slot by slot in random order, ties broken at random."""
        assignment = np.empty(self._flags.shape, dtype=np.intp)
        counts = np.zeros(self._flags.shape[1], dtype=np.intp)
        for t in rng.permutation(len(self._flags)):
            ties = rng.uniform(0, 0.5, self._forbidden.shape)
            assignment[t] = self._matched(counts, self._flags[t], ties)
            counts = counts + np.bincount(assignment[t, self._flags[t]], minlength=len(counts))
        return assignment

    def _matched(self, counts: Array, flagged: Array, ties: Array | float) -> Array:
        """Cluster of each worker of a slot: the perfect matching that raises the sum of squares least."""
        from scipy.optimize import linear_sum_assignment

        cost = np.where(flagged[:, None], 2.0 * counts + 1, 0.0) + ties + self._forbidden
        matched: Array = linear_sum_assignment(cost)[1]
        return matched
