"""Close after a number of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.words import given_up
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["FirstK", "KAsync", "KBatchAsync", "KBatchSync", "KSync", "WaitAll"]

_WAIT = Wait()


class FirstK:
    """Close when ``k`` results are here.

    Parameters
    ----------
    k
        How many results to wait for.
    leftover
        What happens to the other tasks: ``"cancel"`` voids them, ``"keep"`` lets a later round use them, stale.
    eager
        Whether a slot gets its next task as soon as it delivered, instead of at the next round.

    Raises
    ------
    InputError
        If ``k`` is not a positive integer or ``leftover`` is another word.

    Notes
    -----
    The four variants of Dutta, Joshi, Ghosh, Dube and Nagpurkar, "Slow and Stale Gradients Can Win the Race" (AISTATS
    2018): `KSync`, `KBatchSync`, `KAsync`, `KBatchAsync`. An eager slot whose task failed for good idles until the next
    round.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import ShiftedExponential
    >>> host = VirtualHost(ShiftedExponential(shift=0.1, rate=10.0), seed=1)
    >>> [outcome] = host.simulate(Engine(FirstK(6), n_slots=8), rounds=1)
    >>> len(outcome.arrivals), outcome.counts.voided
    (6, 2)
    """

    leftover: Literal["cancel", "keep"]

    def __init__(self, k: int, *, leftover: Literal["cancel", "keep"] = "cancel", eager: bool = False) -> None:
        self.k = check_whole("k", k, 1)
        if leftover not in {"cancel", "keep"}:
            raise InputError(f"leftover must be 'cancel' or 'keep', got {leftover!r}")
        self.leftover = leftover
        self.eager = eager

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every idle slot a task.

        Raises
        ------
        InputError
            If there are fewer than ``k`` slots and none of them may deliver twice.
        """
        if self.k > view.n_slots and not self.eager:
            raise InputError(f"k must be at most the number of slots, {view.n_slots}, got {self.k}")
        return [view.new_task(slot) for slot in view.idle_slots()]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close at the ``k``-th result."""
        if len(view.buffer) >= self.k:
            return Close()
        if self.eager:
            return Wait((view.new_task(arrival.task.slot),))
        return _WAIT

    def on_failure(self, view: View, task: TaskSpec) -> Act:  # noqa: ARG002 - part of the protocol
        """Give up when too few tasks are left."""
        here, coming = len(view.buffer), len({f.task.task_id for f in view.in_flight()})
        if here + coming >= self.k or (self.eager and coming):
            return Wait()
        return Abort(
            f"{self.k} results are needed, but {here} are here and {coming} can still come: " + given_up(view),
            "starved",
        )

    def timer(self, view: View) -> float | None:  # noqa: ARG002
        """No timer."""
        return None

    def on_timer(self, view: View) -> Act:  # noqa: ARG002
        """Nothing to do."""
        return Wait()


class KSync(FirstK):
    """Wait for ``k`` results, void the rest, start afresh.

    S. Dutta, J. Wang, G. Joshi, "Slow and Stale Gradients Can Win the Race" (2020), like the three that follow.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Exponential
    >>> [outcome] = VirtualHost(Exponential(1.0)).simulate(Engine(KSync(3), n_slots=8), rounds=1)
    >>> len(outcome.arrivals), outcome.counts.voided
    (3, 5)
    """

    def __init__(self, k: int) -> None:
        super().__init__(k)


class KBatchSync(FirstK):
    """Wait for ``k`` results of one version; a fast slot may deliver several.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant, PerSlot
    >>> law = PerSlot(Constant(1.0), (1.0, 9.0))
    >>> [outcome] = VirtualHost(law).simulate(Engine(KBatchSync(3), n_slots=2), rounds=1)
    >>> [arrival.task.slot for arrival in outcome.arrivals]
    [0, 0, 0]
    """

    def __init__(self, k: int) -> None:
        super().__init__(k, eager=True)


class KAsync(FirstK):
    """Wait for ``k`` results, stale ones included; the rest stays in flight.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant, PerSlot
    >>> law = PerSlot(Constant(1.0), (1.0, 2.5))
    >>> rounds = VirtualHost(law).simulate(Engine(KAsync(1), n_slots=2), rounds=3)
    >>> [(a.task.slot, r.version - a.task.version) for r in rounds for a in r.arrivals]
    [(0, 0), (0, 0), (1, 2)]
    """

    def __init__(self, k: int) -> None:
        super().__init__(k, leftover="keep")


class KBatchAsync(FirstK):
    """Wait for ``k`` results, stale ones included; every slot is always busy.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant, PerSlot
    >>> law = PerSlot(Constant(1.0), (1.0, 9.0))
    >>> rounds = VirtualHost(law).simulate(Engine(KBatchAsync(2), n_slots=2), rounds=2)
    >>> [[a.task.slot for a in r.arrivals] for r in rounds]
    [[0, 0], [0, 0]]
    """

    def __init__(self, k: int) -> None:
        super().__init__(k, leftover="keep", eager=True)


class WaitAll(FirstK):
    """Wait for every slot: the rule of an uncoded computation, which one lost slot ends.

    Examples
    --------
    >>> WaitAll().leftover
    'cancel'
    """

    def __init__(self) -> None:
        super().__init__(1)

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every slot a task."""
        self.k = view.n_slots
        return super().open(view)
