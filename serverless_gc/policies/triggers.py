"""Whether a group of workers should send at all: only if its gradient has changed enough.

Both rules compare with how far the model has moved of late, ``(c / window) * sum ||x_k - x_{k-1}||**2`` over the last
``window`` steps. T. Chen, Z. Guo, Y. Sun, W. Yin, "CADA: Communication-Adaptive Distributed Adam" (2021); T. Chen,
G. Giannakis, T. Sun, W. Yin, "LAG: Lazily Aggregated Gradient" (2018).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.stateful import Stateful
from serverless_gc.types import Array, Update

__all__ = ["CADA2Trigger", "LagPSTrigger", "LazyTrigger", "has_changed"]


def has_changed(change: float, threshold: float, age: int | None, max_age: int) -> bool:
    """Return whether a gradient is to be sent.

    Parameters
    ----------
    change
        Squared distance between the gradient now and at the model of the last one sent, on the same samples.
    threshold
        Changes up to this are not worth sending.
    age
        Updates since the last one was sent; None if none was.
    max_age
        After so many updates it is sent in any case.

    Examples
    --------
    >>> [has_changed(change, 1.0, age=3, max_age=10) for change in (1.0, 1.1)]
    [False, True]
    >>> has_changed(0.0, 1.0, age=10, max_age=10), has_changed(0.0, 1.0, age=None, max_age=10)
    (True, True)
    """
    return age is None or age >= max_age or change > threshold


class LazyTrigger(Stateful):
    """What both rules remember: the last steps, and what each group sent last.

    Parameters
    ----------
    weight
        ``c``; 0 sends always, infinity only by age.
    window
        How many steps are looked at.
    max_age
        After so many updates a group sends in any case.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """

    remembered: ClassVar[tuple[str, ...]] = ("sent", "_moves")
    site: Literal["driver", "worker"]

    def __init__(self, weight: float, window: int = 10, max_age: int = 20) -> None:
        if not weight >= 0:
            raise InputError(f"weight must be at least 0, got {weight}")
        self.weight = float(weight)
        self.window = check_whole("window", window, 1)
        self.max_age = check_whole("max_age", max_age, 1)
        self.sent: dict[int, int] = {}  # group -> version of its last gradient
        self._moves: deque[float] = deque(maxlen=self.window)

    @property
    def threshold(self) -> float:
        """Up to which squared change a gradient is not sent."""
        return self.weight / self.window * sum(self._moves) if self._moves else 0.0

    def should_send(self, view: Mapping[str, Any]) -> bool:
        """Decide from ``change``, ``threshold`` and ``age``; see `has_changed`."""
        return has_changed(view["change"], view["threshold"], view["age"], self.max_age)

    def payload(self, group: int, version: int) -> dict[str, Any]:
        """Return what a task of the group must know: all a stateless worker needs to decide."""
        sent = self.sent.get(group)
        return {
            "sent": sent,
            "age": None if sent is None else version - sent,
            "threshold": self.threshold,
            "max_age": self.max_age,
        }

    def asks(self, group: int, x: Array | None, version: int) -> bool:  # noqa: ARG002 - for rules at the driver
        """Whether the group is to be invoked."""
        return True

    def after_step(self, before: Array, after: Array, update: Update) -> None:
        """Remember how far a step went and which groups took part with a new gradient."""
        self._moves.append(float(np.sum((after - before) ** 2)))
        for group, version in update.meta.get("versions", {}).items():
            self.sent[group] = version


class CADA2Trigger(LazyTrigger):
    """The worker's rule: two gradients on the same samples, now and at the model of the last one sent.

    The invocation is paid for; what is saved is the transfer. The worker evaluates `has_changed` with what its task
    carries (`payload`) and delivers None if not.

    Examples
    --------
    >>> trigger = CADA2Trigger(weight=2.0, window=10)
    >>> trigger.after_step(np.zeros(1), np.array([3.0]), Update(np.zeros(1), meta={"versions": {0: 0}}))
    >>> trigger.payload(0, version=1)
    {'sent': 0, 'age': 1, 'threshold': 1.8, 'max_age': 20}
    """

    site = "worker"


class LagPSTrigger(LazyTrigger):
    """The driver's rule: a group whose gradient cannot have changed enough is not invoked at all.

    The change is bounded by the distance that the model moved since, times the smoothness of the group's loss. Where
    that is not given, it is the largest secant ``||change of gradient|| / ||change of model||`` so far: right for whole
    gradients; the noise of stochastic ones makes it large, and the rule ask always.

    Parameters
    ----------
    weight, window, max_age
        As for `LazyTrigger`.
    smoothness
        Lipschitz constant of the gradients.

    Examples
    --------
    >>> trigger = LagPSTrigger(weight=1.0, smoothness=0.5)
    >>> sent = {"sent": {0: np.ones(1)}, "versions": {0: 0}}
    >>> trigger.after_step(np.zeros(1), np.ones(1), Update(np.ones(1), meta=sent))
    >>> [trigger.asks(0, np.array([x]), version=1) for x in (0.5, 2.0)]
    [False, True]
    """

    site = "driver"
    remembered = (*LazyTrigger.remembered, "_models", "_gradients", "_secants")

    def __init__(self, weight: float, window: int = 10, max_age: int = 20, *, smoothness: float | None = None) -> None:
        super().__init__(weight, window, max_age)
        if smoothness is not None and not smoothness > 0:
            raise InputError(f"smoothness must be positive, got {smoothness}")
        self._given = smoothness
        self._models: dict[int, Array] = {}
        self._gradients: dict[int, Array] = {}
        self._secants: dict[int, float] = {}

    def asks(self, group: int, x: Array | None, version: int) -> bool:
        """Whether the group is to be invoked, with the model at ``x``."""
        smoothness = self._secants.get(group) if self._given is None else self._given
        if x is None or group not in self._models or smoothness is None:
            return True
        moved = float(np.sum((x - self._models[group]) ** 2))
        change = smoothness**2 * moved
        return self.should_send({"change": change, **self.payload(group, version)})

    def after_step(self, before: Array, after: Array, update: Update) -> None:
        """Take secants of the gradients that came."""
        super().after_step(before, after, update)
        for group, gradient in update.meta.get("sent", {}).items():
            if group in self._models:
                moved = float(np.linalg.norm(before - self._models[group]))
                change = float(np.linalg.norm(gradient - self._gradients[group]))
                if moved > 0:
                    self._secants[group] = max(change / moved, self._secants.get(group, 0.0))
            self._models[group], self._gradients[group] = np.array(before), np.array(gradient)
