"""Stop at the number of results that makes the most of the time, by a forecast of the round."""

from __future__ import annotations

from collections.abc import Sequence

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.firstk import FirstK
from serverless_gc.policies.predict import Predictor, best_cutoff
from serverless_gc.types import Act, Arrival, Close, TaskSpec, View

__all__ = ["Cutoff"]


class Cutoff(FirstK):
    """K-sync with a number of results chosen anew for each round: where a forecast expects most results per second.

    Parameters
    ----------
    predictor
        Forecasts the round; learns from every round that closes.
    least
        Fewest results to close with; half of the slots by default. Without it, exponential times make it 1.
    full_every
        Wait for all in every so many rounds; for predictors that learn from complete rounds only.

    Raises
    ------
    InputError
        If a parameter is not a positive integer.

    Notes
    -----
    M. Teng, F. Wood, "Bayesian Distributed Stochastic Gradient Descent" (2018). A slot that is always slow is always
    cut off: let data not belong to slots.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.policies import StaticNormal
    >>> from serverless_gc.stragglers import ShiftedExponential
    >>> rounds = VirtualHost(ShiftedExponential(1.0, 1.0)).simulate(Engine(Cutoff(StaticNormal()), n_slots=20), 2)
    >>> full, cut = [len(r.arrivals) for r in rounds]
    >>> full, 10 <= cut < 20
    (20, True)
    """

    def __init__(self, predictor: Predictor, least: int | None = None, *, full_every: int | None = None) -> None:
        super().__init__(1)
        self.predictor = predictor
        self.least = None if least is None else check_whole("least", least, 1)
        self.full_every = None if full_every is None else check_whole("full_every", full_every, 1)

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Choose the number of results, then give every slot a task."""
        n = view.n_slots
        least = self._least(view)
        if least > n:
            raise InputError(f"least must be at most the number of slots, {n}, got {least}")
        self.k = n
        full = self.full_every is not None and view.version % self.full_every == 0
        if self.predictor.ready and not full:
            rates = self.predictor.rates()
            if rates.size >= least:  # fewer: slots that never finished are not forecast
                self.k = best_cutoff(rates, least)
        return super().open(view)

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close at the chosen number, and tell the predictor how the round went."""
        return self._learned(view, super().on_arrival(view, arrival))

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Be content with what can still come, if that is enough."""
        possible = len(view.buffer) + len({f.task.task_id for f in view.in_flight()})
        self.k = max(min(self.k, possible), self._least(view))
        if len(view.buffer) >= self.k:
            return self._learned(view, Close())
        return super().on_failure(view, task)

    def _least(self, view: View) -> int:
        return (view.n_slots + 1) // 2 if self.least is None else self.least

    def _learned(self, view: View, act: Act) -> Act:
        if not isinstance(act, Close):
            return act
        finished = {a.task.slot: a.t_arrived - a.t_issued for a in view.buffer}
        ages = {f.task.slot: view.now - f.t_issued for f in view.in_flight()}
        self.predictor.observe(finished, {slot: age for slot, age in ages.items() if age > 0})
        return act
