"""Gradient coding in clusters, level by level: the more a worker has done, the more stragglers its row tolerates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.base import GradientCode, GradientTracker
from serverless_gc.codes.multi.order import ConsecutiveMessages, check_load
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["ClusterTracker", "ClusteredMultiMessage", "LevelTracker"]


class ClusteredMultiMessage(ConsecutiveMessages, GradientCode):
    """Workers in clusters; after ``j`` subtasks a worker sends its row of a code tolerating ``j - 1`` stragglers.

    A cluster of ``ell`` workers owns a share of the partitions, cut into ``ell`` groups. The level-``j`` message of its
    worker ``i`` combines groups ``i..i+j-1`` (cyclically) so that any ``ell - j + 1`` messages of that level give the
    cluster's sum; level 1 is the plain gradient of group ``i``. Messages of several levels may do so together: the
    tracker tests that exactly.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    clusters
        Number of clusters; by default the fewest that leave at most 5 workers in one, else as many as can be.
    r
        Levels, at most the size of a cluster; 3 by default, or that size if it is less.
    seed
        Of the coefficients.

    Raises
    ------
    InputError
        If ``clusters`` divides ``n_workers`` or ``k`` not, a cluster has fewer partitions than workers, or ``r`` is not
        in ``1..n_workers / clusters``.

    Notes
    -----
    E. Ozfatura, D. Gunduz, S. Ulukus, "Gradient Coding with Clustering and Multi-message Communication" (2019), with
    the randomized cyclic rows of R. Tandon, Q. Lei, A. Dimakis, N. Karampatziakis, "Gradient Coding" (ICML 2017).

    Examples
    --------
    >>> code = ClusteredMultiMessage(6, 6, clusters=2, r=2)
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(message)) for message in (1, 3, 6, 8, 10)]  # level 2 of 0 and 1; level 1 of 3, 4 and 5
    [False, False, False, False, True]
    """

    name = "gc-mmc"

    def __init__(
        self, n_workers: int, k: int, *, clusters: int | None = None, r: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(n_workers, k)
        self.clusters = (
            _small_clusters(self.n_workers, self.k) if clusters is None else check_whole("clusters", clusters, 1)
        )
        for name, value in (("n_workers", self.n_workers), ("k", self.k)):
            if value % self.clusters:
                raise InputError(f"clusters must divide {name}={value}, got {self.clusters}")
        if self.k < self.n_workers:
            raise InputError(
                f"k must be at least n_workers={self.n_workers}, so that a cluster has a partition for each worker, "
                f"got {self.k}"
            )
        self.ell = self.n_workers // self.clusters
        self.r = min(3, self.ell) if r is None else check_load(r, self.ell, "n_workers / clusters")
        self.seed = check_whole("seed", seed, 0)

    def groups(self, worker: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of partitions in the order in which ``worker`` goes through them, one a level."""
        super().placement(worker)
        cluster, i = divmod(worker, self.ell)
        share = self.k // self.clusters
        cut = np.array_split(np.arange(cluster * share, (cluster + 1) * share), self.ell)
        return tuple(tuple(cut[(i + place) % self.ell].tolist()) for place in range(self.r))

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions that a message combines, in the order of computation, and their coefficients."""
        check_message(message, self.n_messages)
        worker, place = divmod(message, self.r)
        partitions = tuple(partition for group in self.groups(worker)[: place + 1] for partition in group)
        return partitions, self.generator[message, list(partitions)]

    def _build_generator(self) -> Array:
        g = np.zeros((self.n_messages, self.k))
        levels = [_cyclic_rows(self.ell, stragglers, self.seed) for stragglers in range(self.r)]
        for message in range(self.n_messages):
            worker, place = divmod(message, self.r)
            i = worker % self.ell
            for step, group in enumerate(self.groups(worker)[: place + 1]):
                g[message, list(group)] = levels[place][i, (i + step) % self.ell]
        return g

    def tracker(self) -> ClusterTracker:
        """Make a fresh tracker."""
        return ClusterTracker(self)

    def level_tracker(self) -> LevelTracker:
        """Make a fresh tracker of the rule that the code was published with: it counts levels and may close later."""
        return LevelTracker(self)

    @property
    def tolerated(self) -> int:
        """How many unheard workers, whichever they are, leave the answer exact: ``r - 1`` if they share a cluster."""
        return self.r - 1

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"clusters": self.clusters, "r": self.r, "seed": self.seed}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the generator included."""
        return {**super().manifest(), "generator": self.generator}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ClusteredMultiMessage:
        """Rebuild the code from its manifest alone; the coefficients are those of the manifest."""
        code = cls(manifest["n_workers"], manifest["k"], **manifest["params"])
        stored = np.array(manifest["generator"], dtype=np.float64)
        stored.setflags(write=False)
        code._cache.generator.append(stored)
        return code


