"""Sums of multiples of long vectors: what decoding a gradient comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from serverless_gc.types import Array

__all__ = ["add_multiples"]

_RUN = 1 << 14
"""Numbers of a vector worked on at a time: they stay in the second-level cache while all terms are added."""


def add_multiples(total: Array, terms: Iterable[tuple[Any, Array]]) -> None:
    """Add multiples of vectors to ``total``, in order, without a temporary of their length.

    Parameters
    ----------
    total
        A vector, contiguous, of a type that holds the products.
    terms
        Factor and vector, of the length of ``total``.

    Examples
    --------
    >>> total = np.zeros(2)
    >>> add_multiples(total, [(1.0, np.array([1.0, 2.0])), (-0.5, np.array([4.0, 0.0]))])
    >>> total.tolist()
    [-1.0, 2.0]
    """
    listed = list(terms)
    memory = np.empty(min(_RUN, len(total)), total.dtype)
    for start in range(0, len(total), _RUN):
        run = total[start : start + _RUN]
        product = memory[: len(run)]
        for factor, vector in listed:
            part = vector[start : start + _RUN]
            run += part if factor == 1 else np.multiply(part, factor, out=product, dtype=total.dtype)
