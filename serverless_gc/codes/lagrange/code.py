"""Lagrange coded computing: data blocks on a polynomial curve.

A worker that evaluates a polynomial ``F`` of its coded block evaluates, without knowing it, one polynomial of one
variable at its point; enough of those evaluations determine ``F`` of every data block.

References
----------
Q. Yu, S. Li, N. Raviv, S. M. Mousavi Kalan, M. Soltanolkotabi, A. S. Avestimehr, Lagrange Coded Computing: Optimal
Design for Resiliency, Security and Privacy, 2019.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Certificate, Code
from serverless_gc.codes.dense import encode_dense
from serverless_gc.codes.lagrange.interpolation import GUARD, Interpolation, ThresholdTracker
from serverless_gc.codes.lagrange.points import (
    OVERSAMPLING,
    chebyshev_points,
    chebyshev_rows,
    check_points,
    lagrange_basis,
    merge_points,
)
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["EvaluatedCode", "LagrangeCode"]

SAFE_BLOCKS, MOST_BLOCKS = 10, 20
"""Up to how many blocks interpolation is accurate, and up to how many it is usable with surplus results."""


class LagrangeCode(Code):
    """Lagrange code: worker ``i`` stores the polynomial through the data blocks, evaluated at its own point.

    For a product ``A @ x`` any ``k`` results decode, as with an MDS code. The code is for more than that: if workers
    return a polynomial of degree ``d`` in their block, any ``(k - 1) d + 1`` results decode (`evaluated`). Numbers of
    blocks must be small: interpolation in floating-point numbers loses accuracy exponentially.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of data blocks.
    data_points, worker_points
        ``k`` and ``n_workers`` different real numbers; the Chebyshev points of that many by default, which are far
        more accurate than equally spaced ones. Where both have a point in common the worker stores a copy of the
        block.
    allow_unstable
        Accept more than 20 blocks, and say nothing of more than 10 or of few workers.

    Warns
    -----
    UserWarning
        If there are more than 10 blocks, or (from `evaluated`) fewer than 1.3 workers for each result needed.

    Raises
    ------
    InputError
        If ``k > n_workers``, ``k > 20`` (unless allowed), or points are not finite, not as many or not different.

    Examples
    --------
    Squares of three numbers, each worker squaring one number that is none of them:

    >>> code = LagrangeCode(n_workers=8, k=3)
    >>> stored = code.encode(np.array([1.0, 2.0, 3.0]))
    >>> squares = code.evaluated(degree=2)
    >>> squares.threshold
    5
    >>> answer, certificate = squares.decode({i: stored[i] ** 2 for i in (0, 2, 3, 5, 7)})
    >>> answer.round(9)
    array([1., 4., 9.])
    """

    name = "lagrange"
    guard = GUARD

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        data_points: ArrayLike | None = None,
        worker_points: ArrayLike | None = None,
        allow_unstable: bool = False,
    ) -> None:
        super().__init__(n_workers, k)
        if self.k > self.n_workers:
            raise InputError(f"k must be at most n_workers={self.n_workers}, got {self.k}")
        self.allow_unstable = bool(allow_unstable)
        self._check_size()
        self._given: dict[str, Any] = {}
        self.data_points = self._points("data_points", data_points, self.k)
        self.worker_points = merge_points(
            self._points("worker_points", worker_points, self.n_workers), self.data_points
        )
        for points in (self.data_points, self.worker_points):
            points.setflags(write=False)
        self._linear = self._interpolation(1, total=False)

    def _points(self, label: str, given: ArrayLike | None, n: int) -> FloatArray:
        if given is None:
            return chebyshev_points(n)
        points = check_points(label, given, n)
        self._given[label] = points.tolist()
        return points

    def _check_size(self) -> None:
        if self.allow_unstable or self.k <= SAFE_BLOCKS:
            return
        if self.k > MOST_BLOCKS:
            raise InputError(
                f"k must be at most {MOST_BLOCKS}, got {self.k}: interpolation through more blocks loses all digits; "
                "use fewer blocks, another code, or allow_unstable=True"
            )
        warnings.warn(
            f"k={self.k} data blocks: interpolation is accurate up to {SAFE_BLOCKS}; with more, launch many more "
            "workers than results needed, use float64, and look at the certificate (allow_unstable=True to silence)",
            UserWarning,
            stacklevel=4,
        )

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes a linear computation: ``k``."""
        return self.k

    def _build_generator(self) -> FloatArray:
        return lagrange_basis(self.data_points, self.worker_points)

    def source_of(self, message: int) -> int | None:
        """Index of the block of which this worker stores a copy, or None."""
        return self._linear.source_of(message)

    def _interpolation(self, degree: int, *, total: bool) -> Interpolation:
        both = np.concatenate([self.data_points, self.worker_points])
        low, high = float(both.min()), float(both.max())
        if low >= -1 and high <= 1 and high - low > 1:  # the basis of the default points, whose form is simplest
            low, high = -1.0, 1.0
        threshold = (self.k - 1) * degree + 1
        targets = chebyshev_rows(self.data_points, threshold, low, high)
        at = {point: j for j, point in enumerate(self.data_points.tolist())}
        return Interpolation(
            self.name,
            chebyshev_rows(self.worker_points, threshold, low, high),
            targets.sum(axis=0, keepdims=True) if total else targets,
            k=self.k,
            total=total,
            copies={i: at[point] for i, point in enumerate(self.worker_points.tolist()) if point in at},
        )

    def evaluated(self, degree: int, *, total: bool = False) -> EvaluatedCode:
        """Return the code of a round in which workers return a polynomial of their block.

        Parameters
        ----------
        degree
            Total degree of the polynomial in the entries of the block: 1 for ``X w``, 2 for ``X.T (X w)``.
        total
            Whether only the sum over the data blocks is wanted: then decoding is a single weighted sum.

        Raises
        ------
        InputError
            If ``degree`` is less than 1, or needs more results than there are workers.
        """
        return EvaluatedCode(self, degree, total=total)

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Evaluate the polynomial through the blocks at the workers' points; see `Code.encode`."""
        return encode_dense(self.generator, blocks, range(self.n_workers) if messages is None else messages, out)

    def tracker(self) -> ThresholdTracker:
        """Make a fresh tracker."""
        return self._linear.tracker()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        The error has a long tail, and each further result shortens it by orders of magnitude: wait for one more while
        ``predicted_error`` exceeds your tolerance.

        Raises
        ------
        NotDecodableError
            If there are fewer than ``k``.
        """
        return self._linear.certify(messages, dtype)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Interpolate a computation that is linear in the block; see `Code.decode`."""
        return self._linear.decode(values, out=out, tolerance=tolerance, scale=scale)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {**self._given, **({"allow_unstable": True} if self.allow_unstable else {})}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the points included."""
        points = {"data_points": self.data_points, "worker_points": self.worker_points}
        return {**super().manifest(), **points}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Code:
        """Rebuild the code from its manifest alone; that of an `EvaluatedCode` too."""
        params = manifest["params"]
        points = {label: manifest[label] for label in ("data_points", "worker_points")}
        # Allowed, since whoever made the code was warned.
        code = cls(manifest["n_workers"], manifest["k"], **points, allow_unstable=True)
        code.allow_unstable = bool(params.get("allow_unstable", False))
        code._given = {label: params[label] for label in points if label in params}
        return code.evaluated(**manifest["evaluated"]) if "evaluated" in manifest else code


class EvaluatedCode(Code):
    """The code of a round in which workers return a polynomial of their Lagrange coded block.

    Made by `LagrangeCode.evaluated`. Any ``threshold`` results decode. The unknowns of its generator are the
    ``threshold`` coefficients, in the Chebyshev basis, of the polynomial that the workers evaluate.

    Attributes
    ----------
    source
        The code of the data blocks.
    degree
        Degree of the polynomial in the entries of a block.
    total
        Whether `decode` returns one sum, of the shape of a message, instead of ``k`` values.
    threshold
        Results after which every set decodes: ``(k - 1) * degree + 1``.
    """

    name = "lagrange"
    guard = GUARD

    def __init__(self, source: LagrangeCode, degree: int, *, total: bool) -> None:
        super().__init__(source.n_workers, source.k)
        self.name = source.name  # type: ignore[misc]  # reports name the code that the user chose
        self.source = source
        self.degree = check_whole("degree", degree, 1)
        self.total = bool(total)
        self.threshold = (self.k - 1) * self.degree + 1
        if self.n_workers < self.threshold:
            raise InputError(
                f"n_workers must be at least (k - 1) * degree + 1 = {self.threshold} for k={self.k} and "
                f"degree={self.degree}, got {self.n_workers}"
            )
        if self.n_workers < math.floor(OVERSAMPLING * self.threshold) and not source.allow_unstable:
            warnings.warn(
                f"n_workers={self.n_workers} for {self.threshold} results needed: launch at least "
                f"{math.ceil(OVERSAMPLING * self.threshold)}, or a late result costs accuracy, not only time "
                "(allow_unstable=True to silence)",
                UserWarning,
                stacklevel=3,
            )
        self._interpolation = source._interpolation(self.degree, total=self.total)  # noqa: SLF001 - of one family

    @property
    def target(self) -> Literal["blocks", "sum"]:
        """Whether `decode` gives the polynomial of every data block or their sum."""
        return "sum" if self.total else "blocks"

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes."""
        return self.threshold

    def _build_generator(self) -> FloatArray:
        return self._interpolation.generator

    def source_of(self, message: int) -> int | None:
        """Index of the block whose value this message is, or None; always None if a sum is wanted."""
        return self._interpolation.source_of(message)

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Encode data blocks as the Lagrange code does: what the workers evaluate their polynomial of."""
        return self.source.encode(blocks, out, messages=messages)

    def tracker(self) -> ThresholdTracker:
        """Make a fresh tracker."""
        return self._interpolation.tracker()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted; see `LagrangeCode.certify`."""
        return self._interpolation.certify(messages, dtype)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Interpolate what the workers returned; see `Code.decode`.

        Returns
        -------
        array, certificate
            The polynomial of each data block, shape ``(k, ...)``, or their sum; for a sum the certificate has the
            weights.
        """
        return self._interpolation.decode(values, out=out, tolerance=tolerance, scale=scale)

    def params(self) -> dict[str, Any]:
        """Parameters of the code of the data blocks."""
        return self.source.params()

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs."""
        return {**self.source.manifest(), "evaluated": {"degree": self.degree, "total": self.total}}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Code:
        """Rebuild the code from its manifest alone."""
        return LagrangeCode.from_manifest(manifest)

    def __repr__(self) -> str:
        return f"{self.source!r}.evaluated({self.degree}, total={self.total})"
