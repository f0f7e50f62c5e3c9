"""Nobody waits for unfinished work, and nothing that is finished is lost."""

from __future__ import annotations

from serverless_gc.policies.firstk import FirstK
from serverless_gc.types import Act, Arrival, Close, View

__all__ = ["FirstDone"]


class FirstDone(FirstK):
    """Close when the first ``k`` slots are done with all of their mini-batches, taking what the others have finished.

    Tasks need `serverless_gc.types.TaskSpec.milestones`, one for each mini-batch but the last
    (``Engine(milestones=...)``): a worker publishes each as it is done, which costs one request each. Where a
    mini-batch does not take much longer than that, `serverless_gc.policies.Anytime` does the same with one request.

    Parameters
    ----------
    k
        How many slots must be done.

    Raises
    ------
    InputError
        If ``k`` is not a positive integer.

    Notes
    -----
    C. He, P. Dube, "Accelerating Parallel Stochastic Gradient Descent via Non-blocking Mini-batches" (2022). Goes with
    `serverless_gc.transforms.SumMessages` and ``WeightedMean(of="sums")``.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost, milestones
    >>> from serverless_gc.stragglers import ShiftedExponential
    >>> engine = Engine(FirstDone(), n_slots=4, milestones=lambda slot: milestones(10, publish=1))
    >>> [outcome] = VirtualHost(ShiftedExponential(1.0, 2.0)).simulate(engine, rounds=1)
    >>> len(outcome.arrivals), sum(len(part.messages) for part in outcome.partials) > 10
    (1, True)
    """

    def __init__(self, k: int = 1) -> None:
        super().__init__(k)

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close at the ``k``-th slot that is done."""
        act = super().on_arrival(view, arrival)
        return Close(collect_partials=True) if isinstance(act, Close) else act
