"""What many simulated rounds of one method took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["Rounds"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounds:
    """Simulated rounds.

    Attributes
    ----------
    name, n_workers, k
        The method.
    seconds
        ``(n,)``: from the start of each round that had an answer to that answer's last result.
    billed
        ``(n,)``: function-seconds of each, those of results that nobody awaited included.
    awaited
        ``(n,)``: results that had arrived.
    work
        Passes over the data that the issued tasks make together, on average: 1 for an uncoded computation.
    failed
        Rounds without an answer; they are in none of the other figures.
    copies
        Backup tasks started, on average.
    events
        Tasks issued and results taken, in all.
    """

    name: str
    n_workers: int
    k: int
    seconds: FloatArray
    billed: FloatArray
    awaited: FloatArray
    work: float
    failed: int = 0
    copies: float = 0.0
    events: int = 0

    def __post_init__(self) -> None:
        if not self.seconds.size:
            raise InputError(
                f"{self.name!r} with n_workers={self.n_workers} and k={self.k} had no answer in any of "
                f"{self.failed} rounds: take more workers for as many blocks"
            )

    @property
    def mean(self) -> float:
        """Mean seconds of a round."""
        return float(self.seconds.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `mean`."""
        return float(self.seconds.std() / np.sqrt(self.seconds.size))

    def quantile(self, q: float) -> float:
        """Seconds within which a share ``q`` of the rounds had their answer."""
        return float(np.quantile(self.seconds, q))

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 rounds had their answer."""
        return self.quantile(0.99)
