"""Codes drawn at random: the matrix is drawn once and travels in the manifest, as lists of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import ApproximateCode
from serverless_gc.types import Array, FloatArray

__all__ = ["DrawnCode", "pack_counts", "unpack_counts"]


class DrawnCode(ApproximateCode):
    """An approximate code with a 0/1 matrix drawn from a seed.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions.
    seed
        Seed of the draw. A manifest stores the matrix itself: streams of random numbers change between versions.
    wait
        See `ApproximateCode`.
    """

    load: float
    """Partitions of a worker, in the mean over draws."""

    def __init__(self, n_workers: int, k: int, *, seed: int = 0, wait: int | None = None) -> None:
        super().__init__(n_workers, k, wait=wait)
        self.seed = check_whole("seed", seed, 0)

    @property
    def uncovered(self) -> tuple[int, ...]:
        """Partitions that no worker holds: they are missing from every answer."""
        return tuple(np.flatnonzero(~self.generator.any(axis=0)).tolist())

    def _common_weight(self, n_arrived: int) -> float:
        # By the load that was asked for: the closed forms of the ensemble are for this one.
        return self.k / (n_arrived * self.load) if n_arrived else 0.0

    def params(self) -> dict[str, Any]:
        """Keyword parameters that draw this code again."""
        return {**super().params(), "seed": self.seed}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the matrix included."""
        return {**super().manifest(), "matrix": pack_counts(self.generator)}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Rebuild the code from its manifest alone: the stored matrix counts, nothing is drawn again."""
        code = cls(manifest["n_workers"], manifest["k"], **manifest["params"])
        matrix = unpack_counts(manifest["matrix"], (code.n_workers, code.k))
        matrix.setflags(write=False)
        code._cache.generator.append(matrix)
        return code


def pack_counts(matrix: Array) -> dict[str, Array]:
    """Store a matrix of small counts as the columns of its entries, row by row; a count of two names them twice.

    Examples
    --------
    >>> packed = pack_counts(np.array([[0, 1, 1], [2, 0, 0]]))
    >>> packed["sizes"].tolist(), packed["columns"].tolist()
    ([2, 2], [1, 2, 0, 0])
    """
    counts = matrix.astype(np.int64)
    rows, columns = np.nonzero(counts)
    kind = np.uint16 if max(matrix.shape) <= 2**16 else np.uint32
    return {
        "sizes": counts.sum(axis=1).astype(np.uint32),
        "columns": np.repeat(columns, counts[rows, columns]).astype(kind),
    }


def unpack_counts(packed: Mapping[str, Array], shape: tuple[int, int]) -> FloatArray:
    """Inverse of `pack_counts`.

    Examples
    --------
    >>> unpack_counts(pack_counts(np.array([[0, 1, 1], [2, 0, 0]])), (2, 3))
    array([[0., 1., 1.],
           [2., 0., 0.]])
    """
    matrix = np.zeros(shape)
    np.add.at(matrix, (np.repeat(np.arange(shape[0]), packed["sizes"]), packed["columns"]), 1.0)
    return matrix
