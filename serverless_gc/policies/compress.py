"""Gradients in fewer bits. The seed is the task's, so both ends draw the same numbers.

What they do is in `serverless_gc.wire.compress`, where workers find it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.types import Compressor
from serverless_gc.wire import compress

__all__ = ["DitheredUniform", "Sign", "StochasticRounding", "TopK", "described"]


def _check_step(step: float) -> None:
    if not 0 < step < math.inf:
        raise InputError(f"step must be positive and finite, got {step}")


@dataclass(frozen=True, slots=True)
class DitheredUniform(compress.DitheredUniform):
    """Uniform quantization with subtractive dither: the error is uniform and independent of the value.

    The sum of rates of such quantizers is within 0.26 bit per number of what is possible at all
    (`serverless_gc.policies.bits_for`); M. Zhang, L. Tao, X. Wang, "Sum-Rate-Distortion Function for Indirect
    Multiterminal Source Coding in Federated Learning" (2021).

    Parameters
    ----------
    step
        Distance between levels; the error's variance is ``step**2 / 12``.
    relative
        Whether ``step`` counts in root mean squares of the array, which is then sent along.

    Examples
    --------
    >>> import numpy as np
    >>> compressor = DitheredUniform(step=0.5)
    >>> g = np.linspace(-3, 3, 100)
    >>> data = compressor.encode(g, seed=7)
    >>> len(data) < 75, bool(np.abs(compressor.decode(data, seed=7) - g).max() <= 0.25 + 1e-12)
    (True, True)
    """

    def __post_init__(self) -> None:
        _check_step(self.step)


@dataclass(frozen=True, slots=True)
class StochasticRounding(compress.StochasticRounding):
    """Round up or down at random, so that the mean is right; no dither has to be drawn by the receiver.

    Parameters
    ----------
    step
        Distance between levels; the error's variance is at most ``step**2 / 4``, on average ``step**2 / 6``.
    relative
        Whether ``step`` counts in root mean squares of the array.

    Examples
    --------
    >>> import numpy as np
    >>> rounding = StochasticRounding(step=0.5)
    >>> g = np.array([0.2, -1.0])
    >>> found = [rounding.decode(rounding.encode(g, seed), seed) for seed in range(4000)]
    >>> sorted({float(first) for first, _ in found}), bool(abs(np.mean(found, axis=0) - g).max() < 0.02)
    ([0.0, 0.5], True)
    """

    def __post_init__(self) -> None:
        _check_step(self.step)


@dataclass(frozen=True, slots=True)
class Sign(compress.Sign):
    """One bit per number, and their mean magnitude. Biased.

    Examples
    --------
    >>> import numpy as np
    >>> Sign().decode(Sign().encode(np.array([-3.0, 1.0]), seed=0), seed=0)
    array([-2.,  2.])
    """


@dataclass(frozen=True, slots=True)
class TopK(compress.TopK):
    """The ``k`` numbers of largest magnitude, the others zero. Biased.

    Examples
    --------
    >>> import numpy as np
    >>> TopK(1).decode(TopK(1).encode(np.array([1.0, -4.0, 2.0]), seed=0), seed=0)
    array([ 0., -4.,  0.])
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_whole("k", self.k, 1))


_KNOWN: Mapping[str, type] = {kind.__name__: kind for kind in (DitheredUniform, StochasticRounding, Sign, TopK)}


def described(compressor: Compressor) -> tuple[str, dict[str, Any]] | None:
    """Return name and parameters of a compressor that every worker knows; None for one of the user's.

    Examples
    --------
    >>> described(TopK(3))
    ('TopK', {'k': 3})
    """
    for name, kind in _KNOWN.items():
        if type(compressor) is kind:
            return name, asdict(compressor)  # type: ignore[call-overload]
    return None
