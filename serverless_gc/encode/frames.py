"""pandas frames: which columns are accepted, and how they become a dense source.

Accepted: NumPy numeric and boolean columns, pandas nullable and Arrow numeric and boolean columns (a missing value is
refused like NaN, naming row and column). Refused, naming the column: text, dates, categories, sparse, objects.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from serverless_gc.encode.dense import ArraySource, DenseSource
from serverless_gc.encode.source import check_numeric, check_shape, working_dtype
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["FrameSource", "frame_source"]


def frame_source(frame: Any, *, name: str = "X") -> DenseSource:
    """Wrap a DataFrame. One NumPy type throughout is used as it is; mixed types are joined piece by piece.

    Raises
    ------
    InputError
        If a column is not numeric (named), the frame is empty, or a Series is given.
    """
    if frame.ndim == 1:
        raise InputError(f"{name} must be a matrix, got a Series; use {name}.to_frame()")
    check_shape(frame.shape, name)
    for label, dtype in frame.dtypes.items():
        _check_column(label, dtype, name)
    first = frame.dtypes.iloc[0]
    if isinstance(first, np.dtype) and bool((frame.dtypes == first).all()):
        return ArraySource(frame.to_numpy(), name=name, labels=frame.columns)
    return FrameSource(frame, name=name)


def _check_column(label: object, dtype: Any, name: str) -> None:
    what = f"column {label!r} of {name}"
    if isinstance(dtype, np.dtype):
        check_numeric(dtype, what)
        return
    if dtype.name == "category":
        raise InputError(f"{what} is categorical; encode it first, for example with pandas.get_dummies")
    if dtype.name.startswith("Sparse"):
        raise InputError(f"{what} is sparse; pass {name}.sparse.to_coo() to keep the whole frame sparse")
    types = sys.modules["pandas"].api.types  # loaded, since a frame exists
    if not (types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)):
        raise InputError(f"{what} must be numeric, got dtype {dtype}; convert it to numbers first")


class FrameSource(DenseSource):
    """A frame of mixed numeric types; pieces are put together column by column in the working type."""

    order = "F"

    def __init__(self, frame: Any, *, name: str = "X") -> None:
        self.name = name
        self.shape = (int(frame.shape[0]), int(frame.shape[1]))
        self.labels = frame.columns
        self._columns = [frame.iloc[:, j].array for j in range(frame.shape[1])]
        kinds = {getattr(c.dtype, "kind", "f") for c in self._columns}
        self.dtype = working_dtype(np.dtype(np.complex128 if "c" in kinds else np.float64))
        self.content_dtype = self.dtype

    def window(self, r0: int, r1: int, c0: int, c1: int) -> Array:
        """See `DenseSource.window`."""
        out = np.empty((r1 - r0, c1 - c0), dtype=self.dtype, order="F")
        for j in range(c0, c1):
            piece = self._columns[j][r0:r1]
            if isinstance(piece.dtype, np.dtype):
                out[:, j - c0] = piece.to_numpy()
            else:  # nullable: a missing value becomes NaN, which the scan refuses by row and column
                out[:, j - c0] = piece.to_numpy(dtype=self.dtype, na_value=np.nan)
        return out
