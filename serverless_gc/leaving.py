"""What the end of a process leaves behind: nothing, whether or not its sessions were closed."""

from __future__ import annotations

import atexit
import logging
import os
import threading
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
_registered = False


def close_at_exit(session: _Closes) -> None:
    """Close a session when the process ends, unless it is closed, or gone, before."""
    global _registered
    _UNCLOSED.add(session)
    if not _registered:
        _registered = True
        # Closing needs helper threads, and by the time of atexit the interpreter has ended those of every executor.
        # Executors themselves register here; what is registered later is called earlier.
        register = getattr(threading, "_register_atexit", atexit.register)
        register(_close_all)


def needs_no_closing(session: _Closes) -> None:
    """Forget a session that was closed."""
    _UNCLOSED.discard(session)


def _close_all() -> None:
    for session in list(_UNCLOSED):
        if session.opened_by != os.getpid():
            continue  # it opened nothing, or is that of a process from which this one was forked
        try:
            session.close()
        except Exception as error:  # noqa: BLE001 - nobody is left to handle it, and the other sessions want closing too
            _log.warning("closing a session at exit failed: %s", error)
