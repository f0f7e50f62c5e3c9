"""Stochastic schemes: each a choice of plug-ins, by name or composed anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from serverless_gc.aggregate import Mean, SumOver
from serverless_gc.errors import InputError
from serverless_gc.fitting.placing import Shards
from serverless_gc.optim.schedules import Rate
from serverless_gc.policies import (
    AdaSync,
    Cutoff,
    GlobalBatch,
    Groups,
    KalmanLog,
    KAsync,
    KBatchAsync,
    KBatchSync,
    KSync,
    Predictor,
    WaitAll,
)
from serverless_gc.prepare import check_whole
from serverless_gc.refusals import unknown_argument, unknown_name
from serverless_gc.transforms import GapAware, TokenDecay
from serverless_gc.types import Aggregator, ArrivalTransform, Optimizer, WaitPolicy

__all__ = ["SCHEMES", "Scheme", "TaskKind", "find_scheme"]

TaskKind = Literal["gradient", "local-sgd", "mini-batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What makes a stochastic training: when to stop waiting, what tasks do, what becomes of their results.

    Plug-ins with a memory serve one training: make a scheme anew for the next.

    Attributes
    ----------
    name
        For reports.
    policy
        When a round closes, see `serverless_gc.policies`. Tasks of `serverless_gc.policies.Anytime`, or of any that
        sets ``stop_at``, do as many units of work as begin in time; those of `serverless_gc.policies.Groups` with a
        trigger of ``site="worker"`` send only what is new.
    task
        ``"gradient"``: the mean gradient of ``units`` mini-batches. ``"local-sgd"``: the model after ``units`` steps of
        the worker's own. ``"mini-batches"``: the stacked gradients of ``units`` mini-batches, each stored as it is
        done, for `serverless_gc.policies.FirstDone`.
    units
        Mini-batches of one task, ``batch`` rows each.
    shards
        Which data a task is about: ``"drawn"``, a partition drawn by the task's seed; ``"fixed"``, those of its slot;
        ``"grouped"``, those of the group in its payload.
    balance
        Whether gradients of fixed shards are scaled so that their mean over the shards is that over all rows.
    transforms, aggregator, optimizer
        The plug-ins of `serverless_gc.training.Training`; the optimizer is `serverless_gc.optim.SGD` if None. A
        result's body is a mean over ``work_done`` samples, or ``work_done`` messages with ``"mini-batches"``; its
        ``stats`` have ``"rows"``, those of its shard, and ``"loss"`` where the loss tells it.
    stats
        What else workers send, as sums over samples: ``"sum_of_squares"`` of gradients, ``"fisher"`` (their outer
        products), or nothing.
    needs_loss
        Whether a function of one's own must return the pair (value, gradient).

    Examples
    --------
    K-sync whose results count by the noise of their slots:

    >>> from serverless_gc.aggregate import PrecisionWeightedMean
    >>> from serverless_gc.policies import KSync
    >>> mine = Scheme(
    ...     name="mine", policy=KSync(3), aggregator=PrecisionWeightedMean(), stats="sum_of_squares", shards="fixed"
    ... )
    >>> mine.task, mine.units
    ('gradient', 1)
    """

    name: str
    policy: WaitPolicy
    task: TaskKind = "gradient"
    units: int = 1
    shards: Shards = "drawn"
    balance: bool = True
    transforms: Sequence[ArrivalTransform] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    optimizer: Optimizer | None = None
    stats: Literal["", "sum_of_squares", "fisher"] = ""
    needs_loss: bool = False

    def __post_init__(self) -> None:
        check_whole("units", self.units, 1)
        for name, value, known in (
            ("task", self.task, ("gradient", "local-sgd", "mini-batches")),
            ("shards", self.shards, ("drawn", "fixed", "grouped")),
            ("stats", self.stats, ("", "sum_of_squares", "fisher")),
        ):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        if self.task == "mini-batches" and self.stats:
            raise InputError("stats do not go with task='mini-batches', whose messages are gradients alone")
        if (self.shards == "grouped") != isinstance(self.policy, Groups):
            raise InputError("shards='grouped' goes with policy=Groups(...) and with no other")


