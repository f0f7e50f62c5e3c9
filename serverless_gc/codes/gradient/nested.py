"""Nested gradient code: workers compute only as much redundancy as the actual number of stragglers asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.base import Tracker, Verdict, check_message
from serverless_gc.codes.gradient.band import Band, NullSpace
from serverless_gc.codes.gradient.base import GradientTracker, Weights
from serverless_gc.codes.gradient.coefficients import CoefficientCode, best_draw
from serverless_gc.codes.gradient.cyclic import annihilated_rows
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers, require_square
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["LevelTracker", "NestedCode", "nested_rows"]

_MOST_BY_DEFAULT = 10


class LevelTracker(Tracker):
    """Decodable when, for some ``t``, at least ``n - t`` workers have reached level ``t`` or a higher one.

    Sufficient: with messages of several levels of one worker the sum may be determined a little earlier. ``O(1)`` per
    arrival, shared out over the levels.
    """

    __slots__ = ("_code", "_done", "_highest", "_reached", "_seen")

    def __init__(self, code: NestedCode) -> None:
        self._code = code
        self._highest = [-1] * code.n_workers
        self._reached = [0] * code.n_levels
        self._seen: set[int] = set()
        self._done = False

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._code.n_messages)
        self._seen.add(message)
        worker, level = divmod(message, len(self._reached))
        for t in range(self._highest[worker] + 1, level + 1):
            self._highest[worker] = t
            self._reached[t] += 1
            self._done = self._done or self._reached[t] >= len(self._highest) - t
        return Verdict(self._done, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether enough workers have reached some level."""
        return self._done

    def missing(self) -> tuple[int, ...]:
        """Partitions that the best weights of the messages so far do not count exactly once."""
        if self._done:
            return ()
        running = GradientTracker(self._code.generator)
        for message in self._seen:
            running.add(message)
        return running.missing()


