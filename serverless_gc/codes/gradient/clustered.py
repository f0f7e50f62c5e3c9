"""Clusters of workers, each with a small exact code of its own; who serves where may change from round to round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.base import GradientCode, Weights
from serverless_gc.codes.gradient.dynamic_clusters import allowed_clusters, balanced_assignment, check_clusters
from serverless_gc.codes.gradient.inner import Inner, inner_code, inner_from_manifest
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers, require_square
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["ClusterTracker", "ClusteredCode"]


class ClusterTracker(Tracker):
    """Decodable when every cluster is. One arrival costs what it costs its cluster's own tracker."""

    __slots__ = ("_assignment", "_left", "_size", "_trackers")

    def __init__(self, assignment: tuple[int, ...], trackers: list[Tracker]) -> None:
        self._assignment = assignment
        self._trackers = trackers
        self._size = len(assignment) // len(trackers)
        self._left = sum(not tracker.decodable for tracker in trackers)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._assignment))
        tracker = self._trackers[self._assignment[message]]
        before = tracker.decodable
        self._left -= tracker.add(message % self._size).decodable and not before
        return Verdict(self._left == 0, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether every cluster is decodable."""
        return self._left == 0

    def missing(self) -> tuple[int, ...]:
        """Partitions of the clusters that are not decodable, as each cluster's tracker names them."""
        return tuple(p * self._size + j for p, tracker in enumerate(self._trackers) for j in tracker.missing())


class ClusteredCode(GradientCode):
    """``clusters`` equal groups of workers and partitions, each with the same exact code for ``stragglers`` of its own.

    Worker ``i`` keeps the slot ``i mod size`` and has the home cluster ``i // size``, where ``size = n_workers /
    clusters``. With ``flexibility > 1`` it may serve in that many clusters from its home on: `assign` spreads predicted
    stragglers over them, `with_assignment` makes the code of a round.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; they are equal.
    clusters
        A divisor of ``n_workers``; by default the largest up to its square root.
    stragglers
        Tolerated in each cluster; a tenth of its size, at least 1, by default.
    flexibility
        Clusters a worker may serve in, and whose partitions it must be able to read; 1 is static.
    inner
        The code of a cluster: ``"cyclic"``, ``"frc"``, ``"auto"`` for the second where it fits, or a code.
    assignment
        Cluster of each worker; home clusters by default.
    seed
        Of a cyclic inner code.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, ``clusters`` does not divide ``n_workers``, ``stragglers`` is not less than
        the size of a cluster, ``flexibility`` is not in ``1 ... clusters``, the inner code does not fit, or the
        assignment sends a worker where it may not serve or leaves a slot of a cluster empty.

    References
    ----------
    B. Buyukates, E. Ozfatura, S. Ulukus, D. Gunduz, "Gradient Coding with Dynamic Clustering for Straggler-Tolerant
    Distributed Learning", 2021, arXiv:2103.01206.

    Examples
    --------
    >>> code = ClusteredCode(6, 6, clusters=2, stragglers=1, flexibility=2)
    >>> code.tracker().add(0).missing
    (0, 1, 2, 3, 4, 5)
    >>> late = [True, True, False, False, False, False]
    >>> today = code.with_assignment(code.assign(late))
    >>> tracker = today.tracker()
    >>> [bool(tracker.add(worker)) for worker in (2, 3, 4, 5)]
    [False, False, False, True]
    """

    name = "clustered"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        clusters: int | None = None,
        stragglers: int | None = None,
        flexibility: int = 1,
        inner: Inner = "auto",
        assignment: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(n_workers, k)
        n = self.n_workers
        require_square(self.name, n, self.k)
        self.clusters = _near_square_root(n) if clusters is None else clusters
        check_clusters(n, self.clusters, flexibility)
        self.size = n // self.clusters
        self.flexibility = flexibility
        self._seed = seed
        try:
            s = a_tenth(self.size) if stragglers is None else check_stragglers(stragglers, self.size)
        except InputError as error:
            raise InputError(f"clusters of {self.size} workers: {error}") from None
        self.inner = inner_code(inner, self.size, s, seed)
        homes = tuple(worker // self.size for worker in range(n))
        self.assignment = homes if assignment is None else self._checked(assignment)

    def _checked(self, assignment: Sequence[int]) -> tuple[int, ...]:
        if len(assignment) != self.n_workers:
            raise InputError(f"assignment must have one cluster per worker, {self.n_workers}, got {len(assignment)}")
        taken: dict[tuple[int, int], int] = {}
        for worker, cluster in enumerate(assignment):
            allowed = self.allowed(worker)
            if cluster not in allowed:
                raise InputError(f"assignment: worker {worker} may serve in the clusters {allowed}, got {cluster}")
            other = taken.setdefault((int(cluster), worker % self.size), worker)
            if other != worker:
                raise InputError(
                    f"assignment: workers {other} and {worker} both take slot {worker % self.size} of cluster {cluster}"
                )
        return tuple(int(cluster) for cluster in assignment)

    # -- structure -----------------------------------------------------------------------------------

    def allowed(self, worker: int) -> tuple[int, ...]:
        """Return the clusters in which a worker may serve, its home first."""
        check_message(worker, self.n_workers)
        return allowed_clusters(worker, self.n_workers, self.clusters, self.flexibility)

    def stored(self, worker: int) -> tuple[int, ...]:
        """Return all partitions that a worker may be asked for, over the clusters in which it may serve."""
        parts, _ = self.inner.row(worker % self.size)
        return tuple(cluster * self.size + j for cluster in self.allowed(worker) for j in parts)

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions that a worker combines in its present cluster, and their coefficients."""
        check_message(message, self.n_messages)
        parts, coefficients = self.inner.row(message % self.size)
        first = self.assignment[message] * self.size
        return tuple(first + j for j in parts), coefficients

    def _build_generator(self) -> FloatArray:
        matrix = np.zeros((self.n_workers, self.k))
        for worker in range(self.n_workers):
            parts, coefficients = self.row(worker)
            matrix[worker, list(parts)] = coefficients
        return matrix

    def tracker(self) -> ClusterTracker:
        """Make a fresh tracker of the clusters."""
        return ClusterTracker(self.assignment, [self.inner.tracker() for _ in range(self.clusters)])

    # -- from round to round -------------------------------------------------------------------------

    def assign(self, flags: Sequence[bool], seed: int = 0) -> tuple[int, ...]:
        """Return the cluster of each worker that spreads the flagged ones evenly; see `balanced_assignment`."""
        return balanced_assignment(self.n_workers, self.clusters, self.flexibility, flags, seed=seed)

    def with_assignment(self, assignment: Sequence[int]) -> ClusteredCode:
        """Return this code with workers in other clusters; the inner code is shared.

        Raises
        ------
        InputError
            If a worker may not serve where it is sent, or a slot of a cluster is left empty.
        """
        return ClusteredCode(
            self.n_workers,
            self.k,
            clusters=self.clusters,
            stragglers=self.inner.tolerated,
            flexibility=self.flexibility,
            inner=self.inner,
            assignment=assignment,
            seed=self._seed,
        )

    # -- bounds --------------------------------------------------------------------------------------

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact: all of them may hit one cluster."""
        return self.inner.tolerated

    def decodable_sets(self, arrived: int) -> int:
        """How many of the sets of so many arrivals determine the gradient."""
        sets = [1]
        one = [self.inner.decodable_sets(f) for f in range(self.size + 1)]
        for _ in range(self.clusters):
            longer = [0] * (len(sets) + self.size)
            for i, a in enumerate(sets):
                for j, b in enumerate(one):
                    longer[i + j] += a * b
            sets = longer
        return sets[arrived]

    def p_decodable(self, arrived: int) -> float:
        """Probability that a uniformly random set of so many arrivals determines the gradient."""
        return float(Fraction(self.decodable_sets(arrived), math.comb(self.n_workers, arrived)))

    # -- decoding ------------------------------------------------------------------------------------

    def _solve(self, arrived: Array) -> Weights:
        served = np.array(self.assignment)[arrived]
        a, alpha = np.zeros(self.n_workers), np.empty(self.k)
        error = growth = 0.0
        for cluster in range(self.clusters):
            mine = arrived[served == cluster]
            found = self.inner.weights((mine % self.size).tolist())
            a[mine] = found.a[mine % self.size]
            alpha[cluster * self.size : (cluster + 1) * self.size] = found.alpha
            error += found.error
            growth += found.amplification
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, error, growth / math.sqrt(self.clusters), "by-cluster")

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        parameters = {
            "clusters": self.clusters,
            "stragglers": self.inner.tolerated,
            "flexibility": self.flexibility,
            "inner": self.inner.name,
            "seed": self._seed,
        }
        homes = tuple(worker // self.size for worker in range(self.n_workers))
        return parameters if self.assignment == homes else {**parameters, "assignment": list(self.assignment)}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the inner code included."""
        return {**super().manifest(), "inner": self.inner.manifest()}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ClusteredCode:
        """Rebuild the code from its manifest alone, with the stored inner code."""
        params = {**manifest["params"], "inner": inner_from_manifest(manifest["inner"])}
        return cls(manifest["n_workers"], manifest["k"], **params)


def _near_square_root(n: int) -> int:
    return next(p for p in range(math.isqrt(n), 0, -1) if n % p == 0)
