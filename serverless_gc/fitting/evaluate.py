"""One coded gradient after another, within the time of the whole run, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.data.coded import CodedData
from serverless_gc.data.encoded import EncodedData
from serverless_gc.data.gradient import GradientData
from serverless_gc.engine import Host
from serverless_gc.errors import DeadlineExceeded, InputError
from serverless_gc.fitting.delays import Delays
from serverless_gc.fitting.result import Account
from serverless_gc.fitting.smoothness import Data
from serverless_gc.fitting.unseen import Unseen
from serverless_gc.observe import Report
from serverless_gc.policies import (
    AdaSync,
    Anytime,
    FirstDone,
    FirstK,
    GlobalBatch,
    GossipReady,
    Groups,
    Guarded,
    LocallyAsync,
    UntilDecodable,
)
from serverless_gc.policies.following import Following
from serverless_gc.policies.waiting import PolicyFactory, waiting
from serverless_gc.session import Session
from serverless_gc.types import Array, FloatArray, WaitPolicy

__all__ = ["Evaluations", "TimeIsUp", "check_policy", "exact_rounds"]


_APART: Mapping[type[WaitPolicy], str] = {
    Anytime: "workers that stop at a time and send what they have: take sgc.minimize_stochastic(scheme='anytime') or "
    "'anytime-minibatch', or sgc.Deadline(..., on_expire='close')",
    FirstDone: "workers that publish mini-batches: take sgc.minimize_stochastic(scheme='non-blocking')",
    Groups: "workers that share their data with a group: take sgc.minimize_stochastic(scheme='cada') or 'lag'",
    GlobalBatch: "gradients that are weighted by their tokens: take sgc.minimize_stochastic(scheme='gba'), or "
    "sgc.KBatchAsync",
    AdaSync: "the loss of each round, which a coded gradient does not tell: take "
    "sgc.minimize_stochastic(scheme='adasync'), or sgc.KSync",
    LocallyAsync: "models of groups: take sgc.minimize_decentralized(method='lasgd')",
    GossipReady: "models of nodes: take sgc.minimize_decentralized",
}
"""Policies whose rule means something only with their own kind of work, and what that is."""

_ROUNDING = 1e-12
"""Below this the error of a gradient code is rounding."""


class TimeIsUp(Exception):
    """The seconds of the whole run are over."""


def check_policy(policy: WaitPolicy) -> None:
    """Raise `InputError` if a policy, or one that it follows, needs another kind of work than gradients."""
    while True:
        for kind, needed in _APART.items():
            if isinstance(policy, kind):
                raise InputError(f"{kind.__name__} is about {needed}")
        if not isinstance(policy, Following):
            return
        policy = policy.inner


def exact_rounds(policy: PolicyFactory | None, data: Data, options: Mapping[str, Any]) -> PolicyFactory | None:
    """Return a policy that closes no round of an exact code before its answer is determined.

    Where approximate gradients were asked for, or the code gives no others, it is left as it is.

    Raises
    ------
    InputError
        If the policy does not go with coded gradients or with the other options.
    """
    if policy is None:
        return None
    given = policy
    if isinstance(data, EncodedData):
        raise InputError("encoded data wait for the workers that wait= says: policy does not go with them")
    if twice := {"max_error", "wait"} & {name for name, value in options.items() if value is not None}:
        raise InputError(f"policy and {min(twice)} both say when to stop waiting: give one of them")
    probe = given(data.code)
    if isinstance(probe, FirstK) and probe.eager:
        raise InputError(
            "an eager policy lets a worker deliver several results to one round, of which a coded gradient can use one "
            "only: use KSync instead of KBatchSync, or KBatchAsync for stale gradients"
        )
    if options.get("on_undecodable") == "approximate" or not data.code.exact:
        return given

    def guarded(code: Code) -> WaitPolicy:
        inner = given(code)
        return inner if isinstance(inner, UntilDecodable) else Guarded(inner, code)

    return guarded


class Evaluations:
    """Values and gradients of one objective.

    Attributes
    ----------
    account, report
        What they have cost so far.
    delays
        How long the newest tasks took.
    """

    def __init__(
        self,
        data: Data,
        options: Mapping[str, Any],
        policy: PolicyFactory | None,
        seconds: float | None,
        leftover: Literal["keep", "cancel"] = "cancel",
    ) -> None:
        self._data = data
        self._options = dict(options)
        self._policy = policy
        self._seconds = seconds
        owner = data.owner
        usual = owner.settings["deadline"] if isinstance(owner, Session) else None
        self._deadline: float | None = self._options.pop("deadline", None) or usual
        self._unseen = Unseen()
        self._squares = False
        self._newest: tuple[Array, Array] | None = None
        self.account = Account()
        self.report = Report(rounds=0)
        self.delays = Delays(leftover)

    def watch(self, host: Host) -> None:
        """Ask a simulated clock what runs on unseen, from now on."""
        self._unseen = Unseen(host)

    @property
    def time_is_up(self) -> bool:
        """Whether the seconds of the run are over."""
        return self._seconds is not None and self.account.seconds >= self._seconds

    def spent(
        self,
        report: Report,
        staleness: tuple[int, ...] | None = None,
        *,
        evaluations: int = 1,
        samples: float | None = 0.0,
    ) -> None:
        """Enter what rounds have cost, and how many rows entered their gradients; None if that is not known."""
        news = self._unseen.news()
        self.account = self.account.with_report(report, staleness, evaluations=evaluations, samples=samples, **news)
        self.report = self.report.merge(report.without_spans())

    async def at(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient.

        Raises
        ------
        TimeIsUp
            If the seconds of the run do not suffice.
        NotDecodableError, DeadlineExceeded
            If a round failed.
        """
        options = {**self._options, "with_squares": True} if self._squares else self._options
        value, gradient, *squares, report = await self._round(self._data.value_and_gradient_async, x, options)
        if squares:
            self.remember(x, squares[0])
        self.spent(report, samples=self._data.n_rows if self._whole(report) else None)
        self.delays.add(report)
        if np.iscomplexobj(gradient):
            raise InputError("complex data have complex gradients, and minimize serves real weights only")
        return float(value), gradient

    async def curvature(self, x: Array, kind: str, seed: tuple[int, int], sketch_rows: int | None) -> FloatArray:
        """Return what second-order rules need to know of a point, see ``data.curvature``; errors are those of `at`."""
        known = self.remembered(x)
        if self._squares and known is not None:
            return known
        ask = self._data.curvature_async  # type: ignore[union-attr]  # `minimize` has checked it
        taken = signature(ask).parameters
        options = {name: value for name, value in self._options.items() if name in taken}
        options |= {"kind": kind, "seed": seed, "sketch_rows": sketch_rows}
        found: FloatArray
        found, report = await self._round(ask, x, options)
        self.spent(report, evaluations=0)
        self.delays.add(report)
        return found

    def needing(self, kind: str) -> None:
        """Have workers send along what rules need to know of a point, where that takes no other round."""
        self._squares = kind == "sum_of_squares" and isinstance(self._data, GradientData)

    def remembered(self, x: Array) -> Array | None:
        """Return what was found on the way to the last gradient and its curvature needs, if it was taken here."""
        if isinstance(self._data, CodedData):
            return self._data.predictions(x)
        return self._newest[1] if self._newest is not None and np.array_equal(self._newest[0], x) else None

    def remember(self, x: Array, found: Array) -> None:
        """Keep that."""
        if isinstance(self._data, CodedData):
            self._data.remember(x, found)
        else:
            self._newest = (x, found)

    async def _round(self, ask: Callable[..., Any], x: Array, options: Mapping[str, Any]) -> Any:
        """Ask the data something about a point, within the time that is left."""
        deadline, last = self._deadline, False
        if self._seconds is not None:
            left = self._seconds - self.account.seconds
            if left <= 0:
                raise TimeIsUp
            last = deadline is None or left < deadline
            deadline = left if last else deadline
        try:
            with waiting(self._policy):
                return await ask(x, with_report=True, deadline=deadline, **options)
        except DeadlineExceeded:
            if last:
                raise TimeIsUp from None
            raise

    def _whole(self, report: Report) -> bool:
        """Whether every row entered a gradient once."""
        code = self._data.code
        if isinstance(self._data, EncodedData):
            return False
        return (code.exact or isinstance(code, GradientCode)) and report.error < _ROUNDING
