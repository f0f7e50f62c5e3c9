"""What a training found, and what it cost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from serverless_gc.observe import Report, Span
from serverless_gc.plan import Cost, Platform
from serverless_gc.stragglers import Diagnosis, Trace, diagnose
from serverless_gc.types import Array, FloatArray

__all__ = ["Account", "Fit", "Iterate", "Reason", "peak", "said"]

Reason: TypeAlias = Literal["gradient", "change", "rounds", "seconds", "callback", "stuck", "diverged"]

_SAID: Mapping[Reason, str] = {
    "gradient": "the gradient is small enough",
    "change": "the last step hardly moved",
    "rounds": "all rounds are used up",
    "seconds": "the time given is over",
    "callback": "the callback said stop",
    "stuck": "no further step lowers the objective",
    "diverged": "the objective grows beyond all bounds",
}


def peak(spans: Iterable[Span]) -> int:
    """Return how many attempts ran at the same time, at most, each up to when it ended or was given up.

    Examples
    --------
    >>> peak([Span(0, 0, 0, 0.0, 2.0), Span(1, 0, 0, 1.0, 3.0), Span(2, 0, 0, 2.0, 4.0)])
    2
    """
    edges = sorted(edge for span in spans for edge in ((span.t_issued, 1), (span.t_end, -1)))
    running = most = 0
    for _, change in edges:  # at equal times ends come first
        running += change
        most = max(most, running)
    return most


@dataclass(frozen=True, slots=True)
class Account:
    """What a training cost; a run that was taken up again includes what it had cost before.

    Attributes
    ----------
    updates, evaluations
        Steps made, and gradients computed; line searches compute more than one a step.
    seconds
        Seconds of all rounds, on the clock of the session's backend.
    issued, used, wasted
        Attempts sent; how many entered an answer; all the others.
    busy_used, busy_wasted
        Seconds from issue to end of the used attempts and of the others, those given up counted up to then.
    run_on
        Seconds for which attempts that were given up would have run on: they are billed as well, until their workers
        see the mark that says so. A simulated clock knows them; None for others.
    bytes_up, bytes_down
        Bytes sent and received by the driver.
    reads, writes
        Requests to the store, see `Report`: at least so many, since those of workers that were given up are unknown.
    peak
        Attempts running at the same time, at most. On a simulated clock those included that were given up and run on,
        which take up the account's concurrency all the same; other clocks do not see them, see `zombies`.
    samples
        Rows of ``X`` that entered gradients, each as often as it did. None where that is not known: with approximate
        and encoded gradients, and with the schemes of `minimize_decentralized`.
    staleness
        How many updates behind a used result was, to how often; synchronous runs have 0 only.

    Examples
    --------
    >>> Account(issued=3, used=2, wasted=1, busy_used=1.5, busy_wasted=0.5).billed_seconds
    2.0
    """

    updates: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    issued: int = 0
    used: int = 0
    wasted: int = 0
    busy_used: float = 0.0
    busy_wasted: float = 0.0
    run_on: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    reads: int = 0
    writes: int = 0
    peak: int = 0
    samples: float | None = 0.0
    staleness: Mapping[int, int] = field(default_factory=dict)

    @property
    def billed_seconds(self) -> float:
        """Seconds of all attempts together, up to when they were given up."""
        return self.busy_used + self.busy_wasted

    @property
    def zombies(self) -> float | None:
        """Mean number of attempts that had been given up and ran on; None on clocks that do not see them.

        Examples
        --------
        >>> Account(seconds=10.0, run_on=25.0).zombies, Account(seconds=10.0).zombies
        (2.5, None)
        """
        if self.run_on is None:
            return None
        return self.run_on / self.seconds if self.seconds else 0.0

    def with_report(
        self,
        report: Report,
        staleness: Sequence[int] | None = None,
        *,
        evaluations: int = 1,
        run_on: float | None = None,
        most: int = 0,
        samples: float | None = None,
    ) -> Account:
        """Add what rounds cost; their results are fresh unless staleness is given.

        ``most`` attempts ran at once since the account was opened, as far as is known besides the report's.
        """
        busy = [(span.t_end - span.t_issued, span.fate == "used") for span in report.spans]
        ages = Counter(staleness) if staleness is not None else Counter({0: report.used})
        return dataclasses.replace(
            self,
            evaluations=self.evaluations + evaluations,
            seconds=self.seconds + report.elapsed,
            issued=self.issued + report.issued,
            used=self.used + report.used,
            wasted=self.wasted + report.surplus + report.failed + report.voided,
            busy_used=self.busy_used + sum(seconds for seconds, used in busy if used),
            busy_wasted=self.busy_wasted + sum(seconds for seconds, used in busy if not used),
            run_on=self.run_on if run_on is None else (self.run_on or 0.0) + run_on,
            bytes_up=self.bytes_up + report.bytes_up,
            bytes_down=self.bytes_down + report.bytes_down,
            reads=self.reads + report.reads,
            writes=self.writes + report.writes,
            peak=max(self.peak, most, peak(report.spans)),
            samples=None if self.samples is None or samples is None else self.samples + samples,
            staleness=dict(sorted((Counter(self.staleness) + ages).items())),
        )

    def cost(self, platform: Platform) -> Cost:
        """Return what it costs on AWS.

        Parameters
        ----------
        platform
            Prices, memory of the function, and whether the driver is outside the region.

        Returns
        -------
        Cost
            Function time with ``run_on``, where that is known; without what the data cost by lying in the store.

        Examples
        --------
        >>> from serverless_gc.plan import PRICES, Platform
        >>> account = Account(issued=1000, busy_used=500.0, reads=3000, writes=1000)
        >>> round(account.cost(Platform(prices=PRICES["eu-central-1", "arm64"])).total, 4)  # dollars
        0.0184
        """
        p = platform.prices
        return Cost(
            compute=(self.billed_seconds + (self.run_on or 0.0)) * platform.memory_mb / 1024 * p.gb_second,
            requests=self.issued * p.invocation,
            store=self.reads * p.get + self.writes * p.put,
            storage=0.0,
            transfer=self.bytes_down / 2**30 * p.transfer_gb if platform.driver_outside else 0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["staleness"] = [list(pair) for pair in self.staleness.items()]
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Account:
        """Inverse of `to_dict`."""
        return cls(**{**plain, "staleness": dict(plain["staleness"])})

    def __str__(self) -> str:
        ages = "" if set(self.staleness) <= {0} else f"; staleness {self._ages()}"
        per_update = self.evaluations / self.updates if self.updates else 0.0
        gradients = f", {per_update:.2g} gradients each" if self.evaluations > self.updates + 1 else ""
        clock = "" if self.run_on is None else " on a simulated clock"
        return (
            f"  updates  {self.updates}{gradients}, {self.seconds:.2f} s{clock}\n"
            f"  tasks    {self.issued} issued = {self.used} used + {self.wasted} wasted; at most {self.peak} at once"
            f"{self._zombies()}{ages}\n"
            f"  billed   {self.billed_seconds:.2f} s = {self.busy_used:.2f} s used + {self.busy_wasted:.2f} s wasted; "
            f"{self._later()}{_megabytes(self.bytes_up)} up, {_megabytes(self.bytes_down)} down\n"
            f"  store    {self.reads} reads, {self.writes} writes, not counting workers that were given up"
        )

    def _later(self) -> str:
        return "" if self.run_on is None else f"up to {self.run_on:.2f} s more after giving up; "

    def _zombies(self) -> str:
        return f", {self.zombies:.1f} of those given up in the mean" if self.zombies else ""

    def _ages(self) -> str:
        mean = sum(age * n for age, n in self.staleness.items()) / max(1, sum(self.staleness.values()))
        return f"{mean:.2f} updates in the mean, {max(self.staleness)} at most"


def _megabytes(n: int) -> str:
    return f"{n / 1e6:.3g} MB"


@dataclass(frozen=True, slots=True)
class Iterate:
    """Where a training stands; what a callback is told.

    Attributes
    ----------
    step
        Number of steps made.
    w
        The weights, read-only.
    value, gradient_norm
        Of the objective where the last gradient was taken.
    seconds, billed_seconds
        Spent so far.
    """

    step: int
    w: Array
    value: float
    gradient_norm: float
    seconds: float
    billed_seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Fit:
    """What a training found.

    Attributes
    ----------
    w
        The weights, of the shape of ``w0``.
    value, gradient
        Objective and gradient where the last gradient was taken, see `steps_since_value`: at ``w`` itself with
        ``"lbfgs"``, a line search, stale gradients, or a stop because the gradient is small; before the last step
        otherwise, for a gradient at the end would be billed for its value alone: ``data.value_and_gradient(fit.w)``
        asks for it. Accelerated methods take gradients ahead of their weights. An ``l1`` counts in the value, a
        ``prox`` of one's own does not.
    values, gradient_norms
        Of every step, the start included. For proximal methods the norm is that of the gradient mapping.
    seconds, billed_seconds
        Spent when these were known.
    steps
        Number of steps, those before a resumption included.
    reason
        Why it stopped: ``"gradient"``, ``"change"``, ``"rounds"``, ``"seconds"``, ``"callback"``, ``"stuck"`` or
        ``"diverged"``.
    message
        The same as a sentence.
    method
        What made the steps.
    account
        What it cost in all.
    report
        The merged report of all rounds of this call, without single attempts.
    resumed_at
        Step at which a checkpoint was taken up; None if it began at ``w0``.
    trace
        The delays of the newest rounds of this call, some 4000 attempts, for ``recommend(delay=...)``,
        ``serverless-gc plan --trace`` and `diagnosis`. None if no result arrived.
    """

    w: Array
    value: float
    gradient: Array
    values: FloatArray
    gradient_norms: FloatArray
    seconds: FloatArray
    billed_seconds: FloatArray
    steps: int
    reason: Reason
    message: str
    method: str
    account: Account
    report: Report
    resumed_at: int | None = None
    trace: Trace | None = None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What the delays say about waiting, see `serverless_gc.stragglers.diagnose`; None if they are too few."""
        return None if self.trace is None else diagnose(self.trace)

    @property
    def steps_since_value(self) -> int:
        """How many steps ``w`` is behind the point of ``value`` and ``gradient``: 0 or 1."""
        return int(0 < len(self.values) <= self.steps)

    @property
    def success(self) -> bool:
        """Whether it stopped because there was nothing left to gain."""
        return self.reason in {"gradient", "change"}

    def summary(self) -> str:
        """Say what was found and what it cost, like a report."""
        taken_up = "" if self.resumed_at is None else f", taken up at step {self.resumed_at}"
        who = ", ".join(
            filter(None, [self.report.code, f"{self.report.n_workers} workers" if self.report.n_workers else ""])
        )
        norms = self.gradient_norms
        slope = f", gradient {norms[-1]:.1e} ({norms[0]:.1e} at the start)" if len(norms) else ""
        return "\n".join(
            [
                f"{self.method}{f' on {who}' if who else ''}: {self.steps} steps{taken_up}; {self.message}",
                f"  value    {self.value:.8g}{' before the last step' if self.steps_since_value else ''}{slope}",
                str(self.account),
                *(f"  delays   {found}" for found in [self.diagnosis] if found is not None),
                *(f"  note     {note}" for note in self.report.notes),
            ]
        )

    def __repr__(self) -> str:
        return f"<Fit: {self.summary().partition(chr(10))[0]}; value {self.value:.8g}>"

    def __str__(self) -> str:
        return self.summary()


def said(reason: Reason, detail: str = "") -> str:
    """Return a reason as a sentence."""
    return f"{_SAID[reason]}{f': {detail}' if detail else ''}"
