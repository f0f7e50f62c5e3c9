"""BLAS on one thread: small solves stall when they wake a second one, and parallel tasks need none."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["BLAS", "Blas", "single_blas_thread"]


class Blas:
    """Holds the process's BLAS libraries at one thread while anybody asks for it.

    Their thread count belongs to the process, so one object per process changes it. It counts its holders: of two
    overlapping limits that each restored what they found, the second would leave the count at one for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: Any = None
        self._with_scipy = False
        self._limiter: Any = None

    def prepare(self) -> None:
        """Find the libraries ahead: asking them what they are takes milliseconds, a limit microseconds."""
        with self._lock:
            self._find()

    def _find(self) -> Any:
        scipy = "scipy.linalg" in sys.modules  # it brings a BLAS of its own, perhaps since the last look
        if self._controller is None or scipy != self._with_scipy:
            from threadpoolctl import ThreadpoolController

            self._controller, self._with_scipy = ThreadpoolController(), scipy
        return self._controller

    def hold(self) -> None:
        """Set the limit, unless it is set."""
        with self._lock:
            if self._holders == 0:
                controller = self._find()
                self._free()
                self._limiter = controller.limit(limits=1, user_api="blas")
                self._free()
            self._holders += 1

    def release(self) -> None:
        """Lift the limit when the last holder releases it."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._free()
                self._limiter.restore_original_limits()
                self._free()
                self._limiter = None

    def _free(self) -> None:
        """Let any thread set the count: threadpoolctl from 3.8 on obeys the first one only, as long as it lives."""
        for library in self._controller.lib_controllers:
            clear = getattr(library, "clear_controlling_thread", None)
            if clear is not None:
                clear(force=True)


BLAS = Blas()
"""The one of this process."""


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run the body with one BLAS thread.

    Examples
    --------
    >>> import numpy as np
    >>> with single_blas_thread():
    ...     inverse = np.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse.tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    BLAS.hold()
    try:
        yield
    finally:
        BLAS.release()
