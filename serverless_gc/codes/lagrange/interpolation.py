"""Recovering values of a polynomial from any ``threshold`` of its evaluations: one weighted sum of messages a value.

Shared by Lagrange coding and by the matrix-matrix codes that evaluate polynomials. Message ``i`` is ``rows[i] @ c`` for
unknown coefficients ``c``, any ``threshold`` rows being independent; wanted is ``targets @ c``. Weights depend on who
arrived, not on what, and are remembered.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, promoted
from serverless_gc.codes.dense import combine_blocks
from serverless_gc.codes.received import (
    accuracy_warning,
    default_tolerance,
    not_decodable,
    receive,
    refuse_inaccurate,
    refuse_mismatch,
    refuse_non_finite,
    solve_dtype,
    unit_roundoff,
    with_residual,
)
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array

__all__ = ["GUARD", "Interpolation", "ThresholdTracker", "Weighting", "shortest_weights"]

GUARD = 1e-11
"""Predicted error above which to wait for further results, each of which lowers it by orders of magnitude."""

_MOST_CHECKS = 4
"""Combinations of the surplus to evaluate: each involves every message."""

_KEPT_PATTERNS = 128


def shortest_weights(targets: Array, q: Array, r: Array) -> Array:
    """Return the weights of least norm with ``weights @ rows = targets``, where ``rows = q @ r``.

    Small singular values are not cut off: that would leave the equations unmet, which no norm of weights tells. Where
    the rows are singular weights are infinite.

    Examples
    --------
    >>> shortest_weights(np.array([[4.0]]), *np.linalg.qr(np.array([[1.0], [1.0]]))).round(12)
    array([[2., 2.]])
    """
    try:
        weights: Array = np.linalg.solve(r.T, targets.T).T @ q.conj().T
    except np.linalg.LinAlgError:
        return np.full((len(targets), len(q)), np.inf)
    return weights


class ThresholdTracker(Tracker):
    """Decodable at ``threshold`` distinct messages, or when every block arrived itself. ``O(1)`` per arrival.

    Fewer messages may determine a sum, if they happen to lie at the nodes of a quadrature formula, or the coefficients
    of one parity, if they lie in symmetric pairs: too rare to be sought.
    """

    __slots__ = ("_copied", "_copies", "_count", "_k", "_seen", "_threshold")

    def __init__(self, n: int, threshold: int, k: int, copies: Mapping[int, int]) -> None:
        self._threshold = threshold
        self._k = k
        self._copies = copies
        self._count = 0
        self._seen = bytearray(n)
        self._copied: set[int] = set()

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._seen))
        if not self._seen[message]:
            self._seen[message] = 1
            self._count += 1
            if message in self._copies:
                self._copied.add(self._copies[message])
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine the answer."""
        return self._count >= self._threshold or len(self._copied) == self._k

    def missing(self) -> tuple[int, ...]:
        """Blocks that did not arrive themselves, until enough messages determine them all."""
        return () if self.decodable else tuple(j for j in range(self._k) if j not in self._copied)


@dataclass(frozen=True, slots=True)
class Weighting:
    """How the messages of one arrival pattern are combined.

    Attributes
    ----------
    weights
        ``(values wanted, arrived)``.
    checks
        ``(c, arrived)``: orthonormal combinations that vanish on evaluations of such a polynomial.
    amplification
        By how much rounding of the messages can grow: the largest norm of a row of weights, times how much larger the
        messages are than the values wanted.
    method
        ``"copy"``, ``"lu"`` or ``"lstsq"``.
    """

    weights: Array
    checks: Array
    amplification: float
    method: str


