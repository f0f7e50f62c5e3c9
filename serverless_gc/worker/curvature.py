"""What rows say about the curvature of a loss: sketched square roots of its Hessian, Fisher matrices, squares.

A count sketch sends every row of a matrix, with a random sign, to one of a few buckets. As a matrix ``S`` it has
``E[S.T S] = 1``, so ``B = S sqrt(D) X`` is a square root of the Hessian ``X.T D X`` in the mean. Bucket and sign belong
to the row's place in the whole data set: sketches of parts add up to the sketch of the whole, whoever makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock
from serverless_gc.worker.losses import Loss
from serverless_gc.worker.products import multiply, multiply_transposed, squared, take_rows

__all__ = ["buckets_and_signs", "measured", "sketched_columns", "sketched_rows", "squared_slopes"]

Array: TypeAlias = NDArray[Any]

_STRIP_ENTRIES = 1 << 17


def buckets_and_signs(seed: Sequence[int], first: int, count: int, rows: int | None) -> tuple[Array, Array]:
    """Draw where the rows ``first, first + 1, ...`` of a data set go, the same in every version of NumPy.

    Parameters
    ----------
    seed
        Numbers that name the sketch.
    first, count
        Which rows.
    rows
        Number of buckets; None if there are as many as rows in all, each of which then has its own.

    Returns
    -------
    (buckets, signs)
        Integers and floats, ``(count,)`` each.

    Examples
    --------
    >>> buckets, signs = buckets_and_signs([7, 0], 0, 6, 3)
    >>> again, _ = buckets_and_signs([7, 0], 2, 4, 3)
    >>> np.array_equal(buckets[2:], again), buckets_and_signs([7, 0], 2, 2, None)[0]
    (True, array([2, 3]))
    """
    if rows is None:
        return np.arange(first, first + count), np.ones(count)
    raw = np.random.PCG64(np.random.SeedSequence(list(seed))).advance(first).random_raw(count)
    return ((raw >> 1) % rows).astype(np.int64), 1.0 - 2.0 * (raw & 1)


def sketched_rows(block: Block, buckets: Array, factors: Array, rows: int) -> Array:
    """Return ``S @ diag(factors) @ block`` for the ``S`` that adds row ``i`` to row ``buckets[i]`` of the result.

    Parameters
    ----------
    block
        Shape (m, p), dense or sparse.
    buckets, factors
        Shape (m,).
    rows
        Of the result.

    Examples
    --------
    >>> buckets, signs = np.array([1, 0, 1]), np.array([1.0, 1.0, -1.0])
    >>> sketched_rows(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), buckets, signs, 2)
    array([[ 3.,  4.],
           [-4., -4.]])
    """
    if not isinstance(block, CsrBlock):
        return np.ascontiguousarray(_by_bucket(block.T, buckets, factors, rows).T)
    owner = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    places = buckets[owner] * block.shape[1] + block.indices
    return _added(places, block.data * factors[owner], rows * block.shape[1]).reshape(rows, block.shape[1])


def sketched_columns(block: Block, buckets: Array, factors: Array, rows: int) -> Array:
    """Return the transposed `sketched_rows` of the transposed block: columns go to buckets.

    Examples
    --------
    >>> sketched_columns(np.array([[1.0, 2.0, 4.0]]), np.array([1, 0, 1]), np.array([1.0, 1.0, -1.0]), 2)
    array([[ 2., -3.]])
    """
    if not isinstance(block, CsrBlock):
        return _by_bucket(block, buckets, factors, rows)
    owner = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    places = owner * rows + buckets[block.indices]
    return _added(places, block.data * factors[block.indices], block.shape[0] * rows).reshape(-1, rows)


def _by_bucket(lines: Array, buckets: Array, factors: Array, rows: int) -> Array:
    out = np.empty((len(lines), rows), np.result_type(lines.dtype, np.float64))
    for line, summed in zip(lines, out, strict=True):
        summed[:] = _added(buckets, line * factors, rows)
    return out


def _added(places: Array, terms: Array, length: int) -> Array:
    """Return a vector with each term added at its place; blocks of codes with complex coefficients are complex."""
    if terms.dtype.kind == "c":
        return np.bincount(places, terms.real, length) + 1j * np.bincount(places, terms.imag, length)
    return np.bincount(places, terms, length)


def measured(
    what: Mapping[str, Any], X: Block, y: Array, weight: Array | None, z: Array, loss: Loss, first: int
) -> Array:
    """Return what a part of the rows adds to the curvature of a loss.

    Parameters
    ----------
    what
        ``kind``, and for a sketch its ``seed`` and ``rows``; ``whole`` says that every row has a bucket of its own.
        ``"hessian_root"`` is the sketched root, (rows, p); ``"fisher"`` is ``X.T D X`` with the second derivatives
        ``D``, (p, p); ``"sum_of_squares"`` sums the squares of the gradients of single rows, (p,).
    X, y, weight
        The part.
    z
        ``X @ w``, (m,).
    loss
        What of.
    first
        Place of the part's first row in the data set.

    Raises
    ------
    ValueError
        If the loss does not tell its second derivative.
    """
    if what["kind"] == "sum_of_squares":
        return multiply_transposed(squared(X), squared_slopes(loss, z, y, weight))
    bend = loss.curvature(z, y, weight)
    if what["kind"] == "fisher":
        return _gram(X, bend)
    rows = int(what["rows"])
    buckets, signs = buckets_and_signs(what["seed"], first, len(z), None if what["whole"] else rows)
    return sketched_rows(X, buckets, signs * np.sqrt(bend), rows)


def squared_slopes(loss: Loss, z: Array, y: Array, weight: Array | None) -> Array:
    """Return the squared derivative of each row's loss, times the row's weight: a row of weight 2 counts as two."""
    slopes = loss.residual(z, y)
    squares: Array = slopes * (slopes if weight is None else loss.residual(z, y, weight))
    return squares


def _gram(block: Block, weights: Array) -> Array:
    """Return ``block.T @ diag(weights) @ block``, a few dense rows at a time."""
    m, p = block.shape
    total = np.zeros((p, p))
    step = max(1, _STRIP_ENTRIES // p)
    for start in range(0, m, step):
        strip = take_rows(block, np.arange(start, min(start + step, m)))
        dense = multiply(strip, np.eye(p)) if isinstance(strip, CsrBlock) else strip.astype(np.float64, copy=False)
        total += dense.T @ (dense * weights[start : start + step, None])
    return total
