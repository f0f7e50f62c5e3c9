"""How many bits an unbiased estimate of a gradient takes when several workers see it with noise: the CEO problem.

M. Zhang, L. Tao, X. Wang, "Sum-Rate-Distortion Function for Indirect Multiterminal Source Coding in Federated Learning"
(2021). The gradient has variance ``signal`` per parameter, worker ``k`` sees it with additional variance ``noise``, and
the mean of what they send is to have the error variance ``error``. All bits are per parameter, of all workers together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["allocate_bits", "bits_for", "error_for", "independent_bits", "step_for"]


def _test_channel(error: float, n_workers: int, noise: float) -> float:
    """Variance that quantization may add at each worker."""
    if n_workers < 1:
        raise InputError(f"n_workers must be at least 1, got {n_workers}")
    if not noise >= 0:
        raise InputError(f"noise must be at least 0, got {noise}")
    if not error > noise / n_workers:
        raise InputError(f"error must be above noise / n_workers = {noise / n_workers:g}, got {error}")
    return n_workers * error - noise


def bits_for(error: float, n_workers: int, *, signal: float, noise: float) -> float:
    """Return the least sum of bits for an unbiased estimate with this error.

    Raises
    ------
    InputError
        If ``error`` is not above ``noise / n_workers``, what even unquantized gradients leave; or a variance is
        negative.

    Examples
    --------
    >>> round(bits_for(0.2, 10, signal=1.0, noise=1.0), 6)
    6.292481
    """
    added = _test_channel(error, n_workers, noise)
    if not signal >= 0:
        raise InputError(f"signal must be at least 0, got {signal}")
    nats = 0.5 * math.log1p(signal / error) + 0.5 * n_workers * math.log1p(noise / added)
    return nats / math.log(2)


def independent_bits(error: float, n_workers: int, *, signal: float, noise: float) -> float:
    """Return the sum of bits of the same quantizers if nothing is made of what the gradients have in common.

    Examples
    --------
    >>> round(independent_bits(0.2, 10, signal=1.0, noise=1.0) * math.log(2), 6)
    5.493061
    """
    added = _test_channel(error, n_workers, noise)
    return 0.5 * n_workers * math.log2((signal + noise + added) / added)


def error_for(bits: float, n_workers: int, *, signal: float, noise: float) -> float:
    """Return the least error variance for a sum of bits: the inverse of `bits_for`.

    Raises
    ------
    InputError
        If ``bits`` is not positive.

    Examples
    --------
    >>> round(error_for(6.292481, 10, signal=1.0, noise=1.0), 6)
    0.2
    """
    if not 0 < bits < math.inf:
        raise InputError(f"bits must be positive and finite, got {bits}")
    if n_workers < 1:
        raise InputError(f"n_workers must be at least 1, got {n_workers}")
    low = noise / n_workers
    high = low + 1.0
    while bits_for(high, n_workers, signal=signal, noise=noise) > bits:
        high = low + 2 * (high - low)
    least = low
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if middle > least and bits_for(middle, n_workers, signal=signal, noise=noise) <= bits:
            high = middle
        else:
            low = middle
    return high


def step_for(error: float, n_workers: int, *, noise: float) -> float:
    """Return the step of `serverless_gc.policies.DitheredUniform` with which the mean has this error.

    Examples
    --------
    >>> round(step_for(0.2, 10, noise=1.0) ** 2 / 12, 9)
    1.0
    """
    return math.sqrt(12 * _test_channel(error, n_workers, noise))


def allocate_bits(error: float, noises: Sequence[float]) -> FloatArray:
    """Share out bits between workers of different noise, by reverse water-filling.

    The estimate weighs workers by their precision, ``1 / error = sum (1 - 4**-bits_k) / noise_k``; the sum of bits is
    least. Workers that are too noisy get none.

    Parameters
    ----------
    error
        Variance of the estimate.
    noises
        Variance of each worker.

    Returns
    -------
    ndarray
        Bits per parameter of each worker.

    Raises
    ------
    InputError
        If a noise is not positive, or ``error`` is not above what unquantized gradients leave.

    Examples
    --------
    >>> (allocate_bits(0.4, [0.5, 1, 2, 4, 50]) * math.log(2)).round(6)
    array([0.89588 , 0.549306, 0.202733, 0.      , 0.      ])
    """
    variances = np.asarray(noises, dtype=np.float64)
    if variances.ndim != 1 or not variances.size or not (variances > 0).all():
        raise InputError(f"noises must be positive numbers, got {noises!r}")
    order = np.sort(variances)
    precision = 1.0 / error if error > 0 else math.inf
    if not precision < float(np.sum(1.0 / order)):
        raise InputError(f"error must be above {1.0 / float(np.sum(1.0 / order)):g}, got {error}")
    for active in range(order.size, 0, -1):
        level = (float(np.sum(1.0 / order[:active])) - precision) / active
        if level > 0 and level * order[active - 1] < 1:
            return np.maximum(0.0, -0.5 * np.log2(level * variances))
    # Even the best worker alone, at any rate, does better than asked: no bits are needed.
    return np.zeros_like(variances)
