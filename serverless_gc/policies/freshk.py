"""A synchronous kernel with late guests: hybrid federated learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.checks import check_whole
from serverless_gc.policies.words import given_up
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["FreshK"]


class FreshK:
    """Close when ``k`` results of this round's own tasks are here; late ones of earlier rounds are used along.

    A slot gets its next task when it has answered, so a slow one is never starved: each of its results is used once.

    Parameters
    ----------
    k
        How many fresh results to wait for; fewer if fewer tasks could be issued. If none could, because every slot is
        still busy with an earlier round, the next result closes the round.

    Raises
    ------
    InputError
        If ``k`` is not a positive integer.

    Notes
    -----
    X. Li, Z. Qu, B. Tang, Z. Lu, "Stragglers Are Not Disaster: A Hybrid Federated Learning Algorithm with Delayed
    Gradients" (2021).

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Exponential
    >>> rounds = VirtualHost(Exponential(1.0)).simulate(Engine(FreshK(3), n_slots=4), rounds=50)
    >>> min(sum(a.task.version == r.version for a in r.arrivals) for r in rounds)
    3
    """

    leftover: Literal["cancel", "keep"] = "keep"

    def __init__(self, k: int) -> None:
        self.k = check_whole("k", k, 1)
        self._wanted = 0
        self._fresh = 0

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every idle slot a task."""
        tasks = [view.new_task(slot) for slot in view.idle_slots()]
        self._wanted = min(self.k, len(tasks))
        self._fresh = 0
        return tasks

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close with the last fresh result wanted, or with any if there can be none."""
        self._fresh += arrival.task.version == view.version
        return Close() if self._fresh >= self._wanted else Wait()

    def on_failure(self, view: View, task: TaskSpec) -> Act:  # noqa: ARG002 - part of the protocol
        """Want no more than can still come; give up if that is nothing at all."""
        flying = {f.task.task_id: f.task.version for f in view.in_flight()}
        coming = sum(version == view.version for version in flying.values())
        self._wanted = min(self._wanted, self._fresh + coming)
        if self._fresh < self._wanted:
            return Wait()
        if view.buffer:
            return Close()
        return Wait() if flying else Abort("no slot can deliver: " + given_up(view), "starved")

    def timer(self, view: View) -> float | None:  # noqa: ARG002
        """No timer."""
        return None

    def on_timer(self, view: View) -> Act:  # noqa: ARG002
        """Nothing to do."""
        return Wait()
