"""The spectral certificate: a bound on the worst error of any code whose rows, and whose columns, sum alike."""

from __future__ import annotations

import numpy as np

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["certified_error", "spectral_bound", "spectral_ratio"]


def spectral_ratio(matrix: Array) -> float | None:
    """Return ``sigma_2 / c``: second singular value over column sum, or None where the certificate does not hold.

    It holds for real matrices without negative entries whose row sums are all equal and whose column sums are all
    equal: then the all-ones vector is the top left singular vector.

    Parameters
    ----------
    matrix
        Encoding matrix, shape ``(n_messages, k)``.
    """
    if np.iscomplexobj(matrix) or matrix.min() < 0:
        return None
    for sums in (matrix.sum(axis=1), matrix.sum(axis=0)):
        if sums[0] <= 0 or not np.allclose(sums, sums[0], rtol=1e-9, atol=0):
            return None
    if min(matrix.shape) == 1:
        return 0.0
    with single_blas_thread():
        singular = np.linalg.svd(matrix, compute_uv=False)
    return float(singular[1] / matrix[:, 0].sum())


def certified_error(ratio: float, n: int, stragglers: int) -> float:
    """Return ``ratio**2 * n * s / (n - s)`` for ``s < n`` stragglers."""
    return ratio**2 * n * stragglers / (n - stragglers)


def spectral_bound(code: GradientCode, stragglers: int) -> float:
    """Bound the error of one-step, hence also of optimal, decoding over all sets of so many stragglers.

    With ``u = n / (n - s)`` on the arrivals and 0 elsewhere, ``u - 1`` is orthogonal to the all-ones vector and of
    squared length ``n s / (n - s)``, so that ``err <= err_1 <= (sigma_2 / c)**2 * n s / (n - s)``.

    Parameters
    ----------
    code
        Any gradient code.
    stragglers
        Number of missing messages, ``0 .. n_messages - 1``.

    Returns
    -------
    float
        The bound. Optimal decoding has besides never an error above ``k``.

    Raises
    ------
    InputError
        If rows or columns of the code do not sum alike, or ``stragglers`` is out of range.

    Examples
    --------
    >>> from serverless_gc.codes.gradient.linear import LinearGradientCode
    >>> ring = [[1 if (j - i) % 5 in (0, 1, 4) else 0 for j in range(5)] for i in range(5)]
    >>> round(spectral_bound(LinearGradientCode(ring), 1), 4)
    0.3636
    """
    if not 0 <= stragglers < code.n_messages:
        raise InputError(f"stragglers must be in 0..{code.n_messages - 1}, got {stragglers}")
    ratio = spectral_ratio(code.generator)
    if ratio is None:
        raise InputError(
            f"code must have non-negative entries, equal row sums and equal column sums for the spectral certificate, "
            f"{code.name!r} has not: evaluate its worst case by enumeration"
        )
    return certified_error(ratio, code.n_messages, stragglers)
