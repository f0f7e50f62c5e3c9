"""Close when the answer is accurate enough: the rule of codes that need not be exact."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Verdict
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.errors import InputError
from serverless_gc.policies.decodable import UntilDecodable
from serverless_gc.policies.words import check_code
from serverless_gc.types import Act, View

__all__ = ["TracksError", "UntilError"]


@runtime_checkable
class TracksError(Protocol):
    """A tracker that knows the squared error of the best combination of what it was told of."""

    @property
    def error(self) -> float:
        """``err(F)``, between 0 and the number of partitions."""
        ...


class UntilError(UntilDecodable):
    """Close when a gradient code's answer is exact, its error is small enough, or enough results are here.

    Parameters
    ----------
    code
        The code; slot ``i`` delivers the messages ``code.placement(i)``.
    max_error
        Squared error per partition, ``err(F) / k``, at which the answer is good enough; None not to look at it.
    wait
        Number of results at which to close whatever the error; None for no such number.

    Raises
    ------
    InputError
        If ``max_error`` is negative or ``wait`` is not in ``1 .. n_workers``.

    Notes
    -----
    Whichever comes first closes the round, with everything that arrived. When nothing more can come and none of them is
    reached, the round is aborted; inside ``Deadline(..., on_expire="close")`` it closes with what is here.

    Examples
    --------
    >>> from serverless_gc.codes.gradient import LinearGradientCode
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import ShiftedExponential
    >>> fano = [[1.0 if (j - i) % 7 in (0, 1, 3) else 0.0 for j in range(7)] for i in range(7)]
    >>> code = LinearGradientCode(fano, exact=False)
    >>> host = VirtualHost(ShiftedExponential(shift=0.1, rate=10.0), seed=1)
    >>> [outcome] = host.simulate(Engine(UntilError(code, max_error=0.1), n_slots=7), rounds=1)
    >>> len(outcome.arrivals)  # err is 4/7 with 5 of them, 1 with 4: per partition 0.08 and 0.14
    5
    """

    code: GradientCode

    def __init__(self, code: GradientCode, *, max_error: float | None = None, wait: int | None = None) -> None:
        check_code(self, code)
        if max_error is not None and not max_error >= 0:
            raise InputError(f"max_error must be at least 0, got {max_error}")
        if wait is not None:
            wait = check_whole("wait", wait, 1)
            if wait > code.n_workers:
                raise InputError(f"wait must be at most the number of workers, {code.n_workers}, got {wait}")
        self.max_error = max_error
        self.wait = wait
        super().__init__(code)

    @property
    def error(self) -> float:
        """Squared error of the best combination of what arrived in this round."""
        if isinstance(self._tracker, TracksError):
            return self._tracker.error
        return self.code.weights(self._arrived).error

    def _decide(self, view: View) -> Act:
        """Close if what is here is enough; a failed slot is a straggler."""
        if not self._verdict and self._arrived and self._enough():
            self._verdict = Verdict(decodable=True)
        return super()._decide(view)

    def _enough(self) -> bool:
        if self.wait is not None and self._n_results >= self.wait:
            return True
        return self.max_error is not None and self.error <= self.max_error * self.code.k

    def explain(self) -> str:
        """Say how far the answer is from what is asked for."""
        wanted = [f"at most {self.max_error:g}"] if self.max_error is not None else []
        wanted += [f"{self.wait} results"] if self.wait is not None else []
        return (
            f"the squared error is {self.error / self.code.k:.3g} per partition with {self._n_results} results, "
            f"{' or '.join(wanted) or 'an exact answer'} is asked for"
        )
