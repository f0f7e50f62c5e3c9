"""A function's memory: how it is limited, and how much it took. Both read or use what Linux offers without root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

__all__ = ["kill_above", "limit_data", "peak_mb"]

_MIB = 2**20
_PERIOD = 0.01


def limit_data(pid: int, megabytes: int) -> None:
    """Limit a running process's data segment: allocations beyond it fail, which Python reports as MemoryError."""
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        resource.prlimit(pid, resource.RLIMIT_DATA, (megabytes * _MIB, megabytes * _MIB))


async def kill_above(pid: int, megabytes: int, kill: Callable[[], None]) -> None:
    """Watch a process's resident memory and kill it above the limit, as Lambda does."""
    most = megabytes * _MIB // os.sysconf("SC_PAGE_SIZE")
    while (pages := _resident_pages(pid)) <= most:
        if not pages:
            return  # it has ended
        await asyncio.sleep(_PERIOD)
    kill()


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0


def peak_mb(pid: int) -> int:
    """Most memory that a process has held, in MiB; 0 where the system does not tell.

    Examples
    --------
    >>> peak_mb(os.getpid()) >= 0
    True
    """
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    _, _, rest = status.partition(b"VmHWM:")
    return int(rest.split(maxsplit=1)[0]) // 1024 if rest else 0
