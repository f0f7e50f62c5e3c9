"""Wait for more results as the loss falls: speed first, accuracy later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from serverless_gc.errors import InputError
from serverless_gc.policies.firstk import FirstK
from serverless_gc.stateful import Stateful
from serverless_gc.types import Act, Arrival, TaskSpec, View

__all__ = ["AdaSync", "k_by_square_root", "k_for_exponential"]


def k_by_square_root(k: int, ratio: float, n_slots: int) -> int:
    """Return the best number of results to wait for where the time of a round is proportional to it.

    Parameters
    ----------
    k
        What is right at the first loss.
    ratio
        First loss over present loss; infinite when the present loss is zero.
    n_slots
        Upper limit.

    Examples
    --------
    >>> [k_by_square_root(1, ratio, 16) for ratio in (0.5, 1.0, 9.0, 1000.0)]
    [1, 1, 3, 16]
    """
    wanted = k * math.sqrt(ratio)
    return n_slots if wanted >= n_slots else max(1, round(wanted))


def k_for_exponential(ratio: float, n_slots: int, rate: float = 1.0) -> int:
    """Return the best number to wait for under K-sync with exponential times.

    The smallest ``K`` with ``1 / (rate (P - K)) >= ratio / (K (K + 1))``: one result more would cost more time than its
    noise is worth.

    Parameters
    ----------
    ratio
        Weight of the noise over the weight of the time; it grows as the loss falls.
    n_slots
        ``P``.
    rate
        Of the exponential law.

    Examples
    --------
    >>> [k_for_exponential(ratio, 16) for ratio in (0.5, 2, 5, 20, 100, 1000)]
    [3, 5, 7, 11, 14, 16]
    """
    for k in range(1, n_slots):
        if k * (k + 1) >= ratio * rate * (n_slots - k):
            return k
    return n_slots


def _calibrated(k: int, n_slots: int) -> float:
    """Ratio, for rate 1, in the middle of those for which ``k`` is best."""
    low = (k - 1) * k / (n_slots - k + 1)
    high = k * (k + 1) / (n_slots - k) if k < n_slots else 2.0 * low + 1.0
    return (low + high) / 2


class AdaSync(FirstK, Stateful):
    """Wait for ``k`` results, ``k`` growing as the loss falls.

    Parameters
    ----------
    k
        How many results to wait for at the first loss.
    interval
        Seconds between two looks at the loss.
    floor
        Estimate of the least loss. Without it an irreducible loss keeps ``k`` small for ever.
    rule
        ``"square-root"``: ``k sqrt(F_0 / F)``, right where the time of a round grows in proportion to ``k``.
        ``"exponential"``: for K-sync with exponential times (`k_for_exponential`), calibrated so that ``k`` is best at
        the first loss.
    leftover, eager
        As for `FirstK`.
    monotone
        Whether ``k`` may only grow.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Notes
    -----
    S. Dutta, J. Wang, G. Joshi, "Slow and Stale Gradients Can Win the Race" (2021). The loss is `View.loss_estimate`
    if the caller gives one, else the mean of ``stats["loss"]`` of the results since the last look.

    Examples
    --------
    >>> from serverless_gc.engine import Engine
    >>> policy = AdaSync(2, interval=1.0)
    >>> engine = Engine(policy, n_slots=16)
    >>> engine.loss_estimate = 8.0
    >>> _ = engine.open(0.0)
    >>> policy.k
    2
    """

    remembered = ("k", "first_loss", "_looked", "_losses")

    def __init__(
        self,
        k: int,
        *,
        interval: float,
        floor: float = 0.0,
        rule: Literal["square-root", "exponential"] = "square-root",
        leftover: Literal["cancel", "keep"] = "cancel",
        eager: bool = False,
        monotone: bool = False,
    ) -> None:
        super().__init__(k, leftover=leftover, eager=eager)
        if not interval >= 0:
            raise InputError(f"interval must be at least 0 seconds, got {interval}")
        if rule not in {"square-root", "exponential"}:
            raise InputError(f"rule must be 'square-root' or 'exponential', got {rule!r}")
        if rule == "exponential" and eager:
            raise InputError(
                "rule='exponential' is for eager=False: with eager slots the time grows in proportion to k"
            )
        self.first_k = k
        self.interval = float(interval)
        self.floor = float(floor)
        self.rule = rule
        self.monotone = monotone
        self.first_loss: float | None = None
        self._looked = -math.inf
        self._losses: list[float] = []

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Look at the loss if it is time to, then give every idle slot a task."""
        if view.now - self._looked >= self.interval:
            self._look(view)
        return super().open(view)

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close at the ``k``-th result."""
        loss = arrival.stats.get("loss")
        if loss is not None:
            self._losses.append(float(loss))
        return super().on_arrival(view, arrival)

    def _look(self, view: View) -> None:
        loss = view.loss_estimate
        if loss is None:
            if not self._losses:
                return
            loss = math.fsum(self._losses) / len(self._losses)
        self._looked = view.now
        self._losses = []
        excess = max(loss - self.floor, 0.0)
        if self.first_loss is None:
            self.first_loss = excess
            return
        ratio = self.first_loss / excess if excess > 0 else math.inf
        k = self._best(ratio, view.n_slots)
        self.k = max(k, self.k) if self.monotone else k

    def _best(self, ratio: float, n_slots: int) -> int:
        if self.rule == "square-root":
            return k_by_square_root(self.first_k, ratio, n_slots)
        return k_for_exponential(_calibrated(self.first_k, n_slots) * ratio, n_slots)
