"""Progress for people: a bar on a terminal or in a notebook, plain lines now and then elsewhere.

Independent of logging: no logger is used and no handler is configured. A file never gets a control character. While
nothing arrives, a line says what is awaited.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TextIO

from serverless_gc.observe.events import (
    Event,
    RoundClosed,
    RoundOpened,
    TaskArrived,
    TaskFailed,
    TaskIssued,
)

__all__ = ["Progress"]


class Progress:
    """A listener that shows how far a call is.

    Parameters
    ----------
    n_rounds
        Number of rounds when it is known: the bar then counts rounds, else the results of each round.
    stream
        Where to write; ``sys.stderr`` by default.
    interval
        Seconds between plain lines, and without news until what is awaited is named.
    clock
        Where time is read; replaceable for tests.
    bar
        Whether to draw a bar; by default on a terminal and in a notebook.

    Examples
    --------
    >>> import io
    >>> lines = io.StringIO()
    >>> progress = Progress(stream=lines, interval=0, clock=lambda: 2.0)
    >>> for event in (RoundOpened(0.0, 0, n_slots=2, needed=1), TaskIssued(0.0, 0, 0), TaskIssued(0.0, 0, 1)):
    ...     progress(event)
    >>> progress.tick()
    >>> progress.close()
    >>> print(lines.getvalue(), end="")
    round 1: waiting for 1 more result (0 of 1) after 0 s; running: 0, 1
    """

    def __init__(
        self,
        *,
        n_rounds: int | None = None,
        stream: TextIO | None = None,
        interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        bar: bool | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._n_rounds = n_rounds
        self._interval = interval
        self._clock = clock
        self._draws = _is_terminal(self._stream) or _in_notebook() if bar is None else bar
        self._bar: Any = None
        self._round = -1
        self._state = _Round()
        self._said = clock()

    def __call__(self, event: Event) -> None:
        """Take note of one event."""
        state = self._state
        match event:
            case RoundOpened():
                self._open(event)
            case TaskIssued() if event.round == self._round:
                state.running[event.slot] = state.running.get(event.slot, 0) + 1
            case TaskArrived() if event.round == self._round:
                state.leave(event.slot)
                state.arrived += 1
                self._advance()
            case TaskFailed() if event.round == self._round:
                state.leave(event.slot)
                state.failed += 1
            case RoundClosed() if event.round == self._round:
                self._close_round()
            case _:
                pass

    def on_encode(self, written: int, total: int) -> None:
        """Show how many objects of an encoding are written; pass it as ``on_progress``."""
        if self._draws:
            if self._bar is None or written <= 1:
                self._new_bar(total, "encoding", "block")
            self._bar.update(written - self._bar.n)
            if written == total:
                self._drop_bar()
        elif written == total or self._due():
            self._say(f"encoding: {written} of {total} blocks written")

    def tick(self) -> None:
        """Say what is awaited if there was no news for a while. Cheap; call it about once a second."""
        if self._round < 0 or self._state.closed or not self._due():
            return
        text = self._state.awaits(self._clock() - self._state.opened)
        if self._draws and self._bar is not None:
            self._said = self._clock()
            self._bar.set_postfix_str(text)
        else:
            self._say(f"round {self._round + 1}: {text}")

    async def watch(self, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        """Call `tick` every second until cancelled."""
        while True:
            await sleep(1.0)
            self.tick()

    def close(self) -> None:
        """Remove the bar."""
        self._drop_bar()

    # -- rounds --------------------------------------------------------------------------------------

    def _open(self, event: RoundOpened) -> None:
        self._round = event.round
        self._state = _Round(needed=event.needed, opened=self._clock())
        if not self._draws:
            return
        if self._n_rounds is None:
            self._new_bar(event.needed, event.name or f"round {event.round + 1}", "result")
        elif self._bar is None:
            self._new_bar(self._n_rounds, event.name or "rounds", "round")

    def _advance(self) -> None:
        state = self._state
        if self._bar is not None and self._n_rounds is None:
            self._bar.total = max(self._bar.total, state.arrived)  # the least number need not suffice
            self._bar.set_postfix_str("", refresh=False)
            self._bar.update()
        elif not self._draws and self._due():
            self._say(f"round {self._round + 1}: {state.arrived} of at least {state.needed} results")

    def _close_round(self) -> None:
        self._state.closed = True
        if self._bar is not None and self._n_rounds is not None:
            self._bar.set_postfix_str("", refresh=False)
            self._bar.update()
        elif self._bar is not None:
            self._drop_bar()
        elif self._due():
            took, n = self._clock() - self._state.opened, self._state.arrived
            self._say(f"round {self._round + 1}: closed after {took:.1f} s with {n} {_results(n)}")

    # -- output --------------------------------------------------------------------------------------

    def _due(self) -> bool:
        return self._clock() - self._said >= self._interval

    def _say(self, text: str) -> None:
        self._said = self._clock()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def _new_bar(self, total: int, name: str, unit: str) -> None:
        self._drop_bar()
        sized = _columns(self._stream) > 0  # a terminal that does not say how wide it is would get an empty bar
        self._bar = _bar_class()(
            total=total,
            desc=name,
            unit=unit,
            file=self._stream,
            leave=False,
            dynamic_ncols=sized,
            ncols=None if sized else 120,
            nrows=None if sized else 24,
            mininterval=0.1,
        )

    def _drop_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Round:
    """What is known of the round that is open."""

    def __init__(self, needed: int = 0, opened: float = 0.0) -> None:
        self.needed = needed
        self.opened = opened
        self.running: dict[int, int] = {}
        self.arrived = 0
        self.failed = 0
        self.closed = False

    def leave(self, slot: int) -> None:
        """Count one attempt of the slot as ended."""
        left = self.running.get(slot, 0) - 1
        if left > 0:
            self.running[slot] = left
        else:
            self.running.pop(slot, None)

    def awaits(self, elapsed: float) -> str:
        """Say what is awaited."""
        more = self.needed - self.arrived
        if more > 0:
            what = f"{more} more {_results(more)} ({self.arrived} of {self.needed})"
        else:
            what = f"the right results ({self.arrived} arrived)"
        running = f"running: {_listed(sorted(self.running))}" if self.running else "none is running"
        failed = f"; {self.failed} failed" if self.failed else ""
        return f"waiting for {what} after {elapsed:.0f} s; {running}{failed}"


def _results(n: int) -> str:
    return "result" if n == 1 else "results"


def _listed(slots: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, slots[:most]))
    return shown if len(slots) <= most else f"{shown} and {len(slots) - most} more"


def _is_terminal(stream: TextIO) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _in_notebook() -> bool:
    """Whether `tqdm.auto` would draw a notebook's bar; looked up only where a notebook's kernel is running."""
    if "ipykernel" not in sys.modules:
        return False
    return any(base.__module__ == "tqdm.notebook" for base in _bar_class().__mro__)


def _bar_class() -> Any:
    from tqdm.auto import tqdm

    # Without the monitoring thread, which would outlive the call.
    return type("Bar", (tqdm,), {"monitor_interval": 0})
