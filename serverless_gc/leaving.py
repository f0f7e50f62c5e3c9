"""What the end of a process leaves behind: nothing, whether or not its sessions were closed."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from functools import cache
from typing import Protocol
from weakref import WeakSet

__all__ = ["close_at_exit", "needs_no_closing"]

_log = logging.getLogger(__name__)


class _Closes(Protocol):
    """A session: it knows in which process it opened something."""

    @property
    def opened_by(self) -> int | None: ...

    def close(self) -> None: ...


_UNCLOSED: WeakSet[_Closes] = WeakSet()


def close_at_exit(session: _Closes) -> None:
    """Close a session when the process ends, unless it is closed, or gone, before."""
    _UNCLOSED.add(session)
    _registered()


def needs_no_closing(session: _Closes) -> None:
    """Forget a session that was closed."""
    _UNCLOSED.discard(session)


@cache
def _registered() -> None:
    """Have them closed before helper threads end: by the time of atexit those of every executor are gone.

    Executors register in the same place; what is registered later is called earlier.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_close_all)


def _close_all() -> None:
    for session in list(_UNCLOSED):
        if session.opened_by != os.getpid():
            continue  # it opened nothing, or is that of a process from which this one was forked
        try:
            session.close()
        except Exception as error:  # noqa: BLE001 - nobody is left to handle it, and the other sessions want closing too
            _log.warning("closing a session at exit failed: %s", error)
