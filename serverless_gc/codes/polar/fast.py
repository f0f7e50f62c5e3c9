"""The butterfly compiled by Numba: the same sums in the same order, with fewer passes over the cache.

Importing this module imports Numba (the extra ``fast``); `serverless_gc.codes.polar.butterfly` does so when it pays.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import carray  # type: ignore[attr-defined]  # Numba does not mark what it exports
from numba.core import types
from numba.extending import intrinsic

from serverless_gc.codes.polar.butterfly_program import ADD, COPY, NEGATE, SUBTRACT

__all__ = ["BINARY_STAGES", "HADAMARD_STAGES", "NO_STAGES", "transform_columns"]

NO_STAGES, BINARY_STAGES, HADAMARD_STAGES = range(3)


def _compile(function: Any) -> Any:
    """Compile without the interpreter lock; keep the machine code on disk where there is a place for it."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable cache directory
        return numba.njit(nogil=True)(function)


def _make_pointer(typing_context: Any, address: Any, like: Any) -> Any:  # noqa: ARG001 -- the signature Numba calls
    """Turn an address into a pointer to numbers of the type of ``like``: rows need not be one array."""
    result: Any = types.CPointer
    signature = result(like.dtype)(address, like)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


_pointer: Any = intrinsic(_make_pointer)


@_compile
def _four(x: Any, start: int, n: int) -> None:
    """Two stages at once on four neighbouring pieces of ``n`` numbers: each is read and written once."""
    a, b = x[start : start + n], x[start + n : start + 2 * n]
    c, d = x[start + 2 * n : start + 3 * n], x[start + 3 * n : start + 4 * n]
    for i in range(n):
        cd = c[i] + d[i]
        a[i] = (a[i] + b[i]) + cd
        b[i] = b[i] + d[i]
        c[i] = cd


@_compile
def _binary(x: Any, length: int, width: int) -> None:
    half = 1
    odd = length
    while odd >= 4:
        odd //= 4
    if odd == 2:
        for start in range(0, length, 2):
            a = x[start * width : (start + 1) * width]
            b = x[(start + 1) * width : (start + 2) * width]
            for i in range(width):
                a[i] = a[i] + b[i]
        half = 2
    while half < length:
        for start in range(0, length, 4 * half):
            _four(x, start * width, half * width)
        half *= 4


@_compile
def _hadamard(x: Any, length: int, width: int) -> None:
    half = 1
    while half < length:
        n = half * width
        for start in range(0, length, 2 * half):
            a = x[start * width : start * width + n]
            b = x[start * width + n : start * width + 2 * n]
            for i in range(n):
                difference = a[i] - b[i]
                a[i] = a[i] + b[i]
                b[i] = difference
        half *= 2
    scale = x.dtype.type(length**-0.5)
    for i in range(length * width):
        x[i] = x[i] * scale


@_compile
def _program(x: Any, table: Any, width: int) -> None:
    for row in range(table.shape[0]):
        what = table[row, 0]
        n = table[row, 4] * width
        out = x[table[row, 1] * width : table[row, 1] * width + n]
        a = x[table[row, 2] * width : table[row, 2] * width + n]
        b = x[table[row, 3] * width : table[row, 3] * width + n]
        if what == ADD:
            for i in range(n):
                out[i] = a[i] + b[i]
        elif what == SUBTRACT:
            for i in range(n):
                out[i] = a[i] - b[i]
        elif what == COPY:
            for i in range(n):
                out[i] = a[i]
        elif what == NEGATE:
            for i in range(n):
                out[i] = -a[i]
        else:
            for i in range(n):
                out[i] = 0


@_compile
def transform_columns(
    sources: Any,
    load: Any,
    clear: Any,
    table: Any,
    stages: int,
    length: int,
    targets: Any,
    store: Any,
    x: Any,
    columns: tuple[int, int, int],
) -> None:
    """Encode a range of columns, a narrow tile at a time.

    Parameters
    ----------
    sources, targets
        Addresses of the rows to read and to write.
    load, store
        Row of the tile for each of them.
    clear
        Rows of the tile that hold zeros.
    table
        Program of the systematic code.
    stages
        ``NO_STAGES`` to run the program; or which plain transform to run instead, the Hadamard kernel scaled.
    length
        Length of the transform.
    x
        Memory of a tile and its scratch, of the type of the numbers in the rows.
    columns
        First, last and how many at a time.
    """
    start, stop, step = columns
    for first in range(start, stop, step):
        width = min(step, stop - first)
        for j in range(clear.shape[0]):
            row = x[clear[j] * width : (clear[j] + 1) * width]
            for i in range(width):
                row[i] = 0
        for j in range(load.shape[0]):
            source = carray(_pointer(sources[j], x), (stop,))[first : first + width]
            row = x[load[j] * width : (load[j] + 1) * width]
            for i in range(width):
                row[i] = source[i]
        if stages == NO_STAGES:
            _program(x, table, width)
        elif stages == BINARY_STAGES:
            _binary(x, length, width)
        else:
            _hadamard(x, length, width)
        for j in range(store.shape[0]):
            target = carray(_pointer(targets[j], x), (stop,))[first : first + width]
            row = x[store[j] * width : (store[j] + 1) * width]
            for i in range(width):
                target[i] = row[i]
