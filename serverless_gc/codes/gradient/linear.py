"""The generic gradient code: any encoding matrix. What a faster code is tested against, and a new code's beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.linear import check_placement
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["LinearGradientCode"]


class LinearGradientCode(GradientCode):
    """A gradient code given by its encoding matrix.

    Parameters
    ----------
    matrix
        ``(n_messages, k)``, real or complex: message ``i`` is ``sum_j matrix[i, j] * g_j``.
    placement
        For each worker the ids of the messages it computes, in order; by default worker ``i`` computes message ``i``.
    exact
        Whether an answer that is not exact is refused (default) or given with its error.

    Raises
    ------
    InputError
        If the matrix is not finite, or the placement does not place every message or names an unknown one.

    Examples
    --------
    >>> import numpy as np
    >>> code = LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
    >>> g = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> sent = code.encode(g)
    >>> total, certificate = code.decode({0: sent[0], 1: sent[1]})
    >>> total.round(12), {i: round(a, 12) for i, a in certificate.weights.items()}
    (array([ 9., 12.]), {0: 2.0, 1: -1.0})
    """

    name = "linear-gradient"

    def __init__(
        self, matrix: ArrayLike, *, placement: Sequence[Sequence[int]] | None = None, exact: bool = True
    ) -> None:
        given = np.asarray(matrix)
        if given.ndim != 2 or 0 in given.shape or given.dtype.kind not in "biufc" or not np.isfinite(given).all():
            raise InputError(
                f"matrix must be a finite matrix (messages x partitions), got {given.dtype} of shape {given.shape}"
            )
        n_workers = len(given) if placement is None else len(placement)
        super().__init__(n_workers, given.shape[1])
        self._matrix = np.array(given, dtype=np.result_type(given, np.float64))
        self._placement = check_placement(placement, n_workers, len(given))
        self.exact = exact  # type: ignore[misc]  # of this instance: what a matrix is good for is its maker's to say

    @property
    def n_messages(self) -> int:
        """Number of rows of the matrix."""
        return len(self._matrix)

    def placement(self, worker: int) -> tuple[int, ...]:
        """Message ids that ``worker`` computes, in the order it computes them."""
        super().placement(worker)
        return self._placement[worker]

    def _build_generator(self) -> Array:
        return self._matrix

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the matrix included."""
        placement = [list(ids) for ids in self._placement]
        return {**super().manifest(), "matrix": self._matrix, "placement": placement, "exact": self.exact}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> LinearGradientCode:
        """Rebuild the code from its manifest alone."""
        return cls(manifest["matrix"], placement=manifest["placement"], exact=manifest["exact"])
