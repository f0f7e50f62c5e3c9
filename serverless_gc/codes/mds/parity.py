"""Random parity matrices that keep every recovery well conditioned."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.base import check_dense
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["draw_parity", "explicit_parity", "smallest_singular_value", "spectral_norm"]

_WORST_CONDITION = 1e8
_CHECKED_SUBSETS = 5000
_DRAWS = 20
_POWER_STEPS = 30


def draw_parity(rows: int, k: int, kind: str, seed: int) -> FloatArray:
    """Draw a parity matrix of shape ``(rows, k)``, again if one of the recoveries would be ill conditioned.

    Parameters
    ----------
    rows, k
        Shape.
    kind
        ``"orthonormal"`` or ``"gaussian"``.
    seed
        Seed of the draw.

    Raises
    ------
    InputError
        If ``kind`` is unknown, there is no such matrix, or it would be too large.

    Examples
    --------
    >>> P = draw_parity(2, 5, "orthonormal", seed=0)
    >>> bool(np.allclose(P @ P.T, np.eye(2)))
    True
    """
    if kind not in {"orthonormal", "gaussian"}:
        raise InputError(
            f"parity must be 'orthonormal', 'gaussian' or a matrix, got {kind!r}; codes 'mds-nonsystematic', "
            "'rotation' and 'roots-of-unity' have other constructions"
        )
    check_dense(rows, k)
    rng = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        parity = _orthonormal(rows, k, rng) if kind == "orthonormal" else rng.normal(size=(rows, k)) / math.sqrt(k)
        # All subsets of a small code can be tried; a large one has too many, and a bad one among them is for the
        # condition guard of the decoder to find.
        if math.comb(rows + k, k) > _CHECKED_SUBSETS or smallest_singular_value(parity) > 1 / _WORST_CONDITION:
            return parity
    raise InputError(f"no well conditioned parity of shape ({rows}, {k}) in {_DRAWS} draws: try another seed")


def _orthonormal(rows: int, k: int, rng: np.random.Generator) -> FloatArray:
    tall = rows > k
    q, r = np.linalg.qr(rng.normal(size=(rows, k) if tall else (k, rows)))
    # QR is unique only up to signs, which differ between libraries.
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return q * math.sqrt(rows / k) if tall else np.ascontiguousarray(q.T)


def smallest_singular_value(parity: FloatArray) -> float:
    """Return the smallest singular value of any square submatrix: what the worst recovery divides by.

    Any ``s`` lost blocks are found from any ``s`` parity rows, so all square submatrices are tried.
    """
    rows, k = parity.shape
    worst = math.inf
    for size in range(1, min(rows, k) + 1):
        lost = np.array(list(combinations(range(k), size)))
        for chosen in combinations(range(rows), size):
            squares = parity[np.array(chosen)[:, None], lost[:, None, :]]
            worst = min(worst, float(np.linalg.svd(squares, compute_uv=False)[:, -1].min()))
    return worst


def explicit_parity(parity: ArrayLike, rows: int, k: int) -> FloatArray:
    """Check a parity matrix given by the caller.

    Raises
    ------
    InputError
        If it is not a finite real matrix of shape ``(rows, k)``.
    """
    given = np.asarray(parity)
    if given.shape != (rows, k):
        if rows == 0 and given.size == 0:
            return np.empty((0, k))
        raise InputError(f"parity must have shape (n_workers - k, k) = ({rows}, {k}), got {given.shape}")
    if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
        raise InputError(f"parity must be real and finite, got dtype {given.dtype}")
    return np.array(given, dtype=np.float64)


def spectral_norm(matrix: Array) -> float:
    """Estimate the largest singular value by power iteration, from below and within a few per cent.

    A singular value decomposition would take longer than the decode that it guards.

    Examples
    --------
    >>> round(spectral_norm(np.diag([3.0, 1.0, 0.5])), 6)
    3.0
    """
    if not matrix.size:
        return 0.0
    lengths = np.linalg.norm(matrix, axis=1)
    largest = int(np.argmax(lengths))
    if not 0 < lengths[largest] < math.inf:
        return float(lengths[largest])
    vector = matrix[largest] / lengths[largest]
    norm = 0.0
    for _ in range(_POWER_STEPS):
        image = matrix @ vector
        norm = float(np.linalg.norm(image))
        vector = image @ matrix
        vector /= np.linalg.norm(vector)
    return norm
