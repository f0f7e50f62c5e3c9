"""The generic code: any generator, any placement. The reference every faster code is tested against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, as_rows, check_blocks, combine, promoted
from serverless_gc.codes.received import (
    GUARD,
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
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["LinearCode", "RankTracker", "as_linear", "check_placement", "outside"]

_DEPENDENT = 1e-10
"""A row whose part outside the span is shorter than this, relative to the row, adds nothing to the rank: rounding
leaves about 1e-16 times the conditioning of the rows before it."""

_MOSTLY_NEW = 0.5
"""A row of which this part is outside the span has lost one bit to cancellation: orthogonal enough as it is."""

_DETERMINED = 1e-8
"""A source block is determined if its unit vector is this close to the span of the arrived rows."""


def outside(row: Array, basis: Array) -> tuple[Array, float]:
    """Return what is left of a row, scaled to unit length, outside the span of orthonormal rows, and its length.

    By Gram-Schmidt, done again where most of the row was in the span, because once then loses orthogonality.

    Examples
    --------
    >>> outside(np.array([3.0, 4.0]), np.array([[1.0, 0.0]]))
    (array([0. , 0.8]), 0.8)
    """
    length = math.sqrt(np.vdot(row, row).real)
    if length == 0:
        return row, 0.0
    conjugate, rest = basis.conj(), row / length
    rest -= (conjugate @ rest) @ basis
    left = math.sqrt(np.vdot(rest, rest).real)
    if left < _MOSTLY_NEW:
        rest -= (conjugate @ rest) @ basis
        left = math.sqrt(np.vdot(rest, rest).real)
    return rest, left


class RankTracker(Tracker):
    """Decodable when the arrived rows of the generator have full rank.

    Keeps an orthonormal basis of the rows; one arrival costs ``O(k * rank)``.
    """

    __slots__ = ("_basis", "_generator", "_k", "_rank", "_seen")

    def __init__(self, generator: FloatArray) -> None:
        self._generator = generator
        self._k = int(generator.shape[1])
        self._basis = np.empty((self._k, self._k))
        self._rank = 0
        self._seen: set[int] = set()

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._generator.shape[0])
        if message not in self._seen:
            self._seen.add(message)
            if self._rank < self._k:
                self._extend(self._generator[message])
        return Verdict(self._rank == self._k, self.missing)

    def _extend(self, row: FloatArray) -> None:
        rest, left = outside(row, self._basis[: self._rank])
        if left > _DEPENDENT:
            self._basis[self._rank] = rest / left
            self._rank += 1

    @property
    def decodable(self) -> bool:
        """Whether the messages added so far determine every source block."""
        return self._rank == self._k

    def missing(self) -> tuple[int, ...]:
        """Source blocks whose unit vector is not in the span of the arrived rows."""
        if self.decodable:
            return ()
        basis = self._basis[: self._rank]
        outside = np.eye(basis.shape[1]) - basis.T @ basis
        return tuple(np.flatnonzero(np.linalg.norm(outside, axis=0) > _DETERMINED).tolist())


class LinearCode(Code):
    """A code given by its generator and its placement.

    Parameters
    ----------
    generator
        Real matrix of shape ``(n_messages, k)``: message ``i`` is ``generator[i] @ blocks``.
    placement
        For each worker the ids of the messages it computes, in order. By default worker ``i`` computes message
        ``i``; with ``n_workers`` fewer than messages, each worker gets an equal run of consecutive messages.
    n_workers
        Number of workers; taken from ``placement`` or the generator when omitted.

    Raises
    ------
    InputError
        If the generator is not a finite real matrix of rank ``k``, or the placement does not place every message or
        names an unknown one.

    Examples
    --------
    A new code is its generator. Here three workers, any two of which suffice:

    >>> import numpy as np
    >>> code = LinearCode([[1, 0], [0, 1], [1, 1]])
    >>> blocks = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> coded = code.encode(blocks)
    >>> decoded, certificate = code.decode({1: coded[1], 2: coded[2]})
    >>> bool(np.allclose(decoded, blocks)), certificate.method
    (True, 'lstsq')
    """

    name = "linear"
    guard = GUARD

    def __init__(
        self,
        generator: ArrayLike,
        *,
        placement: Sequence[Sequence[int]] | None = None,
        n_workers: int | None = None,
    ) -> None:
        matrix = _real_matrix(generator)
        if n_workers is None:
            n_workers = len(matrix) if placement is None else len(placement)
        super().__init__(n_workers, matrix.shape[1])
        self._matrix = matrix
        self._placement = check_placement(placement, self.n_workers, len(matrix))
        rank = int(np.linalg.matrix_rank(matrix))
        if rank < self.k:
            raise InputError(f"generator must have rank k={self.k}, or no set of messages decodes; its rank is {rank}")

    @property
    def n_messages(self) -> int:
        """Number of rows of the generator."""
        return len(self._matrix)

    def placement(self, worker: int) -> tuple[int, ...]:
        """Message ids that ``worker`` computes, in the order it computes them."""
        super().placement(worker)
        return self._placement[worker]

    def _build_generator(self) -> FloatArray:
        return self._matrix

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Combine the blocks by the rows of the generator; see `Code.encode`."""
        ids = list(range(self.n_messages) if messages is None else messages)
        for i in ids:
            check_message(i, self.n_messages)
        arrays, dtype = check_blocks(blocks, self.k)
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        combine(self._matrix[ids], as_rows(blocks, arrays, dtype), output.rows(range(len(ids))))
        return output.finish()

    def tracker(self) -> RankTracker:
        """Make a fresh rank tracker."""
        return RankTracker(self.generator)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block.
        """
        ids = tuple(sorted(set(messages)))
        self._require_decodable(ids)
        with single_blas_thread():
            values = np.linalg.svd(self.generator[list(ids)], compute_uv=False)
        return self._certificate(ids, values, promoted(np.dtype(dtype)))

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Reconstruct the source blocks by least squares over all arrived messages; see `Code.decode`."""
        got = receive(values, self.n_messages)
        self._require_decodable(got.ids)
        with single_blas_thread():
            u, s, vt = np.linalg.svd(self.generator[list(got.ids)])
        certificate = self._certificate(got.ids, s, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        surplus = len(got.ids) - self.k
        solved = output.rows(range(self.k))
        residual = combine(
            (vt.T / s) @ u[:, : self.k].T,
            got.rows(got.ids, got.dtype),
            solved,
            checks=u[:, self.k :].T if surplus else None,
            dtype=solve_dtype(got.dtype, certificate),
            scale=scale,
        )
        refuse_non_finite(got, solved, residual)
        limit = max(tolerance or 0.0, default_tolerance(got.dtype))
        refuse_mismatch(self.name, residual, limit, surplus)
        return output.finish(), with_residual(certificate, residual, surplus)

    def _require_decodable(self, ids: Sequence[int]) -> None:
        tracker = self.tracker()
        for i in ids:
            tracker.add(i)
        if not tracker.decodable:
            raise not_decodable(self.name, len(ids), tracker.missing(), "wait for more results")

    def _certificate(self, ids: tuple[int, ...], singular: Array, dtype: np.dtype[Any]) -> Certificate:
        condition = float(singular[0] / singular[-1]) if singular[-1] else np.inf
        predicted = unit_roundoff(dtype) * condition
        return Certificate(
            "lstsq",
            used=ids,
            amplification=condition,
            predicted_error=predicted,
            unknowns=self.k,
            warning=accuracy_warning(predicted, dtype),
        )

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code; the placement only if it is not the default."""
        generator = {"generator": self._matrix.tolist()}
        if self._placement == tuple((i,) for i in range(self.n_messages)):
            return generator
        return {**generator, "placement": [list(ids) for ids in self._placement]}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the generator included."""
        return {
            "code": self.name,
            "version": 1,
            "n_workers": self.n_workers,
            "k": self.k,
            "params": {},
            "generator": self._matrix,
            "placement": [list(ids) for ids in self._placement],
        }

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> LinearCode:
        """Rebuild the code from its manifest alone."""
        return cls(manifest["generator"], placement=manifest["placement"])

    def __repr__(self) -> str:
        return f"LinearCode(n_workers={self.n_workers}, k={self.k}, n_messages={self.n_messages})"


def as_linear(code: Code) -> LinearCode:
    """View any code as the generic linear code with its generator and placement: slow, and right by construction.

    Examples
    --------
    >>> from serverless_gc.codes.replication import ReplicationCode
    >>> as_linear(ReplicationCode(4, 2))
    LinearCode(n_workers=4, k=2, n_messages=4)
    """
    return LinearCode(code.generator, placement=[code.placement(j) for j in range(code.n_workers)])


def _real_matrix(generator: ArrayLike) -> FloatArray:
    raw = np.asarray(generator)
    if raw.ndim != 2 or 0 in raw.shape:
        raise InputError(f"generator must be a matrix (messages x blocks), got shape {raw.shape}")
    if raw.dtype.kind not in "biuf":
        raise InputError(f"generator must be real, got dtype {raw.dtype}")
    matrix = np.array(raw, dtype=np.float64, order="C")
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise InputError(f"generator must be finite, row {row} is not")
    return matrix


def check_placement(
    placement: Sequence[Sequence[int]] | None, n_workers: int, n_messages: int
) -> tuple[tuple[int, ...], ...]:
    """Check who computes which message; ``None`` shares them out evenly, in order."""
    if placement is None:
        each, left = divmod(n_messages, n_workers)
        if left or not each:
            raise InputError(
                f"n_workers={n_workers} workers cannot share {n_messages} messages evenly: give the placement"
            )
        return tuple(tuple(range(w * each, (w + 1) * each)) for w in range(n_workers))
    if len(placement) != n_workers:
        raise InputError(f"placement must have one entry per worker (n_workers={n_workers}), got {len(placement)}")
    lists = tuple(tuple(int(i) for i in ids) for ids in placement)
    for worker, ids in enumerate(lists):
        for i in ids:
            if not 0 <= i < n_messages:
                raise InputError(f"placement of worker {worker} names message {i}, ids are 0..{n_messages - 1}")
        if len(set(ids)) < len(ids):
            raise InputError(f"placement of worker {worker} names a message twice: {ids}")
    unplaced = sorted(set(range(n_messages)).difference(*lists))
    if unplaced:
        raise InputError(f"placement must give every message to a worker, nobody computes {unplaced}")
    return lists
