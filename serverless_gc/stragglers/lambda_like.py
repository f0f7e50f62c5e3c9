"""A task on Lambda, phase by phase: start, read, compute, write."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.stragglers.laws import Law, ShiftedExponential, check_not_negative, check_positive, late_survival
from serverless_gc.stragglers.order import bisect_quantile
from serverless_gc.types import FloatArray, Timing

__all__ = ["LambdaLike"]


@dataclass(frozen=True, slots=True)
class LambdaLike(Law):
    """Start (warm or cold), read, compute by a law of its own, write.

    The defaults are a preset for many short steps, not a claim about today's service.

    Parameters
    ----------
    compute
        Law of the computation; the only phase that grows with the work.
    warm, cold
        Seconds from request to first line of code when a container is ready, and when one must be started.
    p_cold
        Probability of a cold start. The first round of a job is mostly cold: use a model of its own for it.
    latency
        Seconds to the first byte of one store request.
    bandwidth
        Bytes per second to and from the store.
    read_bytes, write_bytes
        Bytes read and written by one task; with 0 bytes the phase still costs its latency.

    Examples
    --------
    >>> law = LambdaLike(p_cold=0.0)
    >>> round(law.mean(), 3)
    0.185
    """

    compute: Law = field(default_factory=lambda: ShiftedExponential(shift=0.08, rate=50.0))
    warm: float = 0.025
    cold: float = 0.5
    p_cold: float = 0.01
    latency: float = 0.03
    bandwidth: float = 30e6
    read_bytes: float = 0.0
    write_bytes: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(
            warm=self.warm,
            cold=self.cold,
            latency=self.latency,
            read_bytes=self.read_bytes,
            write_bytes=self.write_bytes,
        )
        check_positive(bandwidth=self.bandwidth)
        if not 0 <= self.p_cold <= 1:
            raise InputError(f"p_cold must be at least 0 and at most 1, got {self.p_cold}")

    @property
    def read(self) -> float:
        """Seconds spent reading."""
        return self.latency + self.read_bytes / self.bandwidth

    @property
    def write(self) -> float:
        """Seconds spent writing."""
        return self.latency + self.write_bytes / self.bandwidth

    def sample(self, slot: int, k: int, work: float, rng: np.random.Generator) -> Timing:  # noqa: ARG002 - i.i.d.
        """Draw the timing of one task."""
        start = self.cold if rng.random() < self.p_cold else self.warm
        return Timing(start, self.read, work * self.compute.draw(rng), self.write)

    def totals(self, work: float, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks of ``work`` units."""
        start = np.where(rng.random(shape) < self.p_cold, self.cold, self.warm)
        return start + (self.read + self.write) + work * self.compute.draws(rng, shape)

    def draws(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> FloatArray:
        """Draw the totals of many tasks of one unit of work."""
        return self.totals(1.0, rng, shape)

    def survival(self, t: FloatArray) -> FloatArray:
        """Mixture of the warm and the cold case, for one unit of work."""
        rest = np.asarray(t) - (self.read + self.write)
        cold = late_survival(self.compute, rest - self.cold)
        return self.p_cold * cold + (1.0 - self.p_cold) * late_survival(self.compute, rest - self.warm)

    def quantile(self, q: float) -> float:
        """Time by which a task of one unit of work is done with probability ``q``; by bisection."""
        fixed = self.read + self.write
        compute = self.compute.quantile(q)
        low, high = fixed + min(self.warm, self.cold), fixed + max(self.warm, self.cold) + compute
        return bisect_quantile(self.survival, q, low, high)

    def mean(self) -> float:
        """Mean of the total for one unit of work."""
        start = self.p_cold * self.cold + (1.0 - self.p_cold) * self.warm
        return math.fsum((start, self.read, self.compute.mean(), self.write))

    @property
    def breaks(self) -> tuple[float, ...]:
        """Where the warm and the cold case begin."""
        fixed = self.read + self.write
        inner = (0.0, *self.compute.breaks)
        return tuple(sorted({fixed + start + b for start in (self.warm, self.cold) for b in inner} - {0.0}))
