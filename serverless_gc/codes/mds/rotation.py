"""MDS codes on the roots of unity: complex, and their real form by rotations of pairs of blocks.

References
----------
A. Ramamoorthy, L. Tang, *Numerically Stable Coded Matrix Computations via Circulant and Rotation Matrix Embeddings*,
2021 (arXiv 1910.06515).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, CodeKind, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, check_blocks, combine, promoted
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.mds.nonsystematic import AllOrNothingTracker, check_at_most, require
from serverless_gc.codes.mds.points import refuse_unstable, roots_of_unity
from serverless_gc.codes.received import GUARD, receive
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["PairTracker", "RootsOfUnityCode", "RotationCode"]


class PairTracker(Tracker):
    """Decodable when both messages of enough workers arrived."""

    __slots__ = ("_complete", "_needed", "_seen")

    def __init__(self, n_workers: int, needed: int) -> None:
        self._seen = bytearray(2 * n_workers)
        self._needed = needed
        self._complete = 0

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._seen))
        if not self._seen[message]:
            self._seen[message] = 1
            self._complete += self._seen[message ^ 1]
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether enough workers sent both messages."""
        return self._complete >= self._needed

    def missing(self) -> tuple[int, ...]:
        """All blocks, until enough workers sent both messages."""
        return () if self.decodable else tuple(range(2 * self._needed))


