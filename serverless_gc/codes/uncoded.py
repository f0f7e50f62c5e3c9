"""No code: one worker a block, all must answer. The baseline of every comparison."""

from __future__ import annotations

from typing import Any

from serverless_gc.codes.replication import ReplicationCode
from serverless_gc.errors import InputError

__all__ = ["UncodedCode"]


class UncodedCode(ReplicationCode):
    """Worker ``j`` holds block ``j``: replication with a single copy.

    Parameters
    ----------
    n_workers, k
        Number of workers and of blocks, which must be equal.

    Raises
    ------
    InputError
        If ``n_workers`` differs from ``k``.

    Examples
    --------
    >>> code = UncodedCode(3, 3)
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(j)) for j in (2, 0, 1)]
    [False, False, True]
    >>> code.guaranteed_threshold
    3
    """

    name = "uncoded"

    def __init__(self, n_workers: int, k: int) -> None:
        if n_workers != k:
            raise InputError(f"n_workers must equal k={k} without a code, got {n_workers}")
        super().__init__(n_workers, k)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code: none."""
        return {}
