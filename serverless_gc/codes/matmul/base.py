"""What every matrix-matrix code is: two generators, one for each operand, and a code of the products.

Wanted is ``C = A.T @ B``. ``A`` is cut into ``inner x p`` blocks ``A[s, a]``, ``B`` into ``inner x q`` blocks
``B[s, b]``, and worker ``i`` multiplies a combination of the ones by a combination of the others. What it returns is
bilinear in the blocks, so a code does not care whether blocks of ``A`` are stored transposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, CodeKind, Tracker
from serverless_gc.codes.dense import encode_dense
from serverless_gc.codes.lagrange.interpolation import GUARD
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["MatmulCode", "Operand", "Products", "Split"]


class Products(Protocol):
    """The code of what workers return: tracks and decodes, and has a generator."""

    @property
    def generator(self) -> Array:
        """Message ``i`` is ``generator[i]`` times the unknowns."""

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes."""

    def source_of(self, message: int) -> int | None:
        """Index of the block of the answer that ``message`` is, or None."""

    def tracker(self) -> Tracker:
        """Make a fresh tracker."""

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted; see `Certifier`."""

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Reconstruct what is wanted; see `Code.decode`."""


@dataclass(frozen=True, slots=True)
class Split:
    """How ``C = A.T @ B`` is cut: columns of ``A`` into ``p``, those of ``B`` into ``q``, their rows into ``inner``."""

    p: int
    q: int
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Operand:
    """The coded blocks of one operand. Workers with the same combination share one.

    Attributes
    ----------
    generator
        ``(n_coded, n_blocks)``: coded block ``c`` is ``generator[c] @ blocks``; rows are all different.
    of
        Coded block of each worker.
    """

    generator: Array
    of: tuple[int, ...]

    @classmethod
    def shared(cls, rows: Array) -> Operand:
        """Make the operand in which worker ``i`` has the combination ``rows[i]``, equal ones stored once.

        Examples
        --------
        >>> Operand.shared(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).of
        (0, 1, 0)
        """
        first: dict[bytes, int] = {}
        of = tuple(first.setdefault(row.tobytes(), len(first)) for row in np.ascontiguousarray(rows))
        _, keep = np.unique(of, return_index=True)
        return cls(rows[keep], of)

    @property
    def n_coded(self) -> int:
        """Number of coded blocks."""
        return len(self.generator)

    @property
    def n_blocks(self) -> int:
        """Number of source blocks."""
        return int(self.generator.shape[1])

    def source_of(self, coded: int) -> int | None:
        """Index of the source block that a coded block equals, or None."""
        nonzero = np.flatnonzero(self.generator[coded])
        return int(nonzero[0]) if nonzero.size == 1 and self.generator[coded, nonzero[0]] == 1 else None


class MatmulCode(Code):
    """A code for ``C = A.T @ B`` on ``n_workers`` workers.

    Attributes
    ----------
    split
        How the operands are cut.
    left, right
        The coded blocks of ``A`` and of ``B``; source blocks are numbered ``s * p + a`` and ``s * q + b``.

    Notes
    -----
    ``k`` is the number of blocks of the answer, ``p * q``; block ``a * q + b`` is ``C[a, b]``. A code whose target is
    a sum has one such block, and ``k`` counts the terms of the sum.
    """

    kind: ClassVar[CodeKind] = "matmul"
    guard: ClassVar[float | None] = GUARD

    def __init__(self, n_workers: int, split: Split, left: Operand, right: Operand, products: Products) -> None:
        super().__init__(n_workers, split.inner if self.target == "sum" else split.p * split.q)
        self.split = split
        self.left = left
        self.right = right
        self._products = products
        for array in (left.generator, right.generator):
            array.setflags(write=False)

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes."""
        return self._products.guaranteed_threshold

    def _build_generator(self) -> Array:
        return np.array(self._products.generator)

    def operands(self, worker: int) -> tuple[int, int]:
        """Return which coded block of ``A`` and which of ``B`` a worker multiplies."""
        self.placement(worker)
        return self.left.of[worker], self.right.of[worker]

    def source_of(self, message: int) -> int | None:
        """Index of the block of the answer that ``message`` is, or None."""
        return self._products.source_of(message)

    def encode_left(
        self, blocks: Sequence[Array] | Array, out: Array | None = None, *, coded: Sequence[int] | None = None
    ) -> Array:
        """Encode the blocks of ``A``.

        Parameters
        ----------
        blocks
            ``inner * p`` arrays of one shape.
        out
            Where to write, shape ``(len(coded), ...)``; allocated when None.
        coded
            Which of the ``left.n_coded`` coded blocks to compute; all of them by default.

        Raises
        ------
        InputError
            If the number of blocks is wrong, shapes differ, or ``out`` does not fit.
        """
        return encode_dense(self.left.generator, blocks, range(self.left.n_coded) if coded is None else coded, out)

    def encode_right(
        self, blocks: Sequence[Array] | Array, out: Array | None = None, *, coded: Sequence[int] | None = None
    ) -> Array:
        """Encode the blocks of ``B``: ``inner * q`` of them; otherwise as `encode_left`."""
        return encode_dense(self.right.generator, blocks, range(self.right.n_coded) if coded is None else coded, out)

    def encode(
        self,
        blocks: Sequence[Array] | Array,  # noqa: ARG002 - the signature of all codes
        out: Array | None = None,  # noqa: ARG002
        *,
        messages: Sequence[int] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: there are two operands.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError(f"{self.name} codes two operands: use encode_left(blocks) and encode_right(blocks)")

    def tracker(self) -> Tracker:
        """Make a fresh tracker."""
        return self._products.tracker()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If the messages do not determine the answer.
        """
        return self._products.certify(messages, dtype)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Reconstruct the blocks ``A[:, a].T @ B[:, b]`` of the answer; see `Code.decode`.

        Parameters
        ----------
        values
            Worker to the product it returned.
        out
            Where to write, shape ``(k, ...)``, or that of a message for a sum; allocated when None.
        tolerance, scale
            See `Code.decode`.

        Returns
        -------
        array, certificate
            Shape ``(k, ...)``, or that of a message for a sum; `assemble` puts the blocks together.
        """
        return self._products.decode(values, out=out, tolerance=tolerance, scale=scale)

    def assemble(self, answer: Array) -> Array:
        """Put what `decode` gave together to one matrix ``C``, padding included.

        Parameters
        ----------
        answer
            ``(k, rows, columns)``, or ``(rows, columns)`` for a sum.
        """
        if self.target == "sum":
            return answer
        p, q = self.split.p, self.split.q
        rows, columns = answer.shape[1:]
        return answer.reshape(p, q, rows, columns).swapaxes(1, 2).reshape(p * rows, q * columns)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {} if self.target == "sum" else {"p": self.split.p, "q": self.split.q}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, both generators included."""
        return {**super().manifest(), "left": self.left.generator, "right": self.right.generator}
