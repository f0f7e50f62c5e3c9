"""Follow any policy, but close no round whose answer is not determined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serverless_gc.codes.base import Code
from serverless_gc.policies.decodable import UntilDecodable
from serverless_gc.policies.following import Following
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait, WaitPolicy

__all__ = ["Guarded"]


class Guarded(Following):
    """Close when another policy would, and the code can decode: an exact answer is not given up for an early one.

    Once the other policy has had enough it is asked no more; the round goes on until the answer is determined.

    Parameters
    ----------
    inner
        The policy to follow.
    code
        The code.

    Examples
    --------
    Of these four workers any three suffice; two results are not enough, whatever the policy says:

    >>> from serverless_gc.codes import get
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.policies import FirstK
    >>> from serverless_gc.stragglers import ShiftedExponential
    >>> engine = Engine(Guarded(FirstK(2), get("mds", n_workers=4, k=3)), n_slots=4)
    >>> [outcome] = VirtualHost(ShiftedExponential(shift=0.1, rate=10.0)).simulate(engine, rounds=1)
    >>> len(outcome.arrivals)
    3
    """

    def __init__(self, inner: WaitPolicy, code: Code) -> None:
        super().__init__(inner)
        self._decodable = UntilDecodable(code)
        self._enough: Close | None = None
        self._determined: Close | None = None

    def explain(self) -> str:
        """Say what is still missing for an answer."""
        return self._decodable.explain()

    @property
    def answerable(self) -> bool:
        """Whether the inner policy has enough, and it determines the answer."""
        return self._enough is not None and self._decodable.answerable

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Open the inner policy."""
        self._restart()
        self._enough = self._determined = None
        self._decodable.open(view)
        return self.inner.open(view)

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Ask both."""
        return self._both(
            self._decodable.on_arrival(view, arrival),
            lambda: self.inner.on_arrival(view, arrival),
        )

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Ask both."""
        return self._both(self._decodable.on_failure(view, task), lambda: self.inner.on_failure(view, task))

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act:
        """Ask both."""
        return self._both(
            self._decodable.on_partial(view, task, messages),
            lambda: super(Guarded, self).on_partial(view, task, messages),
        )

    def timer(self, view: View) -> float | None:
        """When the inner policy wants to be asked, as long as it does; then when accuracy is no longer waited for."""
        return self._decodable.timer(view) if self._enough else self._inner_timer(view)

    def on_timer(self, view: View) -> Act:
        """Ask the inner policy, or whether to wait on for an accurate answer."""
        verdict = self._decodable.on_timer(view) if self._enough else self._determined or Wait()
        return self._both(verdict, lambda: self._inner_on_timer(view))

    def _both(self, verdict: Act, ask: Callable[[], Act]) -> Act:
        """Put the verdict of the code and the act of the inner policy together."""
        if isinstance(verdict, Close):
            self._determined = verdict
        elif isinstance(verdict, Abort) and not self._determined:
            return verdict  # it never can be
        act: Act = self._enough or ask()
        if isinstance(act, Abort) and act.kind == "starved":
            act = Close()  # what it waited for cannot come; what the code needs may be here, or come
        if not isinstance(act, Close):
            return act
        self._enough = act
        if self._determined is None:
            return Wait()
        return Close(collect_partials=act.collect_partials or self._determined.collect_partials)
