"""Communication-efficient gradient code: messages ``m`` times shorter, for ``m - 1`` more partitions of load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_dense, stack_blocks
from serverless_gc.codes.gradient.band import BandCode, NullSpace
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.codes.gradient.multiples import add_multiples
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["YeAbbeCode", "standard_points"]

_MOST_POINTS = 12
_SOLVED_TOGETHER = 2**22


class YeAbbeCode(BandCode):
    """Worker ``w`` holds ``d = s + m`` partitions ``w ... w + d - 1`` and folds ``m`` coordinates into one number.

    A gradient of length ``l`` is cut into runs of ``m`` numbers, padded with zeros at its end; a message holds one
    number for each run: ``c_w[v] = sum_i sum_u E[w, i, u] * g_i[v * m + u]``. Tolerates any ``s`` stragglers, with the
    least load that allows this upload. With ``m = 1`` messages have the shape of a gradient, as in any other code.

    In the weights of a code with ``m > 1``, ``a`` has shape ``(n_workers, m)``; an entry of ``alpha`` is one plus what
    the ``m x m`` block of a partition departs most from the identity by.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions; they are equal.
    stragglers
        Tolerated stragglers ``s``; a tenth of the workers by default.
    fold
        The reduction ``m``; 2 by default where the load allows.
    load
        Partitions each worker computes; follows from the others, may be given instead of one of them.
    matrix
        ``"gaussian"``: stable at any size; ``"vandermonde"``: explicit, up to 12 workers.
    points
        Of the Vandermonde matrix; by default those of `standard_points`.
    seed
        Of the Gaussian matrix.
    basis, coefficients
        The matrices of an earlier code, as its manifest holds them, instead of new ones: shapes
        ``(n_workers - s, n_workers)`` and ``(n_workers, d, m)``; both or none.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, ``load`` is not ``stragglers + fold`` or exceeds ``n_workers``, ``fold`` is
        less than 1, ``stragglers`` is out of range, the points are not distinct, too many, or without a Vandermonde
        matrix, or given matrices have other shapes.

    References
    ----------
    M. Ye, E. Abbe, "Communication-Computation Efficient Gradient Coding", ICML 2018, arXiv:1802.03475.

    Examples
    --------
    >>> import numpy as np
    >>> code = YeAbbeCode(5, 5, stragglers=1, fold=2, matrix="vandermonde", points=[-2, -1, 0, 1, 2])
    >>> sent = code.encode(np.array([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 10]]))
    >>> sent.round(9).ravel().tolist()
    [116.0, 111.0, -24.0, -109.0, 36.0]
    >>> total, _ = code.decode({w: sent[w] for w in (1, 2, 3, 4)})
    >>> total.round(9).tolist()
    [25.0, 30.0]
    """

    name = "ye-abbe"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        stragglers: int | None = None,
        fold: int | None = None,
        load: int | None = None,
        matrix: Literal["gaussian", "vandermonde"] = "gaussian",
        points: Sequence[float] | None = None,
        seed: int = 0,
        basis: ArrayLike | None = None,
        coefficients: ArrayLike | None = None,
    ) -> None:
        if matrix not in {"gaussian", "vandermonde"}:
            raise InputError(f"matrix must be 'gaussian' or 'vandermonde', got {matrix!r}")
        if points is not None and matrix != "vandermonde":
            raise InputError(f"points belong to matrix='vandermonde', got them with matrix={matrix!r}")
        self._matrix = matrix
        self._points = points
        self._seed = seed
        self._given = None if basis is None and coefficients is None else (np.array(basis), np.array(coefficients))
        n = check_whole("n_workers", n_workers, 1)
        s, self._fold = _balanced(n, stragglers, fold, load)
        super().__init__(n, k, s)

    # -- construction --------------------------------------------------------------------------------

    def _coefficients(self) -> Array:
        m = self._fold
        self._basis, made = self._drawn() if self._given is None else self._checked(*self._given)
        self._null_space = _null_space(self._basis, m)
        if made is None:
            made = _by_complement(self._null_space, self._stragglers, m)
        if m > 1:
            return made
        self._null_space = NullSpace(self._null_space.particular[:, 0], self._null_space.basis)
        return made[:, :, 0]

    def _drawn(self) -> tuple[FloatArray, FloatArray | None]:
        n, s = self.n_workers, self._stragglers
        check_dense(n - s, n)
        if self._matrix == "gaussian":
            return np.random.default_rng(self._seed).standard_normal((n - s, n)), None
        v = np.vander(_checked_points(self._points, n), n - s, increasing=True).T
        return v, _by_definition(v, s, self._fold)

    def _checked(self, basis: FloatArray, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        n = self.n_workers
        shapes = [(n - self._stragglers, n), (n, self.load, self._fold)]
        if [basis.shape, coefficients.shape] != shapes:
            raise InputError(f"basis and coefficients must both be given, of shapes {shapes[0]} and {shapes[1]}")
        return basis, coefficients

    def _build_generator(self) -> Array:
        return self._band.dense().reshape(self.n_workers, -1)

    @property
    def generator(self) -> FloatArray:
        """Matrix of shape ``(n_workers, k * fold)``: column ``j * fold + u`` is coordinate ``u`` of partition ``j``."""
        return super().generator

    @property
    def fold(self) -> int:
        """How many gradient coordinates are folded into one number of a message."""
        return self._fold

    @property
    def load(self) -> int:
        """Partitions that each worker computes."""
        return self._stragglers + self._fold

    def fold_length(self, length: int) -> int:
        """Return how many numbers a message holds for a gradient of so many."""
        return -(-length // self._fold)

    # -- encoding and decoding -----------------------------------------------------------------------

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Fold and combine partition gradients; see `Code.encode`.

        Parameters
        ----------
        blocks
            ``k`` gradients of one shape; they are flattened, and padded with zeros to a multiple of ``fold``.
        out
            Shape ``(len(messages), fold_length(size of a gradient))``.
        messages
            Which messages to compute; all of them by default.
        """
        if self._fold == 1:
            return super().encode(blocks, out, messages=messages)
        stacked = stack_blocks(blocks, self.k).reshape(self.k, -1)
        numbers = self.fold_length(stacked.shape[1])
        padding = numbers * self._fold - stacked.shape[1]
        runs = np.pad(stacked, ((0, 0), (0, padding))).reshape(self.k, numbers, self._fold)
        rows = runs.transpose(0, 2, 1).reshape(self.k * self._fold, numbers)
        ids = list(range(self.n_messages) if messages is None else messages)
        coded: Array = self.generator[ids].astype(rows.dtype, copy=False) @ rows
        if out is None:
            return coded
        out[...] = coded
        return out

    def decode(self, values: Mapping[int, Array], *, out: Array | None = None, **options: Any) -> Any:
        """Recover the sum of all partition gradients from arrived messages; see `GradientCode.decode`.

        Parameters
        ----------
        values
            Message id to its value, each a flat array of ``fold_length(l)`` numbers.
        out
            Where to write, ``l`` numbers in any shape. When None the answer is flat, of ``fold_length(l) * fold``
            numbers: those behind the first ``l`` are the padding.
        **options
            As of `GradientCode.decode`. Folded messages know no methods ``"one-step"`` and ``"algorithmic"``.
        """
        return super().decode(values, out=out, **options)

    def _combined(self, values: Mapping[int, Array], weights: Weights, used: list[int], out: Array | None) -> Array:
        if self._fold == 1:
            return super()._combined(values, weights, used, out)
        shape = next(iter(values.values())).shape
        if len(shape) != 1:
            raise InputError(f"messages of a folded gradient must be flat, got shape {shape}")
        total = np.zeros((self._fold, shape[0]), np.result_type(float, *(values[i].dtype for i in used)))
        for u, coordinate in enumerate(total):
            add_multiples(coordinate, ((weights.a[i, u], values[i]) for i in used))
        answer = total.T.reshape(-1)
        if out is None:
            return answer
        if not answer.size - self._fold < out.size <= answer.size:
            raise InputError(
                f"out must hold a gradient that folds into {shape[0]} numbers of {self._fold} each, got {out.size}"
            )
        out[...] = answer[: out.size].reshape(out.shape)
        return out

    def _by_method(self, arrived: Array, method: str) -> Weights:
        if self._fold > 1 and method in {"one-step", "algorithmic"}:
            raise InputError(f"method must be 'optimal' or 'lstsq' for folded messages, got {method!r}")
        return super()._by_method(arrived, method)

    def _structured(self, lost: Array) -> Array:
        return self._null_space.avoiding(lost)

    def _least_squares(self, arrived: Array) -> Weights:
        n, m = self.n_workers, self._fold
        if m == 1:
            return super()._least_squares(arrived)
        a = np.zeros((n, m))
        if len(arrived):
            wanted = np.tile(np.eye(m), (self.k, 1))
            with single_blas_thread():
                a[arrived] = np.linalg.lstsq(self.generator[arrived].T, wanted, rcond=None)[0]
        return self._completed(a, "lstsq")

    def _completed(self, a: Array, method: str = "structured") -> Weights:
        """Complete the weights; ``alpha`` is one plus what a partition's block departs most from the identity by."""
        if self._fold == 1:
            return super()._completed(a)
        miss = (self._band.effective(a) - np.eye(self._fold)).reshape(self.k, -1)
        departure = np.take_along_axis(miss, np.abs(miss).argmax(axis=1)[:, None], axis=1)[:, 0]
        alpha = 1 + departure
        growth = float((self._band.norms @ np.abs(a)).max()) / math.sqrt(self.k)
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, float(np.vdot(miss, miss)) / self._fold, growth, method)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        points = {} if self._points is None else {"points": [float(x) for x in self._points]}
        return {
            "stragglers": self._stragglers,
            "fold": self._fold,
            "matrix": self._matrix,
            **points,
            "seed": self._seed,
        }

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the matrices included."""
        return {**super().manifest(), "basis": self._basis, "coefficients": self._stored()}

    def _stored(self) -> Array:
        return self.coefficients.reshape(self.n_workers, self.load, self._fold)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> YeAbbeCode:
        """Rebuild the code from its manifest alone, with the stored matrices."""
        stored = {key: manifest[key] for key in ("basis", "coefficients")}
        return cls(manifest["n_workers"], manifest["k"], **{**manifest["params"], **stored})


def standard_points(n: int) -> FloatArray:
    """Return ``n`` points ``+-(1 + i / 2)``, with 0 if ``n`` is odd, ascending: workable up to a dozen.

    Examples
    --------
    >>> standard_points(5).tolist()
    [-1.5, -1.0, 0.0, 1.0, 1.5]
    """
    positive = 1 + np.arange(n // 2) / 2
    return np.concatenate([-positive[::-1], np.zeros(n % 2), positive])


def _balanced(n: int, stragglers: int | None, fold: int | None, load: int | None) -> tuple[int, int]:
    """Complete stragglers and fold so that ``load = stragglers + fold <= n``."""
    m = None if fold is None else check_whole("fold", fold, 1)
    d = None if load is None else check_whole("load", load, 1)
    if stragglers is not None:
        s = check_stragglers(stragglers, n)
    elif d is not None and m is not None:
        s = check_stragglers(d - m, n)
    else:
        s = max(0, min(a_tenth(n), min(n, d or n) - (m or 1)))
    if m is None:
        m = min(2, n - s) if d is None else check_whole("fold = load - stragglers", d - s, 1)
    if d is not None and d != s + m:
        raise InputError(f"load must equal stragglers + fold = {s} + {m}, got {d}: raise one of them to match")
    if s + m > n:
        raise InputError(f"load = stragglers + fold = {s} + {m} must not exceed n_workers={n}")
    return s, m


def _checked_points(points: Sequence[float] | None, n: int) -> FloatArray:
    if n > _MOST_POINTS:
        raise InputError(
            f"matrix='vandermonde' is too ill-conditioned for n_workers={n}: at most {_MOST_POINTS}, use 'gaussian'"
        )
    given = standard_points(n) if points is None else np.array(points, dtype=float)
    if given.shape != (n,) or len(set(given.tolist())) < n or not np.isfinite(given).all():
        raise InputError(f"points must be n_workers={n} distinct numbers, got {points!r}")
    return given


def _null_space(v: FloatArray, m: int) -> NullSpace:
    """Weights ``D`` with ``V @ D = (0; I)``: of least norm, and what may be added to them."""
    rank = len(v)
    unit = np.eye(rank)[:, rank - m :]
    with single_blas_thread():
        q, r = np.linalg.qr(v.T, mode="complete")
        return NullSpace(q[:, :rank] @ np.linalg.solve(r[:rank].T, unit), q[:, rank:])


def _by_definition(v: FloatArray, s: int, m: int) -> FloatArray:
    """Make all coefficients, one partition after another, from ``[R | I] V`` that vanishes where nobody holds it."""
    n, load = v.shape[1], s + m
    made = np.empty((n, load, m))
    for i in range(n):
        absent = (i + 1 + np.arange(n - load)) % n
        holders = (i - np.arange(load)) % n
        r = -np.linalg.solve(v[: n - load, absent].T, v[n - load :, absent].T).T
        block = r @ v[: n - load, holders] + v[n - load :, holders]
        made[holders, np.arange(load)] = block.T
    return made


def _by_complement(space: NullSpace, s: int, m: int) -> FloatArray:
    """Make the same by systems of the size of the load: orthogonal to the null space, the identity against ``D``."""
    n, load = len(space.particular), s + m
    made = np.empty((n, load, m))
    right = np.vstack([np.zeros((s, m)), np.eye(m)])
    conditions = np.hstack([space.basis, space.particular])
    together = max(1, _SOLVED_TOGETHER // load**2)
    for first in range(0, n, together):
        holders = (np.arange(first, min(n, first + together))[:, None] - np.arange(load)) % n
        systems = conditions[holders].transpose(0, 2, 1)
        with single_blas_thread():
            made[holders, np.arange(load)] = np.linalg.solve(systems, np.broadcast_to(right, (len(holders), load, m)))
    return made
