"""Whatever a user calls a matrix, behind the one interface `Source`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from serverless_gc.encode.dense import ArraySource
from serverless_gc.encode.source import Source
from serverless_gc.errors import InputError

__all__ = ["as_source"]


def as_source(X: Any, *, name: str = "X") -> Source:
    """Wrap a matrix of any usual kind; nothing is copied that need not be.

    Parameters
    ----------
    X
        NumPy array of any layout, ``np.memmap`` (read piece by piece), SciPy sparse matrix or array (duplicates are
        summed; the given object is left alone), pandas DataFrame with numeric columns, nested lists, or a `Source`.
    name
        What error messages call it.

    Raises
    ------
    InputError
        If it is not a non-empty matrix of numbers. Non-finite values are found later, by the scan that precedes
        every encoding.

    Examples
    --------
    >>> src = as_source([[1, 2], [3, 4], [5, 6]])
    >>> src.shape, src.dtype, src.sparse
    ((3, 2), dtype('float64'), False)
    >>> src.columns(1, 2)
    array([[2., 4., 6.]])
    """
    if isinstance(X, Source):
        return X
    # An object of these libraries can only exist when the library is loaded: looking costs no import.
    sp = sys.modules.get("scipy.sparse")
    if sp is not None and sp.issparse(X):
        from serverless_gc.encode.sparse import SparseSource

        return SparseSource(X, name=name)
    pd = sys.modules.get("pandas")
    if pd is not None and isinstance(X, (pd.DataFrame, pd.Series)):
        from serverless_gc.encode.frames import frame_source

        return frame_source(X, name=name)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InputError(f"{name} has masked entries; fill them first, for example with {name}.filled(0)")
    try:
        array = np.asarray(X)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{name} cannot be read as a matrix: {error}") from error
    return ArraySource(array, name=name)
