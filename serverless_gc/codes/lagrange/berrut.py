"""Berrut approximated coded computing: any function of a block, approximately, from any number of results.

References
----------
T. Jahani-Nezhad, M. A. Maddah-Ali, Berrut Approximated Coded Computing: Straggler Resistance Beyond Polynomial
Computing, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, check_message
from serverless_gc.codes.blocks import Output, promoted
from serverless_gc.codes.dense import combine_blocks, encode_dense
from serverless_gc.codes.lagrange.interpolation import ThresholdTracker
from serverless_gc.codes.lagrange.points import barycentric, chebyshev_points, merge_points
from serverless_gc.codes.received import receive, refuse_inaccurate, refuse_non_finite, unit_roundoff
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.types import Array, FloatArray

__all__ = ["BerrutCode"]


class BerrutCode(Code):
    """Berrut code: data blocks on a rational curve without poles, results interpolated by another one.

    Workers may compute any function of their block; the answer is an approximation that improves with the number of
    workers for each block and with the number of results. Nothing grows: rounding is not amplified.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of data blocks; many times more workers than blocks.
    awaited
        Number of results that a round waits for; three quarters of the workers by default. `decode` takes any number.

    Raises
    ------
    InputError
        If ``k > n_workers``, or ``awaited`` is not in ``1 .. n_workers``.

    Examples
    --------
    >>> code = BerrutCode(n_workers=100, k=4)
    >>> stored = code.encode(np.array([0.1, 0.2, 0.3, 0.4]))
    >>> answer, certificate = code.decode({i: np.tanh(stored[i]) for i in range(100) if i % 4})
    >>> bool(np.allclose(answer, np.tanh([0.1, 0.2, 0.3, 0.4]), rtol=0.05)), certificate.method
    (True, 'berrut')
    """

    name = "berrut"
    exact = False

    def __init__(self, n_workers: int, k: int, *, awaited: int | None = None) -> None:
        super().__init__(n_workers, k)
        if self.k > self.n_workers:
            raise InputError(f"k must be at most n_workers={self.n_workers}, got {self.k}")
        self.awaited = -(-3 * self.n_workers // 4) if awaited is None else awaited
        if isinstance(self.awaited, bool) or not hasattr(self.awaited, "__index__"):
            raise InputError(f"awaited must be an integer, got {awaited!r}")
        if not 1 <= self.awaited <= self.n_workers:
            raise InputError(f"awaited must be in 1..n_workers={self.n_workers}, got {self.awaited}")
        self.data_points = chebyshev_points(self.k)
        steps = max(1, self.n_workers - 1)
        ends = np.cos(np.pi * np.arange(self.n_workers) / steps)
        self.worker_points = merge_points(ends, self.data_points)
        at = {point: j for j, point in enumerate(self.data_points.tolist())}
        self._copies = {i: at[point] for i, point in enumerate(self.worker_points.tolist()) if point in at}

    def _build_generator(self) -> FloatArray:
        return barycentric(self.data_points, _alternating(self.k), self.worker_points)

    def source_of(self, message: int) -> int | None:
        """Index of the block of which this worker stores a copy, or None."""
        check_message(message, self.n_workers)
        return self._copies.get(message)

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Evaluate the rational function through the blocks at the workers' points; see `Code.encode`."""
        return encode_dense(self.generator, blocks, range(self.n_workers) if messages is None else messages, out)

    def tracker(self) -> ThresholdTracker:
        """Make a tracker that is content with ``awaited`` results."""
        return ThresholdTracker(self.n_workers, self.awaited, self.k, self._copies)

    def weights(self, messages: Iterable[int]) -> FloatArray:
        """Return the weights of these messages, in ascending order, in each block: shape ``(k, arrived)``.

        Signs alternate by rank among those that arrived: so there is no pole wherever a straggler leaves a gap.

        Raises
        ------
        NotDecodableError
            If there is no message.
        """
        ids = sorted(set(messages))
        if not ids:
            raise NotDecodableError("no message arrived: there is nothing to decode from")
        for i in ids:
            check_message(i, self.n_workers)
        # Worker points descend, so that ascending ids are in order.
        return barycentric(self.worker_points[ids], _alternating(len(ids)), self.data_points)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say what is known of an answer from these messages: ``error`` is exact for a linear function.

        Raises
        ------
        NotDecodableError
            If there is no message.
        """
        ids = tuple(sorted(set(messages)))
        return self._certificate(ids, self.weights(ids), promoted(np.dtype(dtype)))

    def _certificate(self, ids: tuple[int, ...], weights: FloatArray, dtype: np.dtype[Any]) -> Certificate:
        miss = weights @ self.generator[list(ids)] - np.eye(self.k)
        error = float(np.vdot(miss, miss)) / self.k
        growth = float(np.linalg.norm(weights, axis=1).max())
        return Certificate(
            "berrut",
            used=ids,
            amplification=growth,
            predicted_error=unit_roundoff(dtype) * growth,
            warning=f"an approximation: a linear function would be off by {math.sqrt(error):.1%}",
            error=error,
        )

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,  # noqa: ARG002 - nothing is compared: all results enter the answer
    ) -> tuple[Array, Certificate]:
        """Approximate the function's value at each data block, from one or more results; see `Code.decode`.

        Returns
        -------
        array, certificate
            Shape ``(k, ...)``. The certificate's ``error`` is the mean squared relative error that a linear function
            of independent blocks would have; ``predicted_error`` is that of rounding.
        """
        got = receive(values, self.n_workers)
        weights = self.weights(got.ids)
        certificate = self._certificate(got.ids, weights, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        combine_blocks(weights, [got.values[i] for i in got.ids], output)
        refuse_non_finite(got, [row.reshape(-1) for row in output.array], 0.0)
        return output.finish(), certificate

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"awaited": int(self.awaited)}


def _alternating(n: int) -> FloatArray:
    return np.where(np.arange(n) % 2, -1.0, 1.0)
