"""Where tasks run: what a function has, how many run at once, how fast a driver sends them, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from serverless_gc.errors import InputError
from serverless_gc.limits import ACCOUNT_CONCURRENCY, DEFAULT_LIMITS, MB_PER_VCPU, Limits
from serverless_gc.plan.prices import Prices, prices_of

__all__ = ["Platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A deployed function and its surroundings.

    Parameters
    ----------
    memory_mb
        Memory of the function; processors come in proportion, one for 1769 MB.
    runtime_mb
        What Python and NumPy take of it.
    concurrency
        Functions that the account runs at once; further tasks wait.
    invocations_per_second
        What the driver sends; `serverless_gc.invoke` measured on one core reaches about this.
    scan_bytes_per_second
        Bytes of a block that one processor multiplies by a vector in a second, where no measured delays are given.
    driver_outside
        Whether results leave the region, and are billed as transfer.
    prices
        See `serverless_gc.plan.PRICES`.
    limits
        Service limits.

    Raises
    ------
    InputError
        If a figure is out of range.
    """

    memory_mb: int = MB_PER_VCPU
    runtime_mb: int = 160
    concurrency: int = ACCOUNT_CONCURRENCY
    invocations_per_second: float = 1000.0
    scan_bytes_per_second: float = 2e9
    driver_outside: bool = True
    prices: Prices = field(default_factory=lambda: prices_of("us-east-1"))
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        most = self.limits.function_bytes // 2**20
        if not 128 <= self.memory_mb <= most:
            raise InputError(f"memory_mb must be in 128..{most}, got {self.memory_mb}")
        if not 0 <= self.runtime_mb < self.memory_mb:
            raise InputError(f"runtime_mb must be below memory_mb={self.memory_mb}, got {self.runtime_mb}")
        for name in ("concurrency", "invocations_per_second", "scan_bytes_per_second"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def processors(self) -> float:
        """Processors of a function; a task uses at most one."""
        return min(1.0, self.memory_mb / MB_PER_VCPU)
