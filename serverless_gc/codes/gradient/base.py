"""What every gradient code is: an encoding matrix, a running error, and decoding weights.

Worker messages are combinations ``f_i = sum_j B[i, j] g_j`` of partition gradients; only ``g = sum_j g_j`` is wanted.
Whatever the code, an answer is ``sum_i a_i f_i = sum_j alpha_j g_j`` with ``alpha = a @ B``: everything about a set of
arrivals is in ``alpha``, and its distance from all ones is the error.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, CodeKind, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import promoted
from serverless_gc.codes.gradient.multiples import add_multiples
from serverless_gc.codes.linear import outside
from serverless_gc.codes.received import not_decodable, receive, refuse_inaccurate, unit_roundoff
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import DecodeError, InputError
from serverless_gc.types import Array

__all__ = ["EXACT", "GradientCode", "GradientTracker", "Weights"]

EXACT = 1e-12
"""A set of arrivals is exact when its squared error is at most this times the number of partitions. Not to be loosened:
one arrival too early the error of a random code can be as small as 1e-6 although nothing is decodable."""

_NEW_DIRECTION = 1e-10
"""A normalized row whose part outside the span is shorter than this adds nothing."""

_WRONG = 1e-6
_DOUBTFUL = 1e-9
"""Largest entry of ``alpha - 1`` at which an exact answer is refused, or carries a warning."""

_KEPT_PATTERNS = 128


@dataclass(frozen=True, slots=True)
class Weights:
    """How arrived messages are combined, and what that leaves of each partition.

    Attributes
    ----------
    a
        Weight of each message, shape ``(n_messages,)``, or ``(n_messages, fold)`` for codes that fold coordinates;
        0 for messages that did not arrive or are not used.
    alpha
        Effective weight of each partition, shape ``(k,)``: all ones for an exact answer.
    error
        ``||alpha - 1||**2``.
    amplification
        ``sum_i |a_i| * ||B_i|| / sqrt(k)``: by how much rounding of the messages can grow.
    method
        The decoder that found them.
    """

    a: Array
    alpha: Array
    error: float
    amplification: float
    method: str


class GradientTracker(Tracker):
    """Running error of the arrived messages: the squared distance of all ones from the span of their rows.

    Keeps an orthonormal basis of the rows and the residual of the all-ones row; one arrival costs ``O(k * rank)``.
    """

    __slots__ = ("_basis", "_generator", "_rank", "_residual", "_seen")

    def __init__(self, generator: Array) -> None:
        n, k = generator.shape
        self._generator = generator
        self._basis = np.empty((min(n, k), k), np.result_type(generator.dtype, np.float64))
        self._rank = 0
        self._residual = np.ones(k, self._basis.dtype)
        self._seen: set[int] = set()

    @property
    def error(self) -> float:
        """``err(F)``: squared error of the best weights for the messages added so far."""
        return float(np.vdot(self._residual, self._residual).real)

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine the sum exactly."""
        return self.error <= EXACT * len(self._residual)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._generator))
        if message not in self._seen:
            self._seen.add(message)
            if self._rank < len(self._basis):
                self._extend(self._generator[message])
        return Verdict(self.decodable, self.missing)

    def _extend(self, row: Array) -> None:
        rest, left = outside(row, self._basis[: self._rank])
        if left > _NEW_DIRECTION:
            direction = self._basis[self._rank] = rest / left
            self._rank += 1
            self._residual = self._residual - np.vdot(direction, self._residual) * direction

    def missing(self) -> tuple[int, ...]:
        """Partitions that the best weights do not count exactly once."""
        if self.decodable:
            return ()
        return tuple(np.flatnonzero(np.abs(self._residual) > math.sqrt(EXACT)).tolist())


