"""An asyncio event loop whose clock jumps: minutes of waiting pass at once, in the order they would have."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["JumpLoop", "run_virtually"]

R = TypeVar("R")


class JumpLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at zero and jumps to the next timer instead of waiting for it.

    For code that waits by ``asyncio.sleep``, timeouts and timers. Sockets and threads take real time, which
    this clock does not see; when only they could go on, the loop raises `RuntimeError` rather than wait for ever.
    """

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        """Read the clock."""
        return self._now

    def jump(self, seconds: float) -> None:
        """Advance the clock."""
        self._now += max(0.0, seconds)


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: JumpLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled: the coroutine would wait for ever")
        self._loop.jump(timeout)
        return super().select(0)


def run_virtually(main: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on a `JumpLoop`, as ``asyncio.run`` does on a real one.

    Examples
    --------
    >>> async def sleeper():
    ...     await asyncio.sleep(3600)
    ...     return asyncio.get_running_loop().time()
    >>> run_virtually(sleeper())
    3600.0
    """
    with asyncio.Runner(loop_factory=JumpLoop) as runner:
        return runner.run(main)
