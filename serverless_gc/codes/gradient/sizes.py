"""Checks and defaults that gradient codes share: how many stragglers, how many partitions."""

from __future__ import annotations

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError

__all__ = ["a_tenth", "check_stragglers", "require_square"]


def a_tenth(n_workers: int) -> int:
    """Return the stragglers tolerated unless the caller says otherwise: a tenth of the workers, at least one.

    Examples
    --------
    >>> a_tenth(100), a_tenth(16), a_tenth(2), a_tenth(1)
    (10, 2, 1, 0)
    """
    return min(-(-n_workers // 10), n_workers - 1)


def check_stragglers(stragglers: int, n_workers: int, label: str = "n_workers") -> int:
    """Return ``stragglers`` as int, or raise `InputError` unless it is an integer in ``0 ... n_workers - 1``.

    ``label`` is what the message calls ``n_workers``.
    """
    whole = check_whole("stragglers", stragglers, 0)
    if whole >= n_workers:
        raise InputError(f"stragglers must be less than {label}={n_workers}, got {stragglers}")
    return whole


def require_square(code: str, n_workers: int, k: int) -> None:
    """Raise `InputError` unless there are as many partitions as workers."""
    if k != n_workers:
        raise InputError(f"{code}: k must equal n_workers={n_workers}, one partition a worker; got k={k}")