class NestedCode(CoefficientCode):
    """Worker ``i`` computes partitions ``i, i + 1, ...``; after ``t + 1`` of them it can send a message of level ``t``.

    Level ``t`` is a cyclic repetition code for ``t`` stragglers; level 0 are the plain gradients. With ``u`` silent
    workers the sum is complete after every other worker has done ``u + 1`` partitions. Message ids:
    ``worker * n_levels + level``.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; they are equal.
    stragglers
        Most stragglers tolerated, which is the highest level. By default a tenth of the workers, at most 10: the
        coefficients take ``n_workers * (stragglers + 1)**2`` numbers.
    seed
        Of the random matrix; the draw with the smallest coefficients of 20 is kept.
    coefficients
        Use these instead of drawing, shape ``(n_workers, stragglers + 1, stragglers + 1)``: entry ``[i, t, j]``
        belongs to the level-``t`` message of worker ``i`` and partition ``(i + j) mod n``, zero for ``j > t``; see
        `nested_rows`.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, ``stragglers`` is out of range, or the coefficients are not of that shape.

    References
    ----------
    L. Massny, C. Hofmeister, M. Egger, R. Bitar, A. Wachter-Zeh, "Nested Gradient Codes for Straggler Mitigation in
    Distributed Machine Learning", 2022, arXiv:2212.08580. The nesting by one random matrix is our realisation.

    Examples
    --------
    >>> code = NestedCode(4, 4, stragglers=2)
    >>> code.placement(1), code.row(5)[0]
    ((3, 4, 5), (1, 2, 3))
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(code.message(worker, 1))) for worker in (0, 1, 3)]
    [False, False, True]
    """

    name = "nested"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        stragglers: int | None = None,
        seed: int = 0,
        coefficients: ArrayLike | None = None,
    ) -> None:
        super().__init__(n_workers, k)
        n = self.n_workers
        require_square(self.name, n, self.k)
        most = min(a_tenth(n), _MOST_BY_DEFAULT)
        self._stragglers = most if stragglers is None else check_stragglers(stragglers, n)
        self._note(seed, coefficients)
        made = best_draw(n, self._stragglers, seed, nested_rows) if self._given is None else self._given
        shape = (n, self.n_levels, self.n_levels)
        upper = np.triu(np.ones(shape[1:]), 1) > 0
        if made.shape != shape or not np.isfinite(made).all() or made[:, upper].any():
            raise InputError(
                f"coefficients must be finite, of shape {shape}, and zero beyond the partitions of a level, got shape "
                f"{made.shape}"
            )
        made.setflags(write=False)
        self._coefficients = made
        self._levels: dict[int, tuple[Band, NullSpace]] = {}

    @property
    def coefficients(self) -> FloatArray:
        """Entry ``[i, t, j]`` is the coefficient of partition ``(i + j) mod n`` at level ``t`` of worker ``i``."""
        return self._coefficients

    # -- structure -----------------------------------------------------------------------------------

    @property
    def n_levels(self) -> int:
        """Levels of messages: one more than the stragglers tolerated."""
        return self._stragglers + 1

    @property
    def n_messages(self) -> int:
        """One message for each worker and level."""
        return self.n_workers * self.n_levels

    def message(self, worker: int, level: int) -> int:
        """Return the id of a worker's message of a level."""
        if not 0 <= level < self.n_levels:
            raise InputError(f"level must be in 0..{self._stragglers}, got {level}")
        return self.placement(worker)[level]

    def placement(self, worker: int) -> tuple[int, ...]:
        """Message ids of ``worker``, level 0 first, as it reaches them."""
        super().placement(worker)
        return tuple(range(worker * self.n_levels, (worker + 1) * self.n_levels))

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions of a message in the order of computation, and their coefficients."""
        check_message(message, self.n_messages)
        worker, level = divmod(message, self.n_levels)
        partitions = tuple((worker + j) % self.n_workers for j in range(level + 1))
        return partitions, self.coefficients[worker, level, : level + 1]

    def _build_generator(self) -> FloatArray:
        n, levels = self.n_workers, self.n_levels
        columns = (np.arange(n)[:, None] + np.arange(levels)) % n
        matrix = np.zeros((n, levels, n))
        for level in range(levels):
            matrix[np.arange(n)[:, None], level, columns] = self.coefficients[:, level]
        return matrix.reshape(-1, n)

    def tracker(self) -> LevelTracker:
        """Make a fresh tracker of the levels reached."""
        return LevelTracker(self)

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact."""
        return self._stragglers

    def completion_time(self, times: Sequence[float]) -> float:
        """Return when the sum is complete if worker ``i`` takes ``times[i]`` for each partition.

        The least over the levels of ``(t + 1)`` times the ``(n - t)``-th smallest time.
        """
        if len(times) != self.n_workers:
            raise InputError(f"times must have one entry per worker (n_workers={self.n_workers}), got {len(times)}")
        ordered = sorted(times)
        return min((t + 1) * ordered[self.n_workers - 1 - t] for t in range(self.n_levels))

    # -- decoding ------------------------------------------------------------------------------------

    def _level(self, t: int) -> tuple[Band, NullSpace]:
        if t not in self._levels:
            band = Band(self.coefficients[:, t, : t + 1].copy())
            self._levels[t] = band, NullSpace.of_rows(band.dense(), t)
        return self._levels[t]

    def _solve(self, arrived: Array) -> Weights:
        workers, levels = np.divmod(arrived, self.n_levels)
        enough = self.n_workers - np.arange(self.n_levels)
        for level in np.flatnonzero(np.bincount(levels, minlength=self.n_levels) >= enough):
            weights = self._of_level(int(level), workers[levels == level])
            if weights is not None:
                return weights
        highest = np.full(self.n_workers, -1)
        np.maximum.at(highest, workers, levels)
        for t in range(self.n_levels):
            reached = np.flatnonzero(highest >= t)
            if len(reached) >= self.n_workers - t:
                return self._least_squares(reached * self.n_levels + highest[reached])
        return self._least_squares(arrived)

    def _of_level(self, t: int, workers: Array) -> Weights | None:
        """Weights by the messages of one level; None if they are too inaccurate."""
        band, space = self._level(t)
        lost = np.setdiff1d(np.arange(self.n_workers), workers, assume_unique=True)
        try:
            found = space.avoiding(lost)
        except np.linalg.LinAlgError:
            return None
        alpha = band.effective(found)
        miss = alpha - 1
        growth = float(np.abs(found) @ band.norms) / math.sqrt(self.k)
        if not band.accurate(alpha, growth):
            return None
        a = np.zeros(self.n_messages)
        a[t :: self.n_levels] = found
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, float(miss @ miss), growth, "structured")


def nested_rows(h: FloatArray) -> FloatArray:
    """Return the coefficients of all levels: level ``t`` is annihilated by the first ``t`` rows of a matrix.

    Row ``i`` of level ``t + 1`` is row ``i`` of level ``t`` plus a multiple of row ``i + 1`` of level ``t``: a worker's
    next level needs one more gradient and nothing anew.

    Parameters
    ----------
    h
        Shape ``(s, n)``, rows that sum to zero.

    Returns
    -------
    array
        Shape ``(n, s + 1, s + 1)``: worker, level, place in the band.
    """
    s, n = h.shape
    made = np.zeros((n, s + 1, s + 1))
    for t in range(s + 1):
        made[:, t, : t + 1] = annihilated_rows(h[:t])
    return made
