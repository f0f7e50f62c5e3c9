"""A fixed time of computing: everybody does what can be done in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.errors import InputError
from serverless_gc.policies.words import given_up
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["Anytime"]


class Anytime:
    """Let every slot compute until one moment, then take what each has done.

    Tasks carry the absolute time ``stop_at``: a worker stops at the next sample or step and delivers what it has, with
    ``work_done``. A slow start thus means less work done, and no waiting. `serverless_gc.policies.Deadline` is another
    thing: a limit on the wait, whatever the workers do.

    Parameters
    ----------
    seconds
        Time from the opening of the round until workers stop.
    guard
        Seconds beyond for results to arrive; what is later is lost.

    Raises
    ------
    InputError
        If ``seconds`` is not positive or ``guard`` is negative.

    Notes
    -----
    N. Ferdinand, S. Draper, "Anytime Stochastic Gradient Descent: A Time to Hear from all the Workers" (2018), and
    Anytime Minibatch (2019). A round in which nobody delivered in time closes empty: the model stays what it is.

    Examples
    --------
    >>> from serverless_gc.engine import Engine
    >>> engine = Engine(Anytime(10.0, guard=1.0), n_slots=2)
    >>> first, second, timer = engine.open(now=5.0)
    >>> first.task.stop_at, timer.at
    (15.0, 16.0)
    """

    leftover: Literal["cancel", "keep"] = "cancel"

    def __init__(self, seconds: float, guard: float = 0.0) -> None:
        if not seconds > 0:
            raise InputError(f"seconds must be positive, got {seconds}")
        if not guard >= 0:
            raise InputError(f"guard must be at least 0 seconds, got {guard}")
        self.seconds = float(seconds)
        self.guard = float(guard)

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every slot a task that ends at the same moment."""
        return [view.new_task(slot, stop_at=view.round_start + self.seconds) for slot in view.idle_slots()]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:  # noqa: ARG002 - part of the protocol
        """Close when all are here."""
        return Wait() if view.in_flight() else Close()

    def on_failure(self, view: View, task: TaskSpec) -> Act:  # noqa: ARG002
        """Go without; give up if nobody is left."""
        if view.in_flight():
            return Wait()
        if view.buffer:
            return Close()
        return Abort("no slot can deliver: " + given_up(view), "starved")

    def timer(self, view: View) -> float | None:  # noqa: ARG002
        """When results must have arrived."""
        return self.seconds + self.guard

    def on_timer(self, view: View) -> Act:  # noqa: ARG002
        """Close with what is here."""
        return Close()
