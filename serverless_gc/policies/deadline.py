"""A deadline on every wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.errors import InputError
from serverless_gc.policies.following import Following
from serverless_gc.policies.words import given_up, numbers
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, WaitPolicy

__all__ = ["Deadline"]

_WITH_ALL = Close(collect_partials=True)


class Deadline(Following):
    """Follow another policy, but for a limited time.

    Parameters
    ----------
    inner
        The policy to follow.
    seconds
        Time allowed, counted from the opening of the round.
    on_expire
        ``"abort"`` gives the round up, unless what is here determines the answer and was only to become more accurate.
        ``"close"`` closes it with what is here, partial results included, for answers
        that may be approximate; so does running out of tasks. With nothing here the round is given up all the same.

    Raises
    ------
    InputError
        If ``seconds`` is not positive or ``on_expire`` is another word.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.policies import WaitAll
    >>> from serverless_gc.stragglers import Constant
    >>> engine = Engine(Deadline(WaitAll(), 5.0), n_slots=4)
    >>> [outcome] = VirtualHost(Constant(60.0)).simulate(engine, rounds=1)
    >>> outcome.error, outcome.t_close
    ('deadline', 5.0)
    >>> outcome.reason
    '5 s have passed since submission: 0 results arrived; 4 attempts have not answered ...'
    """

    def __init__(self, inner: WaitPolicy, seconds: float, on_expire: Literal["abort", "close"] = "abort") -> None:
        if not seconds > 0:
            raise InputError(f"seconds must be positive, got {seconds}")
        if on_expire not in {"abort", "close"}:
            raise InputError(f"on_expire must be 'abort' or 'close', got {on_expire!r}")
        super().__init__(inner)
        self.seconds = float(seconds)
        self.on_expire = on_expire
        self._partials = False

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Open the inner policy."""
        self._restart()
        self._partials = False
        return self.inner.open(view)

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Ask the inner policy; if it waits, look at the time. What comes at the deadline is in time."""
        return self._limit(view, self.inner.on_arrival(view, arrival), late=view.now > self._end(view))

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Ask the inner policy; if it waits, look at the time."""
        return self._limit(view, self.inner.on_failure(view, task), late=view.now > self._end(view))

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act:
        """Ask the inner policy; if it waits, look at the time."""
        self._partials = True
        return self._limit(view, super().on_partial(view, task, messages), late=view.now > self._end(view))

    def timer(self, view: View) -> float | None:
        """Whichever comes first: the inner policy's timer or the deadline."""
        inner = self._inner_timer(view)
        return self.seconds if inner is None else min(inner, self.seconds)

    def on_timer(self, view: View) -> Act:
        """Ask the inner policy; if it waits, look at the time."""
        return self._limit(view, self._inner_on_timer(view), late=view.now >= self._end(view))

    def _end(self, view: View) -> float:
        return view.round_start + self.seconds

    def _limit(self, view: View, act: Act, *, late: bool) -> Act:
        if isinstance(act, Close):
            return act
        closing = self.on_expire == "close" and (len(view.buffer) > 0 or self._partials)
        if isinstance(act, Abort):
            return _WITH_ALL if closing and act.kind == "starved" else act
        if late:
            return _WITH_ALL if closing or self.answerable else Abort(self._expired(view), "deadline")
        if closing and not act.issue and not view.in_flight():
            return _WITH_ALL
        return act

    def _expired(self, view: View) -> str:
        silent = [f.task for f in view.in_flight()]
        waiting = (
            f"{len(silent)} attempts have not answered (slots {numbers(task.slot for task in silent)})"
            if silent
            else "nothing is in flight"
        )
        told = "; ".join(filter(None, (waiting, given_up(view), self.explain())))
        return (
            f"{self.seconds:g} s have passed since submission: {len(view.buffer)} results arrived; {told}; likely a "
            "function out of memory or too slow, or too little concurrency: look at its logs, or allow more time"
        )
