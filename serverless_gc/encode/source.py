"""What every matrix that can be read piece by piece has in common, and which values are accepted.

Rules for data types (the *working type* is what codes add up):

=============================================  ==============================================================
given                                          worked with
=============================================  ==============================================================
bool, integers, float16, float32, float64      float64; integers beyond 2**53 are rounded, as NumPy does
longdouble                                     float64: rounded, and the fingerprint is of the rounded values
complex64, complex128, clongdouble             complex128
big-endian                                     the same values in native order
text, dates, objects, structured, masked       refused, with advice
=============================================  ==============================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import Array
from serverless_gc.wire import Block

__all__ = ["Source", "check_numeric", "check_range", "check_shape", "working_dtype"]


class Source(ABC):
    """A matrix that can be read by pieces.

    Attributes
    ----------
    name
        What messages call it.
    shape
        Rows and columns.
    dtype
        Working type: float64 or complex128.
    sparse
        Whether pieces are `serverless_gc.wire.CsrBlock` (else dense arrays).
    order
        ``"C"`` when rows are the cheap pieces to read, ``"F"`` when columns are.
    labels
        Names of the columns, if they have names.
    """

    sparse: ClassVar[bool]
    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    order: Literal["C", "F"] = "C"
    labels: Sequence[object] | None = None

    @abstractmethod
    def rows(self, lo: int, hi: int, out: Array | None = None) -> Block:
        """Return rows ``lo..hi-1`` in the working type; a read-only view of the source where possible.

        Parameters
        ----------
        lo, hi
            Half-open range, within the matrix.
        out
            Dense sources: where to write (and in which floating type) instead. Shape ``(hi - lo, n_columns)``.

        Raises
        ------
        InputError
            If the range is not within the matrix, or ``out`` is given for a sparse source.
        """

    @abstractmethod
    def columns(self, lo: int, hi: int, out: Array | None = None) -> Block:
        """Return columns ``lo..hi-1`` as rows of the transpose; otherwise as `rows`."""

    def column_label(self, column: int) -> str:
        """Return what messages call a column: its name in the frame, or its index."""
        return f"column {column}" if self.labels is None else f"column {self.labels[column]!r}"

    def __repr__(self) -> str:
        m, p = self.shape
        return f"{type(self).__name__}({self.name}: {m} x {p}, {self.dtype})"


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which values of ``dtype`` are added up."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def check_numeric(dtype: np.dtype[Any], what: str) -> None:
    """Raise `InputError` unless ``dtype`` is boolean, integer, floating or complex; ``what`` is e.g. ``"X"``."""
    if dtype.kind in "biufc":
        return
    advice = {
        "O": "convert it first, for example with .astype(float)",
        "U": "encode text as numbers first",
        "S": "encode text as numbers first",
        "T": "encode text as numbers first",
        "M": "subtract an origin and divide by a unit first, for example (t - t0) / np.timedelta64(1, 's')",
        "m": "divide by a unit first, for example dt / np.timedelta64(1, 's')",
        "V": "pick the fields and stack them as columns first",
    }.get(dtype.kind, "convert it to numbers first")
    raise InputError(f"{what} must be numeric, got dtype {dtype}; {advice}")


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise `InputError` unless ``shape`` is that of a non-empty matrix."""
    if len(shape) == 1:
        raise InputError(
            f"{name} must be a matrix, got shape {shape}; reshape it to one column with {name}.reshape(-1, 1) "
            f"or to one row with {name}.reshape(1, -1)"
        )
    if len(shape) != 2:
        raise InputError(f"{name} must be a matrix (2 axes), got shape {shape}")
    if min(shape) == 0:
        raise InputError(f"{name} must have at least one row and one column, got shape {shape}")


def check_range(lo: int, hi: int, n: int, what: str) -> None:
    """Raise `InputError` unless ``0 <= lo <= hi <= n``."""
    if not 0 <= lo <= hi <= n:
        raise InputError(f"{what} must be within 0..{n}, got {lo}..{hi}")