class RotationCode(LinearCode):
    """Pairs of blocks, rotated by multiples of an angle: any ``k / 2`` workers decode.

    Worker ``j`` sends two messages, ``sum_i cos(theta i j) A_(2i) - sin(theta i j) A_(2i+1)`` and the same with
    ``sin`` and ``cos``, ``theta = 2 pi / q``. Taken as real and imaginary part they are a complex Vandermonde system on
    the ``q``-th roots of unity, ``q`` odd and at least ``n_workers``.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks; ``k`` even and at most ``2 n_workers``.
    allow_unstable
        Accept sizes at which the construction loses most digits: more than three stragglers and more than about 40
        workers.

    Raises
    ------
    InputError
        If ``k`` is odd or too large, or the construction not stable at this size.

    Examples
    --------
    >>> import numpy as np
    >>> code = RotationCode(5, 6)
    >>> blocks = np.arange(6.0).reshape(6, 1)
    >>> coded = code.encode(blocks)
    >>> decoded, _ = code.decode({i: coded[i] for worker in (0, 2, 4) for i in code.placement(worker)})
    >>> bool(np.allclose(decoded, blocks))
    True
    """

    name: ClassVar[str] = "rotation"
    kind: ClassVar[CodeKind] = "multi-message"

    def __init__(self, n_workers: int, k: int, *, allow_unstable: bool = False) -> None:
        Code.__init__(self, n_workers, k)  # checks the sizes, which LinearCode reads off its matrix
        if self.k % 2 or self.k > 2 * self.n_workers:
            raise InputError(f"k must be even and at most 2 n_workers={2 * self.n_workers}, got {k}")
        roots = roots_of_unity(self.n_workers, self.k // 2)
        refuse_unstable(self.name, roots, allow=allow_unstable)
        self._allow_unstable = bool(allow_unstable)
        super().__init__(_as_rotations(roots), n_workers=self.n_workers)

    @property
    def guaranteed_threshold(self) -> int:
        """Workers after which every set decodes, if each sent both messages: ``k / 2``."""
        return self.k // 2

    def tracker(self) -> PairTracker:  # type: ignore[override]  # any tracker is a tracker: the rank is known
        """Make a fresh tracker."""
        return PairTracker(self.n_workers, self.k // 2)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"allow_unstable": True} if self._allow_unstable else {}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs."""
        return Code.manifest(self)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> RotationCode:
        """Rebuild the code from its manifest alone."""
        return cls(manifest["n_workers"], manifest["k"], **manifest["params"])

    def __repr__(self) -> str:
        return Code.__repr__(self)


def _as_rotations(matrix: Array) -> FloatArray:
    """Write a complex matrix as a real one that acts on real and imaginary parts, twice as high and as wide."""
    n, k = matrix.shape
    parts = np.stack([np.stack([matrix.real, -matrix.imag], -1), np.stack([matrix.imag, matrix.real], -1)], 1)
    return parts.reshape(2 * n, 2 * k)


class RootsOfUnityCode(Code):
    """Worker ``j`` holds the polynomial of the blocks at the ``j``-th ``q``-th root of unity: any ``k`` decode.

    For complex data; real data becomes complex, of twice the size: `RotationCode` is the same code without that.
    Answers are complex.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks, ``k <= n_workers``.
    allow_unstable
        Accept sizes at which the construction loses most digits: more than three stragglers and more than about 40
        workers.

    Raises
    ------
    InputError
        If ``k > n_workers``, or the construction is not stable at this size.

    Examples
    --------
    >>> import numpy as np
    >>> code = RootsOfUnityCode(3, 2)
    >>> coded = code.encode(np.array([[1.0], [1.0j]]))
    >>> decoded, certificate = code.decode({0: coded[0], 2: coded[2]})
    >>> bool(np.allclose(decoded, [[1], [1j]])), round(certificate.amplification, 3)
    (True, 1.732)
    """

    name: ClassVar[str] = "roots-of-unity"
    guard = GUARD

    def __init__(self, n_workers: int, k: int, *, allow_unstable: bool = False) -> None:
        super().__init__(n_workers, k)
        check_at_most(self.k, self.n_workers)
        refuse_unstable(self.name, roots_of_unity(self.n_workers, self.k), allow=allow_unstable)
        self._allow_unstable = bool(allow_unstable)

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes: ``k``."""
        return self.k

    @property
    def average_threshold(self) -> float:
        """Mean number of results at the first decodable moment: ``k``."""
        return float(self.k)

    @cached_property
    def _rotations(self) -> RotationCode:
        """The same code over real and imaginary parts, which does the solving."""
        return RotationCode(self.n_workers, 2 * self.k, allow_unstable=True)

    def _build_generator(self) -> Array:
        return roots_of_unity(self.n_workers, self.k)

    def tracker(self) -> AllOrNothingTracker:
        """Make a fresh tracker."""
        return AllOrNothingTracker(self.n_workers, self.k, self.k)

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Evaluate the polynomial of the blocks, complex; see `Code.encode`."""
        ids = list(range(self.n_workers) if messages is None else messages)
        for i in ids:
            check_message(i, self.n_workers)
        arrays, dtype = check_blocks(blocks, self.k)
        if out is not None and out.dtype.kind != "c":
            raise InputError(
                f"roots-of-unity makes complex blocks, out must hold them, its dtype is {out.dtype}: give complex "
                "data, or use code 'mds' (or 'rotation', two messages a worker) for real data"
            )
        output = Output.prepare(out, (len(ids), *arrays[0].shape), np.result_type(dtype, np.complex64))
        matrix = _as_rotations(self.generator[ids])
        if dtype.kind == "f":  # no imaginary parts: every second column meets nothing
            combine(matrix[:, ::2], [np.asarray(a, dtype).reshape(-1) for a in arrays], _parts(output.array))
        else:
            combine(matrix, _parts([np.ascontiguousarray(a, dtype) for a in arrays]), _parts(output.array))
        return output.finish()

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.complex128) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If there are fewer than ``k``.
        """
        ids = self._require(messages)
        pairs = [part for i in ids for part in (2 * i, 2 * i + 1)]
        return self._translated(self._rotations.certify(pairs, promoted(np.dtype(dtype))), ids)

    def _require(self, messages: Iterable[int]) -> list[int]:
        return require(self.name, messages, self.n_workers, self.k, self.k)

    def _translated(self, certificate: Certificate, ids: Sequence[int]) -> Certificate:
        """Tell of complex messages and blocks what was found out about their parts."""
        checked = certificate.surplus_checked // 2
        return replace(certificate, used=tuple(ids), surplus_checked=checked, unknowns=self.k)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Solve for the blocks by least squares over all arrived messages; see `Code.decode`.

        Raises
        ------
        InputError
            Also if a message holds NaN or infinity; names it.
        """
        got = receive(values, self.n_workers)
        ids = self._require(got.ids)
        bad = [i for i in ids if not np.isfinite(got.values[i]).all()]
        if bad:
            raise InputError(f"messages {bad} hold NaN or infinity: leave them out, as if they had not arrived")
        parts = {2 * i + j: part for i in ids for j, part in enumerate((got.values[i].real, got.values[i].imag))}
        solved, certificate = self._rotations.decode(parts, tolerance=tolerance, scale=scale)
        dtype = np.result_type(got.dtype, np.complex64)
        output = Output.prepare(out, (self.k, *got.shape), dtype)
        output.array.real, output.array.imag = solved[::2], solved[1::2]
        return output.finish(), self._translated(certificate, ids)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"allow_unstable": True} if self._allow_unstable else {}


def _parts(blocks: Array | Sequence[Array]) -> list[Array]:
    """View complex blocks as rows of real and of imaginary parts, in turn."""
    flat = [block.reshape(-1) for block in blocks]
    return [part for row in flat for part in (row.real, row.imag)]
