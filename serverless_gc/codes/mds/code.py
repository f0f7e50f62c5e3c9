"""Maximum distance separable codes over the reals: any ``k`` of ``n`` results determine the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from serverless_gc.codes.base import Certificate, Code, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, as_rows, check_blocks, combine, promoted, put
from serverless_gc.codes.mds.parity import draw_parity, explicit_parity, spectral_norm
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
from serverless_gc.inject import check_seed
from serverless_gc.types import Array, FloatArray

__all__ = ["CountTracker", "MDSCode"]

_MOST_CHECKS = 4
"""Combinations of the surplus to evaluate: each involves every message used, so a few see whatever is wrong, at a
small part of the price of them all."""


class CountTracker(Tracker):
    """Decodable at ``k`` distinct messages. ``O(1)`` per arrival."""

    __slots__ = ("_count", "_k", "_n", "_seen")

    def __init__(self, n: int, k: int) -> None:
        self._n = n
        self._k = k
        self._count = 0
        self._seen = bytearray(n)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._n)
        if not self._seen[message]:
            self._seen[message] = 1
            self._count += 1
        return Verdict(self._count >= self._k, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether ``k`` distinct messages arrived."""
        return self._count >= self._k

    def missing(self) -> tuple[int, ...]:
        """Source blocks that did not arrive themselves, until ``k`` messages determine them all."""
        if self.decodable:
            return ()
        return tuple(j for j in range(self._k) if not self._seen[j])


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Lost and kept source blocks, and the parity rows that arrived."""

    lost: list[int]
    kept: list[int]
    parity: list[int]

    @property
    def surplus(self) -> int:
        return len(self.parity) - len(self.lost)

    def used(self, k: int) -> list[int]:
        return [*self.kept, *(k + r for r in self.parity)]


class MDSCode(Code):
    """Systematic MDS code with random parity: any ``k`` of ``n_workers`` results decode.

    Workers ``0 .. k-1`` hold the source blocks themselves, the others hold random combinations ``P @ blocks``.
    Random parity is the construction that stays well conditioned at hundreds of workers: structured ones
    (Vandermonde, Chebyshev, roots of unity, Cauchy) lose all digits there.

    Parameters
    ----------
    n_workers, k
        Number of workers and of blocks, ``k <= n_workers``.
    parity
        ``"orthonormal"``: rows of a random orthonormal basis. ``"gaussian"``: independent normal entries of
        variance ``1/k``, about twice the condition number. Or an explicit matrix of shape ``(n_workers - k, k)``.
    seed
        Seed of the draw. A manifest stores the parity itself: streams of random numbers change between versions.

    Raises
    ------
    InputError
        If ``k > n_workers``, ``parity`` is unknown or does not fit, or ``seed`` is not a whole number.

    References
    ----------
    K. Lee, M. Lam, R. Pedarsani, D. Papailiopoulos, K. Ramchandran, Speeding Up Distributed Machine Learning Using
    Codes, 2018. Z. Chen, J. Dongarra, Condition Numbers of Gaussian Random Matrices, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> code = MDSCode(n_workers=6, k=4)
    >>> blocks = np.arange(8.0).reshape(4, 2)
    >>> coded = code.encode(blocks)
    >>> decoded, certificate = code.decode({i: coded[i] for i in (0, 2, 4, 5)})
    >>> bool(np.allclose(decoded, blocks)), certificate.unknowns
    (True, 2)
    """

    name = "mds"
    guard = GUARD

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        parity: Literal["orthonormal", "gaussian"] | ArrayLike = "orthonormal",
        seed: int = 0,
    ) -> None:
        super().__init__(n_workers, k)
        if self.k > self.n_workers:
            raise InputError(f"k must be at most n_workers={self.n_workers}, got {self.k}")
        seed = check_seed(seed)
        with single_blas_thread():
            if isinstance(parity, str):
                self._params: dict[str, Any] = {"parity": parity, "seed": seed}
                self._parity = draw_parity(self.n_workers - self.k, self.k, parity, seed)
            else:
                self._params = {}
                self._parity = explicit_parity(parity, self.n_workers - self.k, self.k)
            self._parity_norm = spectral_norm(self._parity)
        self._parity.setflags(write=False)

    @property
    def parity(self) -> FloatArray:
        """Parity rows, shape ``(n_workers - k, k)``, read-only."""
        return self._parity

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes: ``k``."""
        return self.k

    @property
    def average_threshold(self) -> float:
        """Mean number of results at the first decodable moment: ``k``."""
        return float(self.k)

    def _build_generator(self) -> FloatArray:
        return np.concatenate([np.eye(self.k), self._parity])

    def source_of(self, message: int) -> int | None:
        """Index of the block that ``message`` carries unchanged, or None for a parity message."""
        check_message(message, self.n_workers)
        return message if message < self.k else None

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Copy the source blocks and compute the parity; see `Code.encode`.

        Where ``out[i]`` already is block ``i`` nothing is copied.
        """
        ids = range(self.n_workers) if messages is None else messages
        for i in ids:
            check_message(i, self.n_workers)
        arrays, dtype = check_blocks(blocks, self.k)
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        for row, i in enumerate(ids):
            if i < self.k:
                put(output.array, row, arrays[i])
        rows = [row for row, i in enumerate(ids) if i >= self.k]
        if rows:
            coefficients = self._parity[[ids[row] - self.k for row in rows]]
            combine(coefficients, as_rows(blocks, arrays, dtype), output.rows(rows))
        return output.finish()

    def tracker(self) -> CountTracker:
        """Make a fresh tracker."""
        return CountTracker(self.n_workers, self.k)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        The condition number has a heavy tail, ``P(condition > x)`` is about ``lost / x``, and each further result
        shortens it much: wait for one more while ``predicted_error`` exceeds your tolerance.

        Parameters
        ----------
        messages
            Ids of the arrived messages.
        dtype
            Of their values.

        Raises
        ------
        NotDecodableError
            If there are fewer than ``k``.
        """
        pattern = self._pattern(sorted(set(messages)))
        with single_blas_thread():
            inverse, _ = self._solve(pattern)
        return self._certificate(pattern, inverse, promoted(np.dtype(dtype)))

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Solve for the lost blocks from all parity messages that arrived; see `Code.decode`.

        Raises
        ------
        InputError
            Also if a message that was combined holds NaN or infinity; names it.
        """
        got = receive(values, self.n_workers)
        pattern = self._pattern(got.ids)
        with single_blas_thread():
            inverse, null = self._solve(pattern)
            certificate = self._certificate(pattern, inverse, got.dtype)
            refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
            # z = inverse @ (y_R - P[R, K] @ y_K) as one combination of everything that arrived; what is
            # orthogonal to the range of P[R, S] must vanish.
            across = self._parity[np.ix_(pattern.parity, pattern.kept)]
            coefficients = np.concatenate([-inverse @ across, inverse], axis=1)
            checks = np.concatenate([-null @ across, null], axis=1) if len(null) else None
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        for j in pattern.kept:
            put(output.array, j, got.values[j])
        residual = 0.0
        if pattern.parity:
            lost = output.rows(pattern.lost)
            sources = got.rows(pattern.used(self.k), got.dtype)
            work = solve_dtype(got.dtype, certificate)
            residual = combine(coefficients, sources, lost, checks=checks, dtype=work, scale=scale)
            # Every lost block is a combination of all messages used: the first one shows what is wrong with any.
            refuse_non_finite(got, lost[:1], residual)
            limit = max(tolerance or 0.0, default_tolerance(got.dtype))
            refuse_mismatch(self.name, residual, limit, len(null))
        return output.finish(), with_residual(certificate, residual, len(null))

    def _pattern(self, ids: Sequence[int]) -> _Pattern:
        for i in ids:
            check_message(i, self.n_workers)
        present = set(ids)
        lost = [j for j in range(self.k) if j not in present]
        if len(ids) < self.k:
            raise not_decodable(self.name, len(ids), tuple(lost), f"{self.k - len(ids)} more results are needed")
        return _Pattern(lost, [i for i in ids if i < self.k], [i - self.k for i in ids if i >= self.k])

    def _solve(self, pattern: _Pattern) -> tuple[Array, Array]:
        """Return the (pseudo-)inverse of ``P[R, S]`` and some unit vectors orthogonal to its range and one another."""
        matrix = self._parity[np.ix_(pattern.parity, pattern.lost)]
        size = len(pattern.lost)
        try:
            if not pattern.surplus:
                return np.linalg.inv(matrix), np.empty((0, size))
            q, r = np.linalg.qr(matrix, mode="complete")
            return np.linalg.inv(r[:size]) @ q[:, :size].T, q[:, size : size + _MOST_CHECKS].T
        except np.linalg.LinAlgError:
            return np.full(matrix.T.shape, np.inf), np.empty((0, len(matrix)))

    def _certificate(self, pattern: _Pattern, inverse: Array, dtype: np.dtype[Any]) -> Certificate:
        if not pattern.lost:
            return Certificate("systematic", used=tuple(pattern.kept))
        smallest = 1 / spectral_norm(inverse)
        # The recovery matrix [[I, 0], [P_K, P_S]] decouples, for orthonormal parity, into blocks [[1, 0], [c, s]] with
        # c^2 + s^2 = 1, s the singular values of P_S; of such a block the condition number is known.
        both = 1 + max(self._parity_norm, smallest) ** 2
        condition = (both + math.sqrt(max(both**2 - 4 * smallest**2, 0.0))) / (2 * smallest) if smallest else math.inf
        predicted = unit_roundoff(dtype) * condition
        return Certificate(
            "lstsq" if pattern.surplus else "lu",
            used=tuple(pattern.used(self.k)),
            amplification=condition,
            predicted_error=predicted,
            unknowns=len(pattern.lost),
            warning=accuracy_warning(predicted, dtype),
        )

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return dict(self._params) or {"parity": self._parity.tolist()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the parity itself included."""
        return {**super().manifest(), "params": dict(self._params), "parity": self._parity}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> MDSCode:
        """Rebuild the code from its manifest alone: the stored parity counts, nothing is drawn again."""
        code = cls(manifest["n_workers"], manifest["k"], parity=manifest["parity"])
        code._params = dict(manifest["params"])
        return code

    def __repr__(self) -> str:
        extra = "".join(f", {key}={value!r}" for key, value in self._params.items()) or ", parity=..."
        return f"MDSCode(n_workers={self.n_workers}, k={self.k}{extra})"
