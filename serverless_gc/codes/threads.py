"""BLAS threads: small solves run on one, because waking a second costs more than it brings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["single_blas_thread"]


class _Limit:
    """Counts who asks for one thread: the first sets the limit, the last one lifts it.

    BLAS keeps one number of threads for the whole process, so overlapping limits that each restore what they
    found would leave it at one for good.
    """

    def __init__(self) -> None:
        self._controller: Any = None
        self._lock = threading.Lock()
        self._users = 0
        self._limiter: Any = None

    def acquire(self) -> None:
        from threadpoolctl import ThreadpoolController

        with self._lock:
            if self._controller is None:
                # Asking the libraries what they are takes milliseconds: once is enough.
                self._controller = ThreadpoolController()
            if self._users == 0:
                self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()
                self._limiter = None


_LIMIT = _Limit()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run the body with one BLAS thread; safe to nest and to use from several threads at once.

    Examples
    --------
    >>> import numpy as np
    >>> with single_blas_thread():
    ...     inverse = np.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse.tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    _LIMIT.acquire()
    try:
        yield
    finally:
        _LIMIT.release()
