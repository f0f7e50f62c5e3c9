"""One event loop on one thread of its own, and the two faces of every coroutine.

All I/O of the package runs on this loop, whoever calls: a script, several threads, a notebook whose own loop
is busy, or a coroutine. So no client is ever bound to a loop that is gone, and a call costs no new thread.
After ``fork`` the child makes itself a new loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["blocking", "guarded_at_fork", "homed", "loop", "run"]

P = ParamSpec("P")
R = TypeVar("R")

HELPER_THREADS = 4
"""Threads for what blocks: hashing, encoding, files. All of them release the interpreter lock."""

INTERRUPT_GRACE = 1.5
"""Seconds an interrupted call may take to void its tasks before the interrupt is raised anyway."""


def _started_executor() -> ThreadPoolExecutor:
    """Make the loop's helper threads, all running: how many there are does not depend on what was called."""
    executor = ThreadPoolExecutor(HELPER_THREADS, thread_name_prefix="serverless-gc-helper")
    everybody = threading.Barrier(HELPER_THREADS + 1)
    for _ in range(HELPER_THREADS):
        executor.submit(everybody.wait)
    everybody.wait()
    return executor


def guarded_at_fork(lock: threading.Lock, in_child: Callable[[], None] | None = None) -> None:
    """Have no thread hold a lock while the process forks, so that it is free in the child; call ``in_child`` there."""

    def after_in_child() -> None:
        lock.release()
        if in_child is not None:
            in_child()

    if hasattr(os, "register_at_fork"):  # where processes fork
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=after_in_child)


class _Background:
    """The loop of one process, started on first use, whichever of its threads is the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        guarded_at_fork(self._lock, self._forget)

    def _forget(self) -> None:
        self._loop = None

    def get(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._lock:
            if self._loop is None:
                started = threading.Event()
                new = asyncio.new_event_loop()
                new.set_default_executor(_started_executor())

                def serve() -> None:
                    asyncio.set_event_loop(new)
                    new.call_soon(started.set)
                    new.run_forever()

                threading.Thread(target=serve, name="serverless-gc", daemon=True).start()
                started.wait()
                self._loop = new
            return self._loop


_BACKGROUND = _Background()


def loop() -> asyncio.AbstractEventLoop:
    """Return this process's background loop, starting it if need be."""
    return _BACKGROUND.get()


def run(coro: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on the background loop and wait for its result.

    An interrupt (Ctrl-C) cancels the coroutine, waits a moment for it to void what runs, and is raised again
    with the notes that the coroutine left (for instance how many invocations may still be billed).
    """
    home = loop()
    if _running() is home:
        coro.close()
        raise RuntimeError("a blocking call from inside the package's own event loop would wait for itself")
    call = _Call(coro)
    try:
        return asyncio.run_coroutine_threadsafe(call.main(), home).result()
    except KeyboardInterrupt as exc:
        home.call_soon_threadsafe(call.abandon)
        if call.finished.wait(INTERRUPT_GRACE):
            for note in call.notes:
                exc.add_note(note)
        raise


class _Call(Generic[R]):
    """A coroutine on its way through the loop, which an interrupt may give up at any moment of that way."""

    def __init__(self, coro: Coroutine[Any, Any, R]) -> None:
        self._coro = coro
        self._task: asyncio.Task[Any] | None = None
        self._abandoned = False
        self.finished = threading.Event()
        self.notes: list[str] = []

    async def main(self) -> R:
        """Run the coroutine, and remember what it says when it is cancelled."""
        if self._abandoned:
            self._coro.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        try:
            return await self._coro
        except asyncio.CancelledError as exc:
            self.notes.extend(getattr(exc, "__notes__", ()))
            raise
        finally:
            self.finished.set()

    def abandon(self) -> None:
        """Cancel it, on the loop: it has started, or finds out when it does."""
        self._abandoned = True
        if self._task is None:
            self.finished.set()
        else:
            self._task.cancel()


def homed(fn: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make a coroutine function run on the background loop, whichever loop awaits it."""

    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        home = loop()
        if _running() is home:
            return await fn(*args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fn(*args, **kwargs), home))

    return wrapper


def blocking(fn: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Derive the blocking twin of a coroutine function: same signature, same docstring.

    The twin of ``gradient_async`` is called ``gradient``.
    """

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return run(fn(*args, **kwargs))

    wrapper.__name__ = fn.__name__.removesuffix("_async")
    wrapper.__qualname__ = fn.__qualname__.removesuffix("_async")
    return wrapper


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
