"""BLAS threads: small solves run on one, because waking a second costs more than it brings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["single_blas_thread"]

_HELD = threading.Lock()
"""Held by whoever limits BLAS now. Its number of threads is one for the whole process: of two overlapping limits
that each restore what they found, the second would leave it at one for good."""


@cache
def _controller() -> Any:
    # Asking the libraries what they are takes milliseconds, a limit takes microseconds.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run the body with one BLAS thread.

    Inside another such body, of this thread or of another, it changes nothing. When bodies of several threads
    overlap, the limit ends with the first of them: that costs the others some speed, nothing else.

    Examples
    --------
    >>> import numpy as np
    >>> with single_blas_thread():
    ...     inverse = np.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse.tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if not _HELD.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _HELD.release()
