"""Code for workers that straggle with known, different probabilities: unbiased, with the least variance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_dense, check_message
from serverless_gc.codes.gradient.approximate import ApproximateCode
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.codes.gradient.drawn import pack_counts, unpack_counts
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["HeterogeneousCode", "allocate"]

_NEVER = 1e-12
"""A worker that straggles no more often than this always answers."""


class HeterogeneousCode(ApproximateCode):
    """Weights inversely proportional to the probability of straggling, so that every partition counts once on average.

    Of all decoders with fixed weights that are unbiased for this placement, ``weights(..., "unbiased")`` has the least
    variance, `unbiased_error`. The optimal weights, by default, have a smaller error but are biased.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    p
        Probability that a worker misses the deadline, in ``[0, 1)``: one for each worker, or one for all.
    placement
        For each partition the workers that hold it; `allocate` chooses if None.
    load
        Partitions that a worker holds, one number or one for each worker, where ``placement`` is not given; on average
        two copies of each partition if None.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If a probability is outside ``[0, 1)``, a partition has no holder, or a holder is unknown or named twice.

    References
    ----------
    H. Song, W. Choi, Approximate Gradient Coding for Distributed Learning with Heterogeneous Stragglers, 2025,
    arXiv:2510.22539. The closed form and the allocation are derived here.

    Examples
    --------
    >>> code = HeterogeneousCode(3, 3, p=[0.1, 0.2, 0.5], placement=[[0, 1], [1, 2], [0, 2]])
    >>> code.coefficients.round(4).tolist(), round(code.unbiased_error, 7)
    ([[0.7692, 0.0, 1.0], [0.3846, 1.0, 0.0], [0.0, 0.4, 0.2]], 0.3769231)
    """

    name = "heterogeneous"
    methods: ClassVar[tuple[str, ...]] = (*ApproximateCode.methods, "unbiased")

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        p: float | ArrayLike = 0.1,
        placement: Sequence[Sequence[int]] | None = None,
        load: int | Sequence[int] | None = None,
        wait: int | None = None,
    ) -> None:
        super().__init__(n_workers, k, wait=wait)
        self._p = _probabilities(p, self.n_workers)
        if placement is None:
            load = min(self.k, -(-2 * self.k // self.n_workers)) if load is None else load
            try:
                placement = allocate(self._p, self.k, load)
            except InputError as error:
                raise InputError(f"load: {error}") from None
        elif load is not None:
            raise InputError("load must not be given together with placement: the placement says it")
        self._holders = _holders(placement, self.n_workers, self.k)
        self._weights, self._matrix = _least_variance(self._p, self._holders)

    @property
    def p(self) -> FloatArray:
        """Probability of straggling of each worker."""
        return self._p.copy()

    @property
    def coefficients(self) -> FloatArray:
        """What an arrived worker adds to each partition's weight, ``a_i B_ij``, shape ``(n_workers, k)``."""
        return self._weights[:, None] * self._matrix

    @property
    def variances(self) -> FloatArray:
        """Variance of each partition's weight under the unbiased decoder, shape ``(k,)``."""
        return (self._p * (1 - self._p)) @ self.coefficients**2

    @property
    def unbiased_error(self) -> float:
        """Mean error of the unbiased decoder when workers straggle independently: the sum of the variances."""
        return float(self.variances.sum())

    def uncovered(self, messages: Iterable[int]) -> tuple[int, ...]:
        """Return the partitions none of whose holders is among these arrivals: they are missing from the answer."""
        arrived = sorted(set(messages))
        for message in arrived:
            check_message(message, self.n_messages)
        return tuple(np.flatnonzero(~self._matrix[arrived].any(axis=0)).tolist())

    def _build_generator(self) -> FloatArray:
        return self._matrix.copy()

    def _by_method(self, arrived: Array, method: str) -> Weights:
        """Return the weights; ``"unbiased"`` are the fixed ones of the scheme, whoever else arrived."""
        if method != "unbiased":
            return super()._by_method(arrived, method)
        return self._weighted(arrived, self._weights[arrived], method)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        placement = [np.flatnonzero(column).tolist() for column in self._holders.T]
        return {"p": self._p.tolist(), "placement": placement, **super().params()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs: probabilities and placement."""
        return {**super().manifest(), "params": super().params(), "p": self._p, "holders": pack_counts(self._holders)}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> HeterogeneousCode:
        """Rebuild the code from its manifest alone."""
        n, k = manifest["n_workers"], manifest["k"]
        holders = unpack_counts(manifest["holders"], (n, k))
        placement = [np.flatnonzero(column).tolist() for column in holders.T]
        return cls(n, k, p=manifest["p"], placement=placement, **manifest["params"])

    def __repr__(self) -> str:
        return f"HeterogeneousCode(n_workers={self.n_workers}, k={self.k}, p=..., placement=...)"


def allocate(
    p: ArrayLike, k: int, capacity: int | Sequence[int], *, tolerance: float | None = None
) -> list[tuple[int, ...]]:
    """Place partitions so that unreliable workers back one another and reliable ones are spent first.

    Workers take turns from the most reliable to the least; each takes the partitions whose holders' odds of answering,
    ``(1 - p) / p`` summed, are smallest so far.

    Parameters
    ----------
    p
        Probability of straggling of each worker, shape ``(n,)``, in ``[0, 1)``.
    k
        Number of partitions.
    capacity
        Partitions that a worker can hold, for all or for each.
    tolerance
        Mean squared error per partition at which to stop early; if None capacity is used while it helps.

    Returns
    -------
    list of tuple
        For each partition its holders, ascending.

    Raises
    ------
    InputError
        If the capacities do not suffice for every partition, or an argument is out of range.

    Examples
    --------
    >>> allocate([0.1, 0.2, 0.3, 0.4], 4, 2)
    [(0,), (0,), (1, 2, 3), (1, 2, 3)]
    """
    given = np.asarray(p)
    chances = _probabilities(given, max(given.size, 1))
    k = check_whole("k", k, 1)
    check_dense(len(chances), k)
    caps = [capacity] * len(chances) if not isinstance(capacity, Sequence) else list(capacity)
    if len(caps) != len(chances):
        raise InputError(f"capacity must be one number or one for each of {len(chances)} workers, got {len(caps)}")
    caps = [check_whole("capacity", cap, 0, k) for cap in caps]
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"tolerance must be positive, got {tolerance}")
    odds = np.where(chances > _NEVER, (1 - chances) / np.maximum(chances, _NEVER), np.inf)
    enough = np.inf if tolerance is None else 1 / tolerance
    reached = np.zeros(k)
    holders: list[list[int]] = [[] for _ in range(k)]
    for worker in np.argsort(-odds, kind="stable").tolist():
        if (reached >= enough).all():
            break
        for j in np.argsort(reached, kind="stable")[: caps[worker]].tolist():
            holders[j].append(worker)
            reached[j] += odds[worker]
    empty = [j for j, workers in enumerate(holders) if not workers]
    if empty:
        raise InputError(
            f"capacity must be at least k={k} in all, it is {sum(caps)}: partitions {empty[:10]} have no holder; "
            "raise it"
        )
    return [tuple(sorted(workers)) for workers in holders]


def _probabilities(p: float | ArrayLike, n: int) -> FloatArray:
    given = np.asarray(p)
    if given.dtype.kind not in "iuf" or given.shape not in {(), (n,)}:
        raise InputError(f"p must be one number or one for each of {n} workers, got shape {given.shape}")
    chances = np.array(np.broadcast_to(given, (n,)), dtype=np.float64)
    wrong = np.flatnonzero(~((chances >= 0) & (chances < 1)))
    if len(wrong):
        raise InputError(
            f"p must be in [0, 1), that of worker {wrong[0]} is {chances[wrong[0]]}: leave out workers that never "
            "answer"
        )
    return chances


def _holders(placement: Sequence[Sequence[int]], n: int, k: int) -> FloatArray:
    """Who holds what, as a 0/1 matrix of shape ``(n, k)``."""
    if len(placement) != k:
        raise InputError(f"placement must list the holders of each of k={k} partitions, got {len(placement)} lists")
    matrix = np.zeros((n, k))
    for j, workers in enumerate(placement):
        if not len(workers):
            raise InputError(f"placement must name a holder of every partition, partition {j} has none")
        for worker in workers:
            i = check_whole(f"placement of partition {j}", worker, 0, n - 1)
            if matrix[i, j]:
                raise InputError(f"placement of partition {j} names worker {i} twice")
            matrix[i, j] = 1.0
    return matrix


def _least_variance(p: FloatArray, holders: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return decoding weights ``1 / p_i`` and the matrix ``1 / S_j``; workers that always answer go first."""
    sure = p <= _NEVER
    weights = 1 / np.where(sure, 1.0, p)
    odds = np.where(sure, 1.0, (1 - p) * weights)
    always = holders * sure[:, None]
    used = np.where(always.any(axis=0), always, holders)
    return weights, used / (odds @ used)