def _most(n: int, k: int | None) -> int:
    """Three quarters of the slots, unless said otherwise."""
    return -(-3 * n // 4) if k is None else k


def _sync(n: int, lr: Rate) -> Scheme:  # noqa: ARG001 - one signature for all
    return Scheme(name="sync", policy=WaitAll())


def _k_sync(n: int, lr: Rate, *, k: int | None = None) -> Scheme:  # noqa: ARG001
    return Scheme(name="k-sync", policy=KSync(_most(n, k)))


def _k_batch_sync(n: int, lr: Rate, *, k: int | None = None) -> Scheme:  # noqa: ARG001
    return Scheme(name="k-batch-sync", policy=KBatchSync(_most(n, k)))


def _k_async(n: int, lr: Rate, *, k: int = 1) -> Scheme:  # noqa: ARG001
    return Scheme(name="k-async", policy=KAsync(k))


def _k_batch_async(n: int, lr: Rate, *, k: int = 1) -> Scheme:  # noqa: ARG001
    return Scheme(name="k-batch-async", policy=KBatchAsync(k))


def _adasync(n: int, lr: Rate, *, k: int = 1, interval: float, **more: Any) -> Scheme:  # noqa: ARG001
    return Scheme(name="adasync", policy=AdaSync(k, interval=interval, **more), needs_loss=True)


def _cutoff(n: int, lr: Rate, *, predictor: Predictor | None = None, least: int | None = None) -> Scheme:  # noqa: ARG001
    return Scheme(name="cutoff", policy=Cutoff(KalmanLog() if predictor is None else predictor, least))


def _gap_aware(n: int, lr: Rate, *, mode: Literal["raw", "applied"] = "raw", elementwise: bool = True) -> Scheme:  # noqa: ARG001
    gap = GapAware(lr, mode=mode, elementwise=elementwise)
    return Scheme(name="gap-aware", policy=KBatchAsync(1), transforms=(gap,))


def _gba(n: int, lr: Rate, *, k: int | None = None, tolerance: float = 4, decay: float = 0.0) -> Scheme:  # noqa: ARG001
    k = n if k is None else k
    decayed = TokenDecay(tolerance, decay)
    return Scheme(name="gba", policy=GlobalBatch(k), transforms=(decayed,), aggregator=SumOver(k))


SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "sync": _sync,
    "k-sync": _k_sync,
    "k-batch-sync": _k_batch_sync,
    "k-async": _k_async,
    "k-batch-async": _k_batch_async,
    "adasync": _adasync,
    "cutoff": _cutoff,
    "gap-aware": _gap_aware,
    "gba": _gba,
}
"""Name -> scheme from the number of slots, the step length, and its parameters."""


def find_scheme(scheme: str | Scheme, n: int, lr: Rate, params: Mapping[str, Any]) -> Scheme:
    """Return the scheme that a name and parameters stand for.

    Raises
    ------
    InputError
        If the name is unknown, or a parameter is wrong, missing or none of the scheme's.
    """
    if isinstance(scheme, Scheme):
        if params:
            raise InputError(f"{min(params)}= is a parameter of schemes by name; an object brings its own")
        return scheme
    if not isinstance(scheme, str):
        raise InputError(f"scheme must be a name or a Scheme, got {scheme!r}")
    if scheme not in SCHEMES:
        raise InputError(unknown_name("scheme", scheme, SCHEMES))
    make = SCHEMES[scheme]
    known = _parameters(make)
    if unknown := params.keys() - known.keys():
        raise InputError(unknown_argument(f"scheme {scheme!r}", min(unknown), known))
    if missing := [name for name, needed in known.items() if needed and name not in params]:
        raise InputError(f"scheme {scheme!r} needs {missing[0]}=: give it to minimize_stochastic")
    return make(n, lr, **params)


def _parameters(make: Callable[..., Scheme]) -> dict[str, bool]:
    """Return the names of a scheme's parameters, and whether they must be given."""
    found = {}
    for p in inspect.signature(make).parameters.values():
        if p.kind == p.KEYWORD_ONLY:
            found[p.name] = p.default is p.empty
        elif p.kind == p.VAR_KEYWORD:  # what an AdaSync takes besides
            found |= dict.fromkeys(("floor", "rule", "leftover", "eager", "monotone"), False)
    return found
