"""Least squares from moments: value and gradient from ``X.T X w``, ``X.T y`` and ``||y||**2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.encode import Source
from serverless_gc.errors import InputError
from serverless_gc.prepare import check_number, check_operand
from serverless_gc.types import Array

__all__ = ["LeastSquares", "target_moments"]

_STRIP_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """One call: where, and how it is regularized and scaled."""

    w: Array
    l2: float
    scale: float

    @classmethod
    def checked(cls, w: Any, n_cols: int, n_rows: int, loss: Any, l2: Any, reduction: Any) -> LeastSquares:
        """Check the arguments of a gradient of the squared loss.

        Raises
        ------
        InputError
            If one of them is wrong, or the loss is another.
        """
        point = check_operand(w, n_cols, "w")
        if getattr(loss, "name", loss) != "squared":
            raise InputError(f"this code serves the squared loss only, got {loss!r}; use a gradient code for others")
        if not 0 <= check_number("l2", l2) < np.inf:
            raise InputError(f"l2 must be a finite number of at least 0, got {l2!r}")
        if reduction not in {"sum", "mean"}:
            raise InputError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
        return cls(point, float(l2), 1.0 if reduction == "sum" else 1.0 / n_rows)

    def finish(self, product: Array, moments: Array, squares: float) -> tuple[float, Array]:
        """Return value and gradient.

        Parameters
        ----------
        product
            ``X.T X w``.
        moments
            ``X.T y``.
        squares
            ``||y||**2``.
        """
        value = 0.5 * float((np.vdot(self.w, product) - 2 * np.vdot(self.w, moments)).real) + 0.5 * squares
        gradient = self.scale * (product - moments) + self.l2 * self.w
        return self.scale * value + 0.5 * self.l2 * float(np.vdot(self.w, self.w).real), gradient


def target_moments(source: Source, y: Array) -> tuple[Array, float]:
    """Return ``X.T y`` (conjugated for complex data) and ``||y||**2``, reading a dense matrix by strips of rows.

    Examples
    --------
    >>> from serverless_gc.encode import as_source
    >>> target_moments(as_source([[1, 0], [0, 2], [1, 1]]), np.array([1.0, 2.0, 3.0]))
    (array([4., 7.]), 14.0)
    """
    rows, columns = source.shape
    targets = y.astype(np.complex128 if y.dtype.kind == "c" else np.float64)
    total = np.zeros((columns, *y.shape[1:]), np.result_type(source.dtype, targets))
    strip = max(1, _STRIP_BYTES // (columns * source.dtype.itemsize))
    for start in range(0, rows, strip):
        stop = min(start + strip, rows)
        piece = source.rows(start, stop)
        if not isinstance(piece, np.ndarray):
            raise InputError(f"{source.name} must be dense for this code: it mixes all rows")
        total += piece.conj().T @ targets[start:stop]
    return total, float(np.vdot(targets, targets).real)