class GradientCode(Code):
    """A code for the sum of ``k`` partition gradients on ``n_workers`` workers.

    A subclass provides `_build_generator`, shape ``(n_messages, k)``, real or complex, and may replace the generic
    `tracker` and `_solve` by faster ones of its own.
    """

    kind: ClassVar[CodeKind] = "gradient"

    def __init__(self, n_workers: int, k: int) -> None:
        super().__init__(n_workers, k)
        self._patterns: OrderedDict[tuple[str, bytes], Weights] = OrderedDict()
        self._patterns_lock = threading.Lock()

    # -- structure -----------------------------------------------------------------------------------

    @abstractmethod
    def _build_generator(self) -> Array:
        """Build the dense encoding matrix; called once."""

    @property
    def target(self) -> Literal["blocks", "sum"]:
        """The sum of all partition gradients is wanted, nothing else."""
        return "sum"

    @property
    def fold(self) -> int:
        """How many gradient coordinates are folded into one number of a message; 1 unless a code says otherwise."""
        return 1

    @property
    def awaited(self) -> int | None:
        """Arrivals after which an approximate code stops waiting by default; None for exact codes."""
        return None

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions that a message combines and their coefficients, in the order of computation.

        Returns
        -------
        partitions, coefficients
            Ids, and an array of shape ``(len(partitions),)``, or ``(len(partitions), fold)`` if ``fold > 1``.
        """
        check_message(message, self.n_messages)
        row = self.generator[message]
        support = np.flatnonzero(row)
        return tuple(support.tolist()), row[support]

    def source_of(self, message: int) -> int | None:  # noqa: ARG002 - a sum is wanted: no message is part of the answer
        """No message is a part of the answer."""
        return None

    def tracker(self) -> Tracker:
        """Make a fresh tracker; a code without a combinatorial rule uses the running error."""
        return GradientTracker(self.generator)

    # -- bounds --------------------------------------------------------------------------------------

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact."""
        return 0

    @property
    def guaranteed_threshold(self) -> int | None:
        """Workers after which every set decodes; None for an approximate code of which all may not give the answer."""
        return self.n_workers - self.tolerated if self.exact or self.tolerated else None

    def expected_error(self, arrived: int) -> float | None:
        """Mean of ``err(F)`` over uniformly random sets of so many arrivals; None if no closed form is known."""
        return 0.0 if arrived >= self.n_workers - self.tolerated else None

    def worst_error(self, stragglers: int) -> float | None:
        """Upper bound of ``err(F)`` over all sets of so many stragglers; None if none is known."""
        return 0.0 if stragglers <= self.tolerated else None

    # -- decoding ------------------------------------------------------------------------------------

    def weights(self, messages: Iterable[int], method: str = "optimal") -> Weights:
        """Return the decoding weights for a set of arrived messages; patterns seen lately are remembered.

        Parameters
        ----------
        messages
            Ids of the arrived messages.
        method
            ``"optimal"`` (least error; the code's own fast solution where it has one), ``"lstsq"`` (the same by
            least squares, minimum norm), ``"one-step"`` (one common weight) or ``"algorithmic"`` (iterations instead
            of a solve).

        Raises
        ------
        InputError
            If a message or the method is unknown.
        """
        arrived = np.zeros(self.n_messages, bool)
        ids = list(messages)
        if ids:
            for message in (min(ids), max(ids)):
                check_message(message, self.n_messages)
            arrived[ids] = True
        key = (method, np.packbits(arrived).tobytes())
        with self._patterns_lock:
            known = self._patterns.get(key)
            if known is not None:
                self._patterns.move_to_end(key)
                return known
        made = self._by_method(np.flatnonzero(arrived), method)
        with self._patterns_lock:
            self._patterns[key] = made
            while len(self._patterns) > _KEPT_PATTERNS:
                self._patterns.popitem(last=False)
        return made

    def _by_method(self, arrived: Array, method: str) -> Weights:
        if method == "optimal":
            return self._solve(arrived)
        if method == "lstsq":
            return self._least_squares(arrived)
        if method == "one-step":
            return self._weighted(arrived, np.full(len(arrived), self._common_weight(len(arrived))), method)
        if method == "algorithmic":
            return self._weighted(arrived, _iterate(self.generator[arrived]), method)
        raise InputError(f"method must be 'optimal', 'lstsq', 'one-step' or 'algorithmic', got {method!r}")

    def _solve(self, arrived: Array) -> Weights:
        """Find the weights of least error for these message ids (ascending)."""
        return self._least_squares(arrived)

    def _least_squares(self, arrived: Array) -> Weights:
        # No normal equations: they square the condition number.
        if not len(arrived):
            return self._weighted(arrived, np.zeros(0), "lstsq")
        with single_blas_thread():
            a = np.linalg.lstsq(self.generator[arrived].T, np.ones(self.k, self.generator.dtype), rcond=None)[0]
        return self._weighted(arrived, a, "lstsq")

    def _common_weight(self, n_arrived: int) -> float:
        """Weight of the one-step decoder: partitions are counted once on average over the arrivals."""
        mean_column = float(self.generator.real.sum()) / self.k
        if n_arrived == 0 or mean_column == 0:
            return 0.0
        return self.n_messages / (n_arrived * mean_column)

    def _weighted(self, arrived: Array, weights: Array, method: str) -> Weights:
        """Complete the weights of the arrived messages."""
        rows = self.generator[arrived]
        a = np.zeros(self.n_messages, np.result_type(weights.dtype, np.float64))
        a[arrived] = weights
        alpha = weights @ rows
        miss = alpha - 1
        growth = float(np.abs(weights) @ np.linalg.norm(rows, axis=1)) / math.sqrt(self.k)
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, float(np.vdot(miss, miss).real), growth, method)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,  # noqa: ARG002 - nothing is compared: arrivals beyond the needed ones share the weight
        approximate: bool | None = None,
        method: str = "optimal",
    ) -> tuple[Array, Certificate]:
        """Combine arrived messages into the sum of all partition gradients.

        Parameters
        ----------
        values
            Message id to its value, all of one shape.
        out
            Where to write, the shape of the answer; allocated when None.
        tolerance
            Largest acceptable predicted relative rounding error.
        scale
            Accepted for the interface; not used.
        approximate
            Whether the best approximation will do where the answer is not determined; by default only for codes that
            are approximate by nature (``exact`` is false).
        method
            See `weights`.

        Returns
        -------
        array, certificate
            The sum (real for real messages of a real code), and how it was obtained: ``error`` is ``err(F)`` and
            ``weights`` what each message was multiplied by.

        Raises
        ------
        NotDecodableError
            If the answer is not determined and an approximation was not asked for.
        DecodeError
            If the weights are too inaccurate to be used.
        """
        got = receive(values, self.n_messages)
        weights = self.weights(got.ids, method)
        self._accept(got.ids, weights, approximate=not self.exact if approximate is None else approximate)
        certificate = self._certificate(got.ids, weights, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        return self._combined(got.values, weights, list(certificate.used), out), certificate

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        ``error`` is that of an approximate answer, ``predicted_error`` that of rounding.

        Raises
        ------
        NotDecodableError
            If the code is exact, and the answer is not determined.
        """
        ids = tuple(sorted(set(messages)))
        weights = self.weights(ids)
        self._accept(ids, weights, approximate=not self.exact)
        return self._certificate(ids, weights, promoted(np.dtype(dtype)))

    def _certificate(self, ids: tuple[int, ...], weights: Weights, dtype: np.dtype[Any]) -> Certificate:
        predicted = unit_roundoff(dtype) * weights.amplification
        if self.exact and math.sqrt(weights.error / self.k) < _WRONG:  # a miscount is rounding too, of the weights
            predicted += math.sqrt(weights.error / self.k)
        used = [i for i in ids if np.any(weights.a[i])]
        return Certificate(
            weights.method,
            used=tuple(used),
            amplification=weights.amplification,
            predicted_error=predicted,
            warning=self._warning(weights, dtype),
            error=weights.error,
            weights={i: weights.a[i].tolist() for i in used},
        )

    def _combined(self, values: Mapping[int, Array], weights: Weights, used: list[int], out: Array | None) -> Array:
        """Sum the used messages; complex codes give back a real answer, since gradients are real."""
        shape = next(iter(values.values())).shape
        dtype = np.result_type(*(values[i].dtype for i in used), weights.a.dtype) if used else np.dtype(float)
        total = np.zeros(shape, dtype)
        add_multiples(total.reshape(-1), ((weights.a[i], values[i].reshape(-1)) for i in used))
        answer: Array = total.real if np.iscomplexobj(weights.alpha) else total
        if out is None:
            return np.ascontiguousarray(answer)
        out[...] = answer
        return out

    def _accept(self, ids: tuple[int, ...], weights: Weights, *, approximate: bool) -> None:
        if approximate:
            return
        worst = float(np.abs(weights.alpha - 1).max())
        if worst <= _WRONG and weights.error <= EXACT * self.k:
            return
        tracker = self.tracker()
        for i in ids:
            tracker.add(i)
        if not tracker.decodable:
            raise not_decodable(
                self.name, len(ids), tracker.missing(), "wait for more results, or accept an approximate gradient"
            )
        raise DecodeError(
            f"{self.name}: these {len(ids)} results determine the gradient, but the weights found miscount a partition "
            f"by {worst:.1e}: the code is too ill-conditioned at this size; choose fewer stragglers or another code",
            predicted=worst,
            tolerance=_WRONG,
        )

    def _warning(self, weights: Weights, dtype: np.dtype[Any]) -> str:
        worst = float(np.abs(weights.alpha - 1).max())
        limit = 1e3 if np.finfo(dtype).bits <= 32 else 1e10
        if weights.amplification > limit:
            return f"rounding grows {weights.amplification:.0e} times in this gradient: encode with dtype=np.float64"
        if self.exact and _DOUBTFUL < worst <= _WRONG:
            return f"partitions are counted with an error of up to {worst:.0e}"
        return ""


def _iterate(rows: Array, tolerance: float = 1e-10, most: int = 1000) -> Array:
    """Approach the weights of least error by gradient steps, each of the cost of one product with the rows."""
    bound = float(np.abs(rows).sum(axis=1).max(initial=0.0) * np.abs(rows).sum(axis=0).max(initial=0.0))
    a = np.zeros(len(rows), rows.dtype)
    if bound == 0:
        return a
    left = np.ones(rows.shape[1], rows.dtype)
    for _ in range(most):
        step = rows.conj() @ left / bound
        a += step
        before = float(np.vdot(left, left).real)
        left = left - step @ rows
        if before - float(np.vdot(left, left).real) <= tolerance * before:
            break
    return a
