"""Dense combinations of blocks with real or complex coefficients: encoding, and decoding by weights.

Complex coefficients are applied to real and imaginary parts as to rows of their own, so that real blocks cost half of
what complex ones do and one real product does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from serverless_gc.codes.base import check_message
from serverless_gc.codes.blocks import Output, as_rows, check_blocks, combine
from serverless_gc.types import Array

__all__ = ["combine_blocks", "encode_dense"]


def encode_dense(generator: Array, blocks: Sequence[Array] | Array, ids: Sequence[int], out: Array | None) -> Array:
    """Return ``out[i] = sum_j generator[ids[i], j] * blocks[j]``.

    Raises
    ------
    InputError
        If an id is unknown, the blocks are not as many as the generator's columns, or ``out`` does not fit.

    Examples
    --------
    >>> encode_dense(np.array([[1.0, 1.0], [1.0, 1j]]), [np.ones(2), 2 * np.ones(2)], [1], None)
    array([[1.+2.j, 1.+2.j]])
    """
    for i in ids:
        check_message(i, len(generator))
    arrays, dtype = check_blocks(blocks, generator.shape[1])
    coefficients = generator[list(ids)]
    if np.iscomplexobj(generator):
        output = Output.prepare(out, (len(ids), *arrays[0].shape), np.result_type(dtype, np.complex64))
        combine_blocks(coefficients, arrays, output)
    else:
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        combine(coefficients, as_rows(blocks, arrays, dtype), output.rows(range(len(ids))))
    return output.finish()


def combine_blocks(
    coefficients: Array,
    arrays: Sequence[Array],
    output: Output,
    *,
    checks: Array | None = None,
    dtype: np.dtype[Any] | None = None,
    scale: float = 0.0,
) -> float:
    """Write ``output.array[i] = sum_j coefficients[i, j] * arrays[j]``; evaluate what must vanish.

    Parameters
    ----------
    coefficients
        ``(t, s)``, real or complex; with complex ones the output must be complex.
    arrays
        ``s`` arrays of one shape.
    output
        Of ``t`` blocks.
    checks
        ``(c, s)`` combinations that vanish if the arrays are consistent.
    dtype
        Real type in which the sums are taken.
    scale
        See `serverless_gc.codes.blocks.combine`.

    Returns
    -------
    float
        Relative mismatch of the checks; 0.0 without checks.
    """
    target = output.array
    real_type = np.dtype(np.finfo(target.dtype).dtype)
    if not np.iscomplexobj(coefficients):
        rows = [np.ascontiguousarray(a, dtype=target.dtype).reshape(-1).view(real_type) for a in arrays]
        return combine(coefficients, rows, output.rows(range(len(target))), checks=checks, dtype=dtype, scale=scale)
    split = any(np.iscomplexobj(a) for a in arrays)
    flat = [np.asarray(a, target.dtype if split else real_type).reshape(-1) for a in arrays]
    sources = [*(a.real for a in flat), *(a.imag for a in flat)] if split else flat
    # Through flat views: a part of a complex array is strided, and reshaping it would write to a copy.
    rows = [target[i, ...].reshape(-1) for i in range(len(target))]
    targets = [*(row.real for row in rows), *(row.imag for row in rows)]
    return combine(
        _on_parts(coefficients, both=split),
        sources,
        targets,
        checks=None if checks is None else _on_parts(checks, both=split),
        dtype=dtype,
        scale=scale,
    )


def _on_parts(coefficients: Array, *, both: bool) -> Array:
    """Return the real matrix that maps real (and imaginary) parts to real and imaginary parts."""
    real = np.concatenate([coefficients.real, coefficients.imag])
    return np.hstack([real, np.concatenate([-coefficients.imag, coefficients.real])]) if both else real
