"""One coded round or two for a gradient: how `CodedData` chooses, and the Gram matrix that saves a round.

A least-squares gradient ``X.T (X w - y)`` is ``M w - b`` with ``M = X.T X`` and ``b = X.T y``: one coded product of a
small matrix instead of two of a large one. It is as exact as two rounds while ``X`` is well conditioned.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.encode import Source
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["LARGEST_GRAM", "Choice", "Gram", "Strategy", "check_strategy", "choose", "gram_may_pay", "make_gram"]

Strategy = Literal["auto", "two-round", "gram", "polynomial"]

MOST_COLUMNS = 200
"""Beyond so many columns forming the Gram matrix costs more than the work of a hundred two-round gradients."""

LARGEST_GRAM = 2000
"""Beyond so many columns a data set does not keep the matrix itself for a Gram matrix that might be asked for."""

ROWS_PER_COLUMN = 10
WORST_CONDITION = 1e4
"""Above this condition number of ``X`` the solution found through the Gram matrix loses eight digits."""
WORST_SINGLE = 1e2
"""The same for blocks stored in single precision, of whose seven digits it leaves four."""

SEVERAL = 2
"""Gradients of the same data by two rounds before forming the Gram matrix is worth it."""

_STRIP_BYTES = 2**24


_WORDS = {
    "two-round": "two rounds",
    "gram": "one round with the Gram matrix",
    "polynomial": "one round of polynomials",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why, in words for the report."""

    strategy: Literal["two-round", "gram", "polynomial"]
    reason: str

    def __str__(self) -> str:
        return f"{_WORDS[self.strategy]}: {self.reason}"


@dataclass(frozen=True)
class Gram:
    """``M = X^H X``, accumulated in double precision whatever the data."""

    matrix: Array

    @cached_property
    def condition(self) -> float:
        """Condition number of ``X``: the square root of that of ``M``, infinite where ``M`` is singular to rounding."""
        values = np.linalg.eigvalsh(self.matrix)
        # Below this an eigenvalue is rounding of the largest one.
        if values[0] <= values[-1] * len(values) * np.finfo(float).eps:
            return np.inf
        return float(np.sqrt(values[-1] / values[0]))


def check_strategy(strategy: str) -> Strategy:
    """Return a strategy, checked."""
    if strategy not in get_args(Strategy):
        raise InputError(f"strategy must be one of {', '.join(get_args(Strategy))}, got {strategy!r}")
    return strategy  # type: ignore[return-value]  # checked just now


def gram_may_pay(shape: tuple[int, int], *, sparse: bool) -> bool:
    """Whether the Gram matrix of a matrix of this shape could be chosen without being asked for."""
    rows, columns = shape
    return not sparse and columns <= MOST_COLUMNS and columns * ROWS_PER_COLUMN <= rows


def choose(
    asked: Strategy,
    *,
    loss: str,
    weighted: bool,
    sparse: bool,
    shape: tuple[int, int],
    gradients: int,
    gram: Gram | None,
    dtype: DTypeLike = np.float64,
    polynomial: bool = False,
) -> Choice | None:
    """Choose how to compute a gradient.

    Parameters
    ----------
    asked
        What the caller wants.
    loss
        Name of the loss.
    weighted
        Whether rows have weights.
    sparse, shape
        Of ``X``.
    gradients
        Least-squares gradients of the same data so far.
    gram
        The Gram matrix, if it was formed.
    dtype
        Precision in which blocks are stored: it decides how ill-conditioned ``X`` may be.
    polynomial
        Whether the code decodes polynomials of a worker's block, so that one round gives ``X.T X w``.

    Returns
    -------
    Choice or None
        None if the Gram matrix must be formed first: its condition decides.

    Raises
    ------
    InputError
        If what is asked for does not apply.

    Notes
    -----
    One round also pays for small blocks, where latency outweighs all work. That is left to be asked for: how long an
    invocation takes against the speed of a worker is a matter of the backend, which neither shapes nor counts tell, and
    the code, which decides whether the round may be one of polynomials, was chosen when the data were encoded.

    Examples
    --------
    >>> choose("auto", loss="logistic", weighted=False, sparse=False, shape=(1000, 10), gradients=5, gram=None)
    Choice(strategy='two-round', reason='one round serves the squared loss only, the loss is logistic')
    """
    if asked == "two-round":
        return Choice("two-round", "asked for")
    obstacle = ""
    if loss != "squared":
        obstacle = f"one round serves the squared loss only, the loss is {loss}"
    elif weighted:
        obstacle = "rows have weights of this call, what one round needs is made once"
    elif asked == "polynomial" and not polynomial:
        obstacle = "workers must return polynomials of their block, which code='pcr' allows"
    if asked != "auto":
        if obstacle:
            raise InputError(f"strategy={asked!r} does not apply: {obstacle}; use strategy='two-round'")
        return None if asked == "gram" and gram is None else Choice(asked, "asked for")
    if obstacle:
        return Choice("two-round", obstacle)
    if polynomial:
        return Choice("polynomial", "the code decodes X.T (X w) of coded rows")
    rows, columns = shape
    if sparse:
        return Choice("two-round", "X is sparse and its Gram matrix is not")
    if not gram_may_pay(shape, sparse=False):
        return Choice("two-round", f"with {columns} columns and {rows} rows the Gram matrix costs more than it saves")
    if gradients < SEVERAL:
        return Choice("two-round", "forming the Gram matrix pays with several gradients of the same data")
    if gram is None:
        return None
    single = np.finfo(dtype).eps > np.finfo(np.float64).eps
    if gram.condition > (WORST_SINGLE if single else WORST_CONDITION):
        digits = f"the condition number of X is {gram.condition:.0e}, the Gram matrix would square it"
        return Choice("two-round", digits + (" in single precision" if single else ""))
    return Choice("gram", f"{columns} columns, {rows} rows, condition number {gram.condition:.0f}")


def make_gram(source: Source, stop: threading.Event | None = None) -> Gram:
    """Form the Gram matrix, a strip of rows at a time.

    Parameters
    ----------
    source
        A dense matrix of ``p`` columns.
    stop
        Give up when it is set, with `InterruptedError`.

    Examples
    --------
    >>> from serverless_gc.encode import as_source
    >>> make_gram(as_source([[1, 0], [0, 1], [1, 1], [2, -1]])).matrix.tolist()
    [[6.0, -1.0], [-1.0, 3.0]]
    """
    rows, columns = source.shape
    total = np.zeros((columns, columns), source.dtype)
    strip = max(1, _STRIP_BYTES // (columns * source.dtype.itemsize))
    for start in range(0, rows, strip):
        if stop is not None and stop.is_set():
            raise InterruptedError("forming the Gram matrix was given up")
        piece = source.rows(start, min(start + strip, rows))
        if not isinstance(piece, np.ndarray):
            raise InputError(f"{source.name} is sparse: its Gram matrix would be dense; use strategy='two-round'")
        total += piece.conj().T @ piece
    return Gram(total)