class ClusterTracker(Tracker):
    """Decodable when every cluster is; exact, and each arrival is looked at in its own cluster only."""

    __slots__ = ("_code", "_done", "_parts", "_share", "_size")

    def __init__(self, code: ClusteredMultiMessage) -> None:
        self._code = code
        self._size = code.ell * code.r
        self._share = code.k // code.clusters
        self._parts = [
            GradientTracker(code.generator[c * self._size : (c + 1) * self._size, self._columns(c)])
            for c in range(code.clusters)
        ]
        self._done = [False] * code.clusters

    def _columns(self, cluster: int) -> slice:
        return slice(cluster * self._share, (cluster + 1) * self._share)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._code.n_messages)
        cluster, local = divmod(message, self._size)
        if not self._done[cluster]:
            self._done[cluster] = bool(self._parts[cluster].add(local))
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine the sum."""
        return all(self._done)

    def missing(self) -> tuple[int, ...]:
        """Partitions that the best weights do not count exactly once."""
        return tuple(c * self._share + j for c, part in enumerate(self._parts) for j in part.missing())


class LevelTracker(Tracker):
    """Decodable when in every cluster, for some ``j``, at least ``ell - j + 1`` workers have reached level ``j``.

    Sufficient, not necessary: messages of different levels are not combined. ``O(1)`` per arrival.
    """

    __slots__ = ("_code", "_done", "_levels", "_seen")

    def __init__(self, code: ClusteredMultiMessage) -> None:
        self._code = code
        self._seen: set[int] = set()
        self._levels = [[0] * code.r for _ in range(code.clusters)]
        self._done = [False] * code.clusters

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        code = self._code
        check_message(message, code.n_messages)
        if message not in self._seen:
            self._seen.add(message)
            worker, place = divmod(message, code.r)
            cluster = worker // code.ell
            self._levels[cluster][place] += 1
            self._done[cluster] |= self._levels[cluster][place] >= code.ell - place
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether every cluster is done."""
        return all(self._done)

    def missing(self) -> tuple[int, ...]:
        """Partitions of the clusters that are not done."""
        share = self._code.k // self._code.clusters
        return tuple(j for c, done in enumerate(self._done) if not done for j in range(c * share, (c + 1) * share))


def _small_clusters(n_workers: int, k: int) -> int:
    """Return the fewest clusters that leave at most 5 workers in one, else the most there can be."""
    common = [c for c in range(1, n_workers + 1) if n_workers % c == 0 and k % c == 0]
    return next((c for c in common if n_workers // c <= 5), common[-1])


def _cyclic_rows(n: int, stragglers: int, seed: int) -> FloatArray:
    """Return rows with support ``i..i+stragglers`` of which any ``n - stragglers`` span the all-ones row."""
    if stragglers == 0:
        return np.eye(n)
    if stragglers == n - 1:
        return np.ones((n, n))
    # All rows lie in the null space of a random matrix that all ones lie in too; it has just the dimension needed.
    checks = np.random.default_rng([seed, n, stragglers]).standard_normal((stragglers, n))
    checks[:, -1] = -checks[:, :-1].sum(axis=1)
    rows = np.zeros((n, n))
    for i in range(n):
        others = [(i + step) % n for step in range(1, stragglers + 1)]
        rows[i, i] = 1.0
        rows[i, others] = np.linalg.solve(checks[:, others], -checks[:, i])
    return rows
