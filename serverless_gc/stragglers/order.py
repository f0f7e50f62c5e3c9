"""Order statistics: how long waiting for the first ``k`` of ``n`` takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = [
    "bisect_quantile",
    "check_order",
    "harmonic",
    "integrate_survival",
    "mean_order_stat",
    "normal_order_stat",
]

_NODES = 16  # Gauss-Legendre nodes per panel
_PANELS_PER_DECADE = 16
_NEGLIGIBLE = 1e-13


def check_order(k: int, n: int) -> None:
    """Raise `InputError` unless ``1 <= k <= n``."""
    if not 1 <= k <= n:
        raise InputError(f"k must be at least 1 and at most n={n}, got {k}")


def harmonic(n: int, power: int = 1) -> float:
    """Return ``1 + 1/2**power + ... + 1/n**power``.

    Examples
    --------
    >>> harmonic(4)
    2.0833333333333335
    """
    return math.fsum(1.0 / i**power for i in range(1, n + 1))


def mean_order_stat(
    survival: Callable[[FloatArray], FloatArray], k: int, n: int, *, breaks: Sequence[float] = ()
) -> float:
    """Mean of the ``k``-th smallest of ``n`` independent draws of any law.

    The integral of ``P(fewer than k draws are at most t)`` over ``t``, by Gauss-Legendre panels in ``log t``.

    Parameters
    ----------
    survival
        ``t -> P(X > t)`` for an array of times in seconds.
    k, n
        Which order statistic.
    breaks
        Times at which ``survival`` jumps or has a kink.

    Returns
    -------
    float
        Seconds; infinite when the mean does not exist.

    Raises
    ------
    InputError
        Unless ``1 <= k <= n``.

    Examples
    --------
    >>> import numpy as np
    >>> round(mean_order_stat(lambda t: np.exp(-2.0 * t), 7, 10), 6)
    0.547817
    """
    from scipy.special import betainc

    check_order(k, n)

    def waiting(t: FloatArray) -> FloatArray:
        return np.asarray(betainc(n - k + 1, k, survival(t)), dtype=np.float64)

    return integrate_survival(waiting, breaks=breaks, sharpness=n)


def integrate_survival(
    waiting: Callable[[FloatArray], FloatArray], *, breaks: Sequence[float] = (), sharpness: int = 1
) -> float:
    """Mean of a non-negative time from its survival function.

    Parameters
    ----------
    waiting
        ``t -> P(T > t)`` for an array of times.
    breaks
        Times at which it jumps or has a kink.
    sharpness
        Number of tasks it comes from: it falls from 1 to 0 within a width that shrinks like ``1 / sqrt(sharpness)``.

    Returns
    -------
    float
        Infinite when the mean does not exist.
    """

    def at(t: float) -> float:
        return float(waiting(np.array([t]))[0])

    low = high = max(breaks, default=0.0) or 1.0
    while low > 1e-250 and 1.0 - at(low) > _NEGLIGIBLE:
        low /= 10.0
    while high * at(high) > _NEGLIGIBLE * low:
        if high > 1e250:
            return math.inf
        high *= 10.0
    inner = [math.log(b) for b in breaks if low < b < high]
    n_panels = max(1, round((_PANELS_PER_DECADE + 4 * math.sqrt(sharpness)) * math.log10(high / low)))
    edges = np.unique(np.concatenate([np.linspace(math.log(low), math.log(high), n_panels + 1), inner]))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(edges)[:, None] / 2
    t = np.exp(edges[:-1, None] + half * (nodes + 1.0))
    return low + float(np.sum(half * weights * t * waiting(t.ravel()).reshape(t.shape)))


def bisect_quantile(survival: Callable[[FloatArray], FloatArray], q: float, low: float, high: float) -> float:
    """Smallest time in ``[low, high]`` at which ``survival`` is at most ``1 - q``."""
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if float(survival(np.array([middle]))[0]) > 1.0 - q:
            low = middle
        else:
            high = middle
    return high


def normal_order_stat(mean: float, deviation: float, k: int, n: int) -> float:
    """Approximate the mean of the ``k``-th smallest of ``n`` normal draws by Elfving's and Blom's formula.

    Examples
    --------
    >>> round(normal_order_stat(0.0, 1.0, 8, 10), 6)
    0.658052
    """
    from scipy.special import ndtri

    check_order(k, n)
    return mean + deviation * float(ndtri((k - math.pi / 8) / (n - math.pi / 4 + 1)))
