"""Tall near-orthogonal matrices for encoded optimization: what replaces ``(X, y)`` by ``(S X, S y)``.

C. Karakus, Y. Sun, S. Diggavi, W. Yin, "Straggler Mitigation in Distributed Optimization Through Data Encoding" (2017)
and "Redundancy Techniques for Straggler Mitigation in Distributed Optimization and Learning" (2018). An optimizer that
runs on the encoded data with whichever workers answered first needs no decoding: any part of the rows of ``S`` that is
not too small still resembles an orthogonal matrix.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.blocks import promoted
from serverless_gc.codes.polar.butterfly import encode as butterfly
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["FRAMES", "Frame", "deviation", "make_frame", "suboptimality"]

_LARGEST_PRIME = 10**6


class Frame(ABC):
    """A matrix ``S`` of shape ``(n_coded, n)`` with ``S.T @ S = beta * I``, its rows shuffled and shared among workers.

    Parameters
    ----------
    n
        Rows of the data.
    n_workers
        Parts into which the coded rows are cut, as equal as possible.
    beta
        Redundancy asked for, at least 1; constructions that exist for some sizes only take the next one, see
        ``self.beta``.
    seed
        Of the chosen columns and of the order of the rows, both of which the manifest stores.

    Attributes
    ----------
    n_coded
        Number of coded rows.
    beta
        ``n_coded / n`` (for equiangular frames before surplus columns are dropped).
    """

    name: ClassVar[str]

    def __init__(
        self,
        n: int,
        n_workers: int,
        beta: float = 2.0,
        *,
        seed: int = 0,
        columns: Any = None,
        order: Any = None,
    ) -> None:
        if not 1 <= beta < math.inf:
            raise InputError(f"beta must be at least 1, got {beta}")
        self.n, self.n_workers = check_whole("n", n, 1), check_whole("n_workers", n_workers, 1)
        self.asked, self.seed = float(beta), seed
        self.n_coded, available = self._sizes()
        if self.n_workers > self.n_coded:
            raise InputError(f"n_workers must be at most the number of coded rows {self.n_coded}, got {n_workers}")
        rng = np.random.default_rng(seed)
        self._columns = rng.permutation(available)[: self.n] if columns is None else np.asarray(columns)
        self._order = rng.permutation(self.n_coded) if order is None else np.asarray(order)
        self.beta = self._redundancy(available)

    @abstractmethod
    def _sizes(self) -> tuple[int, int]:
        """Return how many rows there are, and how many columns to choose from."""

    def _redundancy(self, available: int) -> float:  # noqa: ARG002 - equiangular frames need it
        return self.n_coded / self.n

    @abstractmethod
    def _times(self, rows: Array) -> Array:
        """Return ``S @ rows`` with the rows of ``S`` in natural order."""

    def encode(self, rows: Array) -> Array:
        """Return ``S @ rows``, its rows in the order in which workers share them.

        Parameters
        ----------
        rows
            ``(n, ...)``.

        Raises
        ------
        InputError
            If there are not ``n`` rows.
        """
        rows = np.asarray(rows)
        if len(rows) != self.n:
            raise InputError(f"the frame is for n={self.n} rows, got {len(rows)}")
        flat = rows.reshape(self.n, -1).astype(promoted(rows.dtype), copy=False)
        return self._times(flat)[self._order].reshape(self.n_coded, *rows.shape[1:])

    def part(self, worker: int) -> slice:
        """Return which coded rows belong to a worker."""
        if not 0 <= worker < self.n_workers:
            raise InputError(f"worker must be in 0..{self.n_workers - 1}, got {worker}")
        each, more = divmod(self.n_coded, self.n_workers)
        start = worker * each + min(worker, more)
        return slice(start, start + each + (worker < more))

    @cached_property
    def matrix(self) -> FloatArray:
        """``S``, dense, its rows in the order in which workers share them."""
        return self.encode(np.eye(self.n))

    def manifest(self) -> dict[str, Any]:
        """Everything that rebuilds the frame, the random choices included."""
        return {
            "frame": self.name,
            "n": self.n,
            "n_workers": self.n_workers,
            "beta": self.asked,
            "seed": self.seed,
            "columns": self._columns,
            "order": self._order,
        }

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Frame:
        """Rebuild a frame from its manifest alone."""
        return FRAMES[manifest["frame"]](
            manifest["n"],
            manifest["n_workers"],
            manifest["beta"],
            seed=manifest["seed"],
            columns=manifest["columns"],
            order=manifest["order"],
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, n_workers={self.n_workers}, beta={self.beta:g})"


class HadamardFrame(Frame):
    """Random columns of a Sylvester Hadamard matrix; encoded by the fast Walsh-Hadamard transform."""

    name = "hadamard"

    def _sizes(self) -> tuple[int, int]:
        order = _power_of_two(self.asked * self.n)
        return order, order

    def _times(self, rows: Array) -> Array:
        out = np.empty((self.n_coded, rows.shape[1]), rows.dtype)
        everything = range(self.n_coded)
        butterfly(rows, self._columns.tolist(), self.n_coded, out, everything, kernel="hadamard", systematic=False)
        out *= math.sqrt(self.n_coded / self.n)
        return out


class HaarFrame(Frame):
    """Random columns of the orthonormal Haar matrix: a sparse frame, encoded in linear time."""

    name = "haar"

    def _sizes(self) -> tuple[int, int]:
        order = _power_of_two(self.asked * self.n)
        return order, order

    def _times(self, rows: Array) -> Array:
        out = np.zeros((self.n_coded, rows.shape[1]), rows.dtype)
        out[self._columns] = rows
        left = self.n_coded
        while left > 1:
            even, odd = out[0:left:2], out[1:left:2]
            out[:left] = np.concatenate([even + odd, even - odd]) * math.sqrt(0.5)
            left //= 2
        out *= math.sqrt(self.n_coded / self.n)
        return out


class GaussianFrame(Frame):
    """Independent normal entries: a tight frame only on average, of any size.

    The matrix is drawn from ``seed`` and stored nowhere: a driver that goes on with encoded data does not need it.
    """

    name = "gaussian"

    def _sizes(self) -> tuple[int, int]:
        return math.ceil(self.asked * self.n), self.n

    def _times(self, rows: Array) -> Array:
        draw = np.random.default_rng([self.seed, 1])
        dense = draw.normal(size=(self.n_coded, self.n)) / math.sqrt(self.n)
        return dense.astype(_real(rows.dtype), copy=False) @ rows


class PaleyFrame(Frame):
    """An equiangular tight frame from a Paley conference matrix: every two coded rows are equally far from parallel."""

    name = "paley"

    def _sizes(self) -> tuple[int, int]:
        if self.asked > 2:
            raise InputError(
                f"beta must be at most 2 for a Paley frame, which has just twice the rows, got {self.asked}"
            )
        q = _paley_prime(max(5, 2 * self.n - 1))
        return q + 1, (q + 1) // 2

    def _redundancy(self, available: int) -> float:
        return self.n_coded / available

    def _times(self, rows: Array) -> Array:
        q = self.n_coded - 1
        values, vectors = np.linalg.eigh(_conference(q))
        basis = math.sqrt(2) * vectors[:, values > 0][:, self._columns]
        return basis.astype(_real(rows.dtype), copy=False) @ rows


class SteinerFrame(Frame):
    """A sparse equiangular tight frame from all pairs of ``v`` points and a Hadamard matrix."""

    name = "steiner"

    def _sizes(self) -> tuple[int, int]:
        v = 4
        while v * (v - 1) // 2 < self.n:
            v *= 2
        if self.asked > 2 * v / (v - 1):
            raise InputError(f"beta must be at most {2 * v / (v - 1):.4g} for a Steiner frame of this size")
        return v * v, v * (v - 1) // 2

    def _redundancy(self, available: int) -> float:
        return self.n_coded / available

    def _times(self, rows: Array) -> Array:
        return np.asarray(self._sparse()[:, self._columns].astype(_real(rows.dtype)) @ rows)

    def _sparse(self) -> sparse.csc_array:
        from scipy import sparse  # a quarter of a second, for this frame only

        v = math.isqrt(self.n_coded)
        hadamard = np.ones((1, 1))
        while len(hadamard) < v:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        used = [0] * v  # how many pairs with each point came before
        where_rows, where_columns, entries = [], [], []
        for column, pair in enumerate(combinations(range(v), 2)):
            for point in pair:
                used[point] += 1
                where_rows.append(np.arange(point * v, (point + 1) * v))
                where_columns.append(np.full(v, column))
                entries.append(hadamard[:, used[point]] / math.sqrt(v - 1))
        shape = (self.n_coded, v * (v - 1) // 2)
        at = (np.concatenate(where_rows), np.concatenate(where_columns))
        return sparse.csc_array((np.concatenate(entries), at), shape=shape)


class ReplicationFrame(Frame):
    """Stacked identities: ``beta`` copies of every row, in a random order."""

    name = "replication"

    def _sizes(self) -> tuple[int, int]:
        if self.asked != int(self.asked):
            raise InputError(f"beta must be a whole number of copies for replication, got {self.asked}")
        return int(self.asked) * self.n, self.n

    def _times(self, rows: Array) -> Array:
        return np.concatenate([rows] * int(self.asked))


class UncodedFrame(ReplicationFrame):
    """The rows themselves in a random order: what is lost with a straggler is lost."""

    name = "uncoded"

    def _sizes(self) -> tuple[int, int]:
        self.asked = 1.0
        return super()._sizes()


FRAMES: Mapping[str, Callable[..., Frame]] = {
    frame.name: frame
    for frame in (
        HadamardFrame,
        HaarFrame,
        PaleyFrame,
        SteinerFrame,
        GaussianFrame,
        ReplicationFrame,
        UncodedFrame,
    )
}
"""Name -> class."""


def make_frame(name: str, n: int, n_workers: int, beta: float = 2.0, *, seed: int = 0) -> Frame:
    """Make a frame by name; parameters as for `Frame`.

    Raises
    ------
    InputError
        If there is no such frame, or a parameter does not fit it.

    Examples
    --------
    >>> frame = make_frame("hadamard", n=6, n_workers=4)
    >>> frame.n_coded, round(frame.beta, 3)
    (16, 2.667)
    >>> bool(np.allclose(frame.matrix.T @ frame.matrix, frame.beta * np.eye(6)))
    True
    """
    if name not in FRAMES:
        raise InputError(f"frame must be one of {', '.join(FRAMES)}, got {name!r}")
    return FRAMES[name](n, n_workers, beta, seed=seed)


def deviation(frame: Frame, workers: Iterable[int], data: Array | None = None) -> float:
    """How far the rows of some workers are from a tight frame: the ``e`` of the guarantee.

    The normalized Gram matrix ``m / (q beta) * S_A.T @ S_A`` has its eigenvalues within ``1 - e`` and ``1 + e``.

    Parameters
    ----------
    frame
        The frame.
    workers
        Who answered.
    data
        ``(n, c)``: only the space that its columns span counts; all of it when None.

    Examples
    --------
    >>> frame = make_frame("replication", n=4, n_workers=2)
    >>> deviation(frame, [0, 1])
    0.0
    """
    chosen = sorted(set(workers))
    if not chosen:
        raise InputError("workers must name at least one worker")
    coded = np.concatenate([frame.matrix[frame.part(worker)] for worker in chosen])
    if data is not None:
        basis, singular, _ = np.linalg.svd(np.asarray(data, dtype=float), full_matrices=False)
        coded = coded @ basis[:, singular > singular[0] * len(basis) * np.finfo(float).eps]
    gram = coded.T @ coded * (frame.n_workers / (len(chosen) * frame.beta))
    values = np.linalg.eigvalsh(gram)
    return max(float(values[-1]) - 1, 1 - float(values[0]), 0.0)


def suboptimality(e: float) -> float:
    """Factor by which the loss of a minimizer found without stragglers' rows can exceed the least: ``(1+e)/(1-e)``."""
    return (1 + e) / (1 - e) if e < 1 else math.inf


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.finfo(dtype).dtype)


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(least) - 1).bit_length()


def _paley_prime(least: int) -> int:
    for q in range(least, _LARGEST_PRIME):
        if q % 4 == 1 and all(q % d for d in range(3, math.isqrt(q) + 1, 2)):
            return q
    raise InputError(f"n is too large for a Paley frame: there is no prime up to {_LARGEST_PRIME} that fits it")


def _conference(q: int) -> FloatArray:
    """Return the symmetric conference matrix of order ``q + 1``: zero diagonal, orthogonal rows of signs."""
    squares = np.zeros(q)
    squares[np.arange(1, q) ** 2 % q] = 1
    signs = np.where(squares > 0, 1.0, -1.0)
    signs[0] = 0
    core = signs[(np.arange(q)[:, None] - np.arange(q)) % q]
    matrix = np.ones((q + 1, q + 1))
    matrix[0, 0] = 0
    matrix[1:, 1:] = core
    return matrix