class Interpolation:
    """Values of a polynomial from any ``threshold`` of ``n`` evaluations.

    Parameters
    ----------
    label
        Name of the code, for messages.
    rows
        ``(n, threshold)``, real or complex: message ``i`` is ``rows[i] @ coefficients``.
    targets
        ``(w, threshold)``: wanted is ``targets @ coefficients``.
    k
        Number of source blocks.
    total
        Whether one sum is wanted rather than ``k`` blocks: the answer then has the shape of a message.
    copies
        Message to the source block whose value it is.
    growth
        How much larger messages are than the values wanted.
    """

    def __init__(
        self,
        label: str,
        rows: Array,
        targets: Array,
        *,
        k: int,
        total: bool = False,
        copies: Mapping[int, int] | None = None,
        growth: float = 1.0,
    ) -> None:
        self.label = label
        self.generator = rows
        self.targets = targets
        self.threshold = int(rows.shape[1])
        self.k = k
        self.total = total
        self.copies = dict(copies or {})
        self.growth = growth
        self._known: OrderedDict[tuple[int, ...], Weighting] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes."""
        return self.threshold

    def source_of(self, message: int) -> int | None:
        """Index of the block whose value this message is, or None; always None if a sum is wanted."""
        check_message(message, len(self.generator))
        return None if self.total else self.copies.get(message)

    def tracker(self) -> ThresholdTracker:
        """Make a fresh tracker."""
        return ThresholdTracker(len(self.generator), self.threshold, self.k, self.copies)

    def weighting(self, messages: Iterable[int]) -> Weighting:
        """Return the weights for a set of arrived messages, in ascending order; those of late patterns are remembered.

        Raises
        ------
        NotDecodableError
            If the messages do not determine the answer.
        """
        ids = tuple(sorted(set(messages)))
        with self._lock:
            if ids in self._known:
                self._known.move_to_end(ids)
                return self._known[ids]
        tracker = self.tracker()
        for i in ids:
            tracker.add(i)
        if not tracker.decodable:
            hint = f"any {self.threshold} determine them: {self.threshold - len(ids)} more are needed"
            raise not_decodable(self.label, len(ids), tracker.missing(), hint)
        with single_blas_thread():
            made = self._solve(ids)
        with self._lock:
            self._known[ids] = made
            if len(self._known) > _KEPT_PATTERNS:
                self._known.popitem(last=False)
        return made

    def _solve(self, ids: Sequence[int]) -> Weighting:
        size, surplus = self.threshold, len(ids) - self.threshold
        place = {self.copies[i]: column for column, i in reversed(list(enumerate(ids))) if i in self.copies}
        rows = self.generator[list(ids)]
        q, r = np.linalg.qr(rows, mode="complete")
        checks = q[:, size : size + _MOST_CHECKS].conj().T
        if len(place) == self.k:  # every block is there as it is
            weights = np.zeros((self.k, len(ids)), rows.dtype)  # as complex as the checks are
            weights[list(place), list(place.values())] = 1.0
            weights = weights.sum(axis=0, keepdims=True) if self.total else weights
            return Weighting(weights, checks, float(np.linalg.norm(weights, axis=1).max()), "copy")
        weights = shortest_weights(self.targets, q[:, :size], r[:size])
        if not self.total:
            for block, column in place.items():
                weights[block] = 0.0
                weights[block, column] = 1.0
        amplification = self.growth * float(np.linalg.norm(weights, axis=1).max())
        return Weighting(weights, checks, amplification, "lstsq" if surplus else "lu")

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If the messages do not determine the answer.
        """
        ids = tuple(sorted(set(messages)))
        return self._certificate(ids, self.weighting(ids), promoted(np.dtype(dtype)))

    def _certificate(self, ids: tuple[int, ...], weighting: Weighting, dtype: np.dtype[Any]) -> Certificate:
        solved = weighting.method != "copy"
        predicted = unit_roundoff(dtype) * weighting.amplification * math.sqrt(self.threshold) if solved else 0.0
        used = [column for column in range(len(ids)) if np.any(weighting.weights[:, column])]
        return Certificate(
            weighting.method,
            used=tuple(ids[column] for column in used),
            amplification=weighting.amplification,
            predicted_error=predicted,
            unknowns=self.threshold if solved else 0,
            warning=accuracy_warning(predicted, dtype),
            weights={ids[c]: weighting.weights[0, c].item() for c in used} if self.total else {},
        )

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Combine arrived messages into the values wanted; see `Code.decode`.

        Surplus messages enter the weights, which shortens them much, and are checked against one another.

        Returns
        -------
        array, certificate
            Shape ``(w, ...)``, or that of a message for a total.
        """
        got = receive(values, len(self.generator))
        weighting = self.weighting(got.ids)
        certificate = self._certificate(got.ids, weighting, got.dtype)
        refuse_inaccurate(self.label, certificate.predicted_error, tolerance, got.ids)
        dtype = np.result_type(got.dtype, np.complex64) if np.iscomplexobj(weighting.weights) else got.dtype
        stacked = out[np.newaxis] if self.total and out is not None else out
        output = Output.prepare(stacked, (len(weighting.weights), *got.shape), dtype)
        checks = weighting.checks if len(weighting.checks) else None
        arrays = [got.values[i] for i in got.ids]
        work = solve_dtype(got.dtype, certificate)
        residual = combine_blocks(weighting.weights, arrays, output, checks=checks, dtype=work, scale=scale)
        refuse_non_finite(got, [row.reshape(-1) for row in output.array], residual)
        limit = max(tolerance or 0.0, default_tolerance(got.dtype))
        refuse_mismatch(self.label, residual, limit, len(weighting.checks))
        answer = output.finish()
        if self.total:
            answer = answer[0, ...] if out is None else out
        return answer, with_residual(certificate, residual, len(weighting.checks))
