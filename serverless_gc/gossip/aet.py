"""AET-SGD: communicate after a number of samples that grows linearly from round to round."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any, Literal

from serverless_gc.errors import InputError
from serverless_gc.gossip.node import Gradient, SchemeKernel
from serverless_gc.optim.schedules import Rate
from serverless_gc.types import Array, Topology
from serverless_gc.worker import schemes

__all__ = ["AET", "LinearSampleTrigger"]


class LinearSampleTrigger:
    """Send after ``min(a * i + b, cap)`` samples in round ``i = 0, 1, ...``; a `serverless_gc.types.Trigger`.

    Parameters
    ----------
    a, b
        Growth from round to round, and samples of the first one. ``a = 0`` is the constant schedule.
    cap
        Most samples of one round, so that an invocation ends before the platform ends it; None for no limit.

    Raises
    ------
    InputError
        If ``a`` is negative, ``b`` is not positive, or ``cap`` is below ``b``.

    Examples
    --------
    >>> trigger = LinearSampleTrigger(10, 10)
    >>> [trigger.samples(i) for i in range(3)], trigger.rounds(10_000)
    ([10, 20, 30], 45)
    """

    site: Literal["driver", "worker"] = "worker"

    def __init__(self, a: int, b: int, cap: int | None = None) -> None:
        if a < 0:
            raise InputError(f"a must be at least 0, got {a}")
        if b < 1:
            raise InputError(f"b must be at least 1, got {b}")
        if cap is not None and cap < b:
            raise InputError(f"cap must be at least b = {b}, got {cap}")
        self.a, self.b, self.cap = a, b, cap

    def samples(self, i: int) -> int:
        """Return the samples of round ``i``."""
        wanted = self.a * i + self.b
        return wanted if self.cap is None else min(wanted, self.cap)

    def total(self, rounds: int) -> int:
        """Return the samples of the first ``rounds`` rounds together."""
        growing = rounds
        if self.cap is not None and self.a:
            growing = min(rounds, (self.cap - self.b) // self.a + 1)
        linear = self.a * growing * (growing - 1) // 2 + self.b * growing
        return linear + (rounds - growing) * (self.cap or 0)

    def rounds(self, samples: int) -> int:
        """Return the rounds that so many samples take: about ``sqrt(2 * samples / a)`` without a cap."""
        return bisect.bisect_left(range(samples + 1), samples, key=self.total)

    def should_send(self, view: Mapping[str, Any]) -> bool:
        """Whether ``view["samples"]``, seen in round ``view["round"]``, are enough."""
        return bool(view["samples"] >= self.samples(view["round"]))


class AET(SchemeKernel):
    """A node works alone for a round of growing length, then sends its model and averages what has arrived.

    The state is the model after the local round and the number of samples seen. Asynchrony with bounded delay is the
    waiting policy's: ``GossipReady(topology, tau=d_max - 1, ahead=True)``.

    Parameters
    ----------
    topology
        Who sends to whom; the weights do not matter.
    gradient
        ``gradient(node, t, x)`` of one sample; ``t`` counts the node's samples.
    x0
        Start of every node, shape (d,), or of each node, shape (n, d).
    trigger
        Samples of each round.
    lr
        Step length, or a function of the samples seen, see `serverless_gc.optim.inverse_time`.

    Raises
    ------
    InputError
        If ``lr`` is a number that is not positive and finite.

    Notes
    -----
    Nguyen and Han, "AET-SGD: Asynchronous Event-triggered Stochastic Gradient Descent", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.topologies import Complete
    >>> kernel = AET(Complete(2), lambda node, t, x: x, np.ones(1), LinearSampleTrigger(1, 1), lr=0.5)
    >>> x, seen = kernel.step(0, 2, kernel.step(0, 1, kernel.start(0), []), [])
    >>> float(x[0]), int(seen[0])
    (0.125, 3)
    """

    def __init__(
        self, topology: Topology, gradient: Gradient | None, x0: Array, trigger: LinearSampleTrigger, lr: Rate
    ) -> None:
        super().__init__(schemes.LocalSteps(), topology, gradient, x0, lr)
        self.trigger = trigger

    def rates(self, k: int) -> tuple[float, ...]:
        """Return the length of the step of each sample of round ``k``."""
        seen = self.trigger.total(k - 1)
        return tuple(float(self.lr(t)) for t in range(seen, seen + self.trigger.samples(k - 1)))
