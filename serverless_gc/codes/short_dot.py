"""Short-Dot: coded rows with zeros, so that every worker needs only some entries of a long vector.

References
----------
S. Dutta, V. Cadambe, P. Grover, *Short-Dot: Computing Large Linear Transforms Distributedly Using Coded Short Dot
Products*, NeurIPS 2016 (arXiv 1704.05181).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from serverless_gc.codes.base import Certificate, Code, check_dense, check_message
from serverless_gc.codes.blocks import Output, check_blocks, promoted
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.mds.nonsystematic import AllOrNothingTracker, require
from serverless_gc.codes.received import GUARD, accuracy_warning, receive, refuse_inaccurate
from serverless_gc.codes.support import Support
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import Array, FloatArray

__all__ = ["ShortDotCode"]

_WORST_CONDITION = 1e8
_SINGULAR = 1e15
_DRAWS = 20

_CHECKED_FLOPS = 10**8
"""Systems for the fillers are tried as long as that takes a moment; a larger random matrix is taken on trust."""

_SAMPLE = 32
"""Columns looked at to tell how large the entries of the messages are."""


class _Threshold(LinearCode):
    """All ``threshold`` unknowns: the blocks, and the fillers after them."""

    name: ClassVar[str] = "short-dot"

    def tracker(self) -> AllOrNothingTracker:  # type: ignore[override]  # any tracker is a tracker: the rank is known
        return AllOrNothingTracker(self.n_workers, self.k, self.k)


class ShortDotCode(Code):
    """``k`` blocks of few long rows, coded so that worker ``i`` needs ``x`` only at the columns of `columns`.

    The blocks are completed by ``threshold - k`` filler blocks; message ``i`` is row ``i`` of ``B`` applied to both.
    Column by column the fillers are chosen such that ``threshold - k`` of the workers, in turn, hold an exact zero
    there. Each worker so stores, reads of ``x`` and multiplies a share ``1 - (threshold - k) / n_workers``, and any
    ``threshold`` results decode. Use it where ``x`` is huge and sending it is what takes the time; otherwise
    `MDSCode`, which needs only ``k`` results.

    Fillers depend on the data: no generator over the ``k`` blocks describes the messages. `generator` holds the part
    of ``B`` that acts on the blocks themselves.

    Parameters
    ----------
    n_workers, k
        Numbers of workers (``P`` in the paper) and of blocks (``M``).
    threshold
        Number of results that decode (``K``), between ``k`` and ``n_workers``; by default half way.
    matrix
        ``B``, shape ``(n_workers, threshold)``, with every square submatrix invertible. Independent normal entries
        by default.
    seed
        Of the draw; a manifest stores the matrix itself.

    Raises
    ------
    InputError
        If ``k <= threshold <= n_workers`` does not hold, ``matrix`` does not fit, or a system for the fillers is
        singular.

    Examples
    --------
    >>> import numpy as np
    >>> code = ShortDotCode(3, 1, threshold=2, matrix=[[1, 1], [1, 2], [1, 3]])
    >>> coded = code.encode(np.array([[[1.0, 2.0, 3.0]]]))
    >>> coded.reshape(3, 3)
    array([[ 0.,  1.,  2.],
           [-1.,  0.,  1.],
           [-2., -1.,  0.]])
    >>> code.columns(1, 3)
    array([0, 2])
    >>> x = np.ones(3)
    >>> answer, _ = code.decode({0: coded[0] @ x, 2: coded[2] @ x})
    >>> answer.round(12)
    array([[6.]])
    """

    name: ClassVar[str] = "short-dot"
    guard = GUARD
    needs_whole_rows: ClassVar[bool] = True

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        threshold: int | None = None,
        matrix: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(n_workers, k)
        if self.k > self.n_workers:
            raise InputError(f"k must be at most n_workers={self.n_workers}, got {k}")
        needed: Any = (self.k + self.n_workers) // 2 if threshold is None else threshold
        if isinstance(needed, bool) or not hasattr(needed, "__index__") or not self.k <= needed <= self.n_workers:
            raise InputError(
                f"threshold must be an integer from k={self.k} to n_workers={self.n_workers}, got {threshold!r}"
            )
        seed = check_seed(seed)
        self._threshold = int(needed)
        self._seed: int | None = seed if matrix is None else None
        if matrix is None:
            b = self._draw(seed)
        else:
            b = np.array(matrix, dtype=np.float64)
            if b.shape != (self.n_workers, self._threshold) or not np.isfinite(b).all():
                raise InputError(
                    f"matrix must be finite, of shape (n_workers, threshold) = ({self.n_workers}, {self._threshold}), "
                    f"got shape {b.shape}"
                )
            if not self._worst(b) <= _SINGULAR:
                raise InputError("matrix must have invertible square submatrices: a system for the fillers is singular")
        self._all = _Threshold(b)

    def _draw(self, seed: int) -> FloatArray:
        check_dense(self.n_workers, self._threshold)
        rng = np.random.default_rng(seed)
        for _ in range(_DRAWS):
            b = rng.normal(size=(self.n_workers, self._threshold))
            if self._worst(b) <= _WORST_CONDITION:
                return b
        raise InputError(f"no well conditioned matrix in {_DRAWS} draws: try another seed")

    def _zeros(self, column: int) -> Array:
        """Workers with a zero in the columns congruent to ``column``."""
        return (column + np.arange(self._threshold - self.k)) % self.n_workers

    def _worst(self, b: FloatArray) -> float:
        """Return the worst condition of a system for the fillers; 1.0 where there are too many to try."""
        fillers = self._threshold - self.k
        if not fillers or self.n_workers * fillers**3 > _CHECKED_FLOPS:
            return 1.0
        with single_blas_thread():
            systems = np.stack([b[self._zeros(column), self.k :] for column in range(self.n_workers)])
            return float(np.linalg.cond(systems).max())

    def _coefficients(self, column: int) -> FloatArray:
        """Return what all messages hold of the blocks in the columns congruent to ``column``, shape ``(n, k)``."""
        coefficients = self.matrix[:, : self.k].copy()
        coefficients -= self.matrix[:, self.k :] @ self._fillers(column)
        coefficients[self._zeros(column)] = 0.0
        return coefficients

    def _fillers(self, column: int) -> Array:
        """Return the fillers, up to their sign, as combinations of the blocks, in such columns."""
        rows = self.matrix[self._zeros(column)]
        with single_blas_thread():
            return np.linalg.solve(rows[:, self.k :], rows[:, : self.k])

    @cached_property
    def _growth(self) -> float:
        """Typical size of the terms of a message relative to the blocks, over a sample of the columns.

        Fillers of ill-conditioned systems are large, cancel, and leave their roundings behind.
        """
        sample = range(0, self.n_workers, -(-self.n_workers // _SAMPLE))
        direct, through = np.hsplit(np.square(self.matrix), [self.k])
        sums = [direct.sum(axis=1) + through @ np.square(self._fillers(column)).sum(axis=1) for column in sample]
        return max(1.0, math.sqrt(float(np.mean(sums))))

    # -- structure -----------------------------------------------------------------------------------

    @property
    def threshold(self) -> int:
        """Number of results that decode."""
        return self._threshold

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes: ``threshold``."""
        return self._threshold

    @property
    def average_threshold(self) -> float:
        """Mean number of results at the first decodable moment: ``threshold``."""
        return float(self._threshold)

    @property
    def density(self) -> float:
        """Share of the entries of ``x`` that a worker needs."""
        return 1 - (self._threshold - self.k) / self.n_workers

    @property
    def matrix(self) -> FloatArray:
        """``B``, shape ``(n_workers, threshold)``, read-only."""
        return self._all.generator

    def _build_generator(self) -> FloatArray:
        return np.ascontiguousarray(self.matrix[:, : self.k])

    @property
    def growth(self) -> float:
        """Largest factor by which an entry of a message can exceed those of the blocks, in any column."""
        return max(float(np.abs(self._coefficients(column)).sum(axis=1).max()) for column in range(self.n_workers))

    def source_of(self, message: int) -> None:
        """None: every message is a combination with fillers."""
        check_message(message, self.n_workers)

    def columns(self, worker: int, n_cols: int) -> Array:
        """Columns of the blocks, and entries of ``x``, that ``worker`` needs, ascending; its block is zero elsewhere.

        What is stored and sent is in another order, that of `support`.

        Parameters
        ----------
        worker
            Number of the worker.
        n_cols
            Number of columns of the blocks.
        """
        super().placement(worker)
        return np.arange(n_cols) if self.support is None else np.sort(self.support.columns(worker, n_cols))

    @cached_property
    def support(self) -> Support | None:
        """The residues of the columns that each worker needs, modulo ``n_workers``; None without fillers."""
        n, fillers = self.n_workers, self._threshold - self.k
        if not fillers:
            return None
        return Support(n, tuple(tuple(sorted((i - t) % n for t in range(fillers, n))) for i in range(n)))

    # -- the three jobs ------------------------------------------------------------------------------

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Encode blocks whose last axis is the columns; see `Code.encode`.

        Zeros follow the columns, so blocks have at least two dimensions, and all columns are given at once.

        Raises
        ------
        InputError
            Also if the blocks are one-dimensional.
        """
        ids = list(range(self.n_workers) if messages is None else messages)
        for i in ids:
            check_message(i, self.n_workers)
        arrays, dtype = check_blocks(blocks, self.k)
        if arrays[0].ndim < 2:
            raise InputError(
                "short-dot places its zeros by column: blocks must be matrices (rows x columns), got shape "
                f"{arrays[0].shape}; encode whole blocks by code.encode, or use code 'mds', which takes them in pieces"
            )
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        real = np.finfo(dtype).dtype
        with single_blas_thread():  # many small products: threads would only wait for each other
            for column in range(min(self.n_workers, arrays[0].shape[-1])):
                here = np.stack([a[..., column :: self.n_workers] for a in arrays]).astype(dtype, copy=False)
                coefficients = self._coefficients(column)[ids].astype(real)
                output.array[..., column :: self.n_workers] = np.tensordot(coefficients, here, 1)
        return output.finish()

    def tracker(self) -> AllOrNothingTracker:
        """Make a fresh tracker."""
        return AllOrNothingTracker(self.n_workers, self._threshold, self.k)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If there are fewer than ``threshold``.
        """
        certificate = self._all.certify(self._require(messages), dtype)
        return self._with_growth(certificate, promoted(np.dtype(dtype)))

    def _with_growth(self, certificate: Certificate, dtype: np.dtype[Any]) -> Certificate:
        """Messages are larger than blocks, and so are their roundings."""
        predicted = certificate.predicted_error * self._growth
        return replace(certificate, predicted_error=predicted, warning=accuracy_warning(predicted, dtype))

    def _require(self, messages: Iterable[int]) -> list[int]:
        return require(self.name, messages, self.n_workers, self._threshold, self.k)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Solve for blocks and fillers from all arrived messages, and return the blocks; see `Code.decode`."""
        got = receive(values, self.n_workers)
        self._require(got.ids)
        solved, certificate = self._all.decode(got.values, tolerance=tolerance, scale=scale)
        certificate = self._with_growth(certificate, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        output.array[...] = solved[: self.k]
        return output.finish(), certificate

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        params: dict[str, Any] = {"threshold": self._threshold}
        return {**params, "matrix": self.matrix.tolist()} if self._seed is None else {**params, "seed": self._seed}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, ``B`` itself included."""
        params = {"threshold": self._threshold}
        if self._seed is not None:
            params["seed"] = self._seed
        return {**Code.manifest(self), "params": params, "matrix": self.matrix}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ShortDotCode:
        """Rebuild the code from its manifest alone: the stored matrix counts, nothing is drawn again."""
        params = manifest["params"]
        code = cls(manifest["n_workers"], manifest["k"], threshold=params["threshold"], matrix=manifest["matrix"])
        code._seed = params.get("seed")
        return code

    def __repr__(self) -> str:
        return f"ShortDotCode(n_workers={self.n_workers}, k={self.k}, threshold={self._threshold})"
