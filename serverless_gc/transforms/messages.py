"""Results that are stacks of messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from serverless_gc.types import Arrival, UpdateContext

__all__ = ["SumMessages"]


@dataclass(frozen=True, slots=True)
class SumMessages:
    """Add up the messages of a result, of which an unfinished task has only some: ``(messages, ...)`` to ``(...)``.

    Examples
    --------
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> two_of_three = Arrival(TaskSpec("0-0", 0, version=0), 0.0, 1.0, 2.0, body=np.array([[1.0], [4.0]]))
    >>> SumMessages()(two_of_three, ctx).body
    array([5.])
    """

    def __call__(self, arrival: Arrival, ctx: UpdateContext) -> Arrival:  # noqa: ARG002 - part of the protocol
        """Return the result with one body."""
        return arrival if arrival.body is None else replace(arrival, body=np.sum(arrival.body, axis=0))
