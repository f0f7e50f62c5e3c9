"""Encoded optimization as a code: workers hold parts of ``S X, S y``, and whoever answers is averaged. No decoding.

C. Karakus, Y. Sun, S. Diggavi, W. Yin, "Redundancy Techniques for Straggler Mitigation in Distributed Optimization and
Learning" (2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from serverless_gc.codes.encoded.frames import FRAMES, Frame, make_frame
from serverless_gc.codes.gradient.approximate import ApproximateCode, CountedErrors, same_size
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["EncodedCode"]


class EncodedCode(ApproximateCode):
    """Worker ``i`` holds ``S_i X, S_i y`` of a tight frame; the gradient is ``m / q`` times the sum of ``q`` answers.

    For least squares. Exact if all answer, or if the system is consistent at its solution; else an estimate whose
    minimizers are nearly those of the whole (`serverless_gc.codes.encoded.frames.suboptimality`). The error of weights
    is that of the coded parts: what is lost of the data themselves is far less, since every row is in every part.

    Parameters
    ----------
    n_workers, k
        Number of workers and of coded parts, equal.
    frame
        ``"hadamard"``, ``"haar"``, ``"paley"``, ``"steiner"``, ``"gaussian"``, ``"replication"`` or ``"uncoded"``.
    beta
        Redundancy: coded rows for each row, at least 1.
    seed
        Of the frame's random choices.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If ``k`` differs from ``n_workers``, or the frame is unknown or does not take that redundancy.

    Examples
    --------
    >>> code = EncodedCode(8, 8, wait=6)
    >>> code.weights(range(6)).a.round(3).tolist()
    [1.333, 1.333, 1.333, 1.333, 1.333, 1.333, 0.0, 0.0]
    >>> code.frame_for(100)
    HadamardFrame(n=100, n_workers=8, beta=2.56)
    """

    name = "encoded"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        frame: str = "hadamard",
        beta: float = 2.0,
        seed: int = 0,
        wait: int | None = None,
    ) -> None:
        super().__init__(n_workers, k, wait=wait)
        same_size(self.name, self.n_workers, self.k)
        if frame not in FRAMES:
            raise InputError(f"frame must be one of {', '.join(FRAMES)}, got {frame!r}")
        if not beta >= 1:
            raise InputError(f"beta must be at least 1, got {beta}")
        self.frame = frame
        self.beta = float(beta)
        self.seed = seed

    def frame_for(self, n_rows: int) -> Frame:
        """Return the frame for so many rows of data."""
        return make_frame(self.frame, n_rows, self.n_workers, self.beta, seed=self.seed)

    def _build_generator(self) -> FloatArray:
        return np.eye(self.k)

    def tracker(self) -> CountedErrors:
        """Make a fresh tracker."""
        m = self.k
        return CountedErrors(self, [float(m), *((m - q) * m / q for q in range(1, m + 1))])

    def expected_error(self, arrived: int) -> float:
        """``(m - q) m / q``, whoever answers."""
        self._check_count("arrived", arrived)
        return (self.k - arrived) * self.k / arrived if arrived else float(self.k)

    def worst_error(self, stragglers: int) -> float:
        """``(m - q) m / q``, whoever answers."""
        return self.expected_error(self.n_workers - stragglers)

    def _solve(self, arrived: Array) -> Weights:
        return self._weighted(arrived, np.full(len(arrived), self._common_weight(len(arrived))), "average")

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"frame": self.frame, "beta": self.beta, "seed": self.seed, **super().params()}
