"""Moment encoding: the least-squares gradient ``M w - b`` with ``M = X.T X``, the rows of ``M`` coded in groups.

The ``p`` rows of ``M`` are cut into groups of ``k`` rows and every group is encoded by the same code. So source block
``i`` of that code is row ``i`` of every group: a matrix of ``p / k`` rows. A worker returns ``p / k`` numbers, and all
groups share one pattern of losses.

References
----------
R. K. Maity, A. S. Rawat and A. Mazumdar, *Robust Gradient Descent via Moment Encoding with LDPC Codes*, 2018 (arXiv
1805.08327).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from serverless_gc.codes.base import Certificate, Code, Tracker
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

if TYPE_CHECKING:
    from serverless_gc.codes.peeling.ldpc import LDPCCode

__all__ = ["PartlyDecoded", "deinterleave", "interleave", "partial_gradient"]


def interleave(matrix: Array, k: int) -> Array:
    """Return the source blocks of moment encoding: block ``i`` is rows ``i, k + i, 2 k + i, ...``.

    Parameters
    ----------
    matrix
        Shape ``(p, ...)``.
    k
        Number of source blocks, the size of a group. If ``p`` is no multiple of it, zero rows are appended.

    Returns
    -------
    array
        Shape ``(k, ceil(p / k), ...)``; a view where nothing was appended.

    Raises
    ------
    InputError
        If ``k < 1`` or the matrix has no rows.

    Examples
    --------
    >>> interleave(np.arange(5), 2).tolist()
    [[0, 2, 4], [1, 3, 0]]
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if matrix.ndim < 1 or not len(matrix):
        raise InputError(f"matrix must have rows, got shape {matrix.shape}")
    groups = -(-len(matrix) // k)
    padding = groups * k - len(matrix)
    if padding:
        matrix = np.concatenate([matrix, np.zeros((padding, *matrix.shape[1:]), matrix.dtype)])
    return matrix.reshape(groups, k, *matrix.shape[1:]).swapaxes(0, 1)


def deinterleave(blocks: Array, p: int) -> Array:
    """Return the ``p`` rows that were interleaved in these blocks, shape ``(p, ...)``; drops the padding.

    Raises
    ------
    InputError
        If the blocks do not hold ``p`` rows.

    Examples
    --------
    >>> deinterleave(interleave(np.arange(5), 2), 5).tolist()
    [0, 1, 2, 3, 4]
    """
    if blocks.ndim < 2 or not 0 < p <= blocks.shape[0] * blocks.shape[1]:
        raise InputError(f"p must be between 1 and the rows of the blocks, got {p} for shape {blocks.shape}")
    rows = blocks.swapaxes(0, 1)
    return rows.reshape(-1, *blocks.shape[2:])[:p]


def partial_gradient(blocks: Array, b: Array, unknown: Sequence[int] = ()) -> Array:
    """Return ``M w - b`` where ``M w`` is known, zeros elsewhere.

    Parameters
    ----------
    blocks
        Decoded blocks of ``M w``, shape ``(k, groups, ...)``.
    b
        ``X.T y``, shape ``(p, ...)``.
    unknown
        Blocks that are not known, as of `LDPCCode.decode_anytime`.

    Examples
    --------
    >>> partial_gradient(np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([0.5, 0.5, 0.5]), unknown=(1,))
    array([0.5, 0. , 1.5])
    """
    gradient = np.subtract(deinterleave(blocks, len(b)), b)
    for j in unknown:
        gradient[j :: len(blocks)] = 0
    return gradient


class PartlyDecoded(Code):
    """An LDPC code whose decoder gives what it can: blocks that stay unknown are NaN.

    Parameters
    ----------
    code
        The code.
    rounds
        Most rounds of peeling; None for as many as help.

    Examples
    --------
    >>> from serverless_gc.codes.peeling.ldpc import LDPCCode
    >>> code = LDPCCode(6, 3, checks=[[0, 1, 3], [1, 2, 3, 4], [0, 2, 4, 5]])
    >>> sent = code.encode(np.array([[1.0], [2.0], [3.0]]))
    >>> blocks, certificate = PartlyDecoded(code).decode({0: sent[0], 1: sent[1]})
    >>> blocks.ravel().tolist(), certificate.warning
    ([1.0, 2.0, nan], '1 of 3 blocks stayed unknown: their part of the answer was left out')
    """

    name: ClassVar[str] = "ldpc"
    exact: ClassVar[bool] = False

    def __init__(self, code: LDPCCode, rounds: int | None = None) -> None:
        super().__init__(code.n_workers, code.k)
        self._code = code
        self._rounds = rounds

    def _build_generator(self) -> FloatArray:
        return self._code.generator

    def source_of(self, message: int) -> int | None:
        """Index of the block that ``message`` carries unchanged, or None."""
        return self._code.source_of(message)

    def tracker(self) -> Tracker:
        """Make a fresh tracker of the code itself: it says when everything is known."""
        return self._code.tracker()

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,  # noqa: ARG002 - peeling adds no error worth a limit
        scale: float = 0.0,  # noqa: ARG002
    ) -> tuple[Array, Certificate]:
        """Decode what these messages determine; ``error`` of the certificate is the number of unknown blocks."""
        found = self._code.decode_anytime(values, rounds=self._rounds, out=out)
        for j in found.unknown:
            found.blocks[j] = np.nan
        lost = len(found.unknown)
        warning = f"{lost} of {self.k} blocks stayed unknown: their part of the answer was left out" if lost else ""
        used = tuple(sorted(values))
        return found.blocks, Certificate("peel", used=used, error=float(lost), warning=warning)
