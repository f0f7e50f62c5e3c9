"""Stochastic schemes: each a choice of plug-ins, by name or composed anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from serverless_gc.aggregate import (
    AverageModels,
    AverageStats,
    GradientTable,
    Mean,
    PrecisionWeightedMean,
    SumOver,
    WeightedMean,
)
from serverless_gc.errors import InputError
from serverless_gc.fitting.placing import Shards
from serverless_gc.optim import AMSGrad, DualAveraging, ModelAverage, NaturalGradient
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.policies import (
    AdaSync,
    Anytime,
    CADA2Trigger,
    Cutoff,
    FirstDone,
    FreshK,
    GlobalBatch,
    GossipReady,
    Groups,
    KalmanLog,
    KAsync,
    KBatchAsync,
    KBatchSync,
    KSync,
    LagPSTrigger,
    LocallyAsync,
    Predictor,
    WaitAll,
)
from serverless_gc.policies.following import Following
from serverless_gc.policies.triggers import LazyTrigger
from serverless_gc.prepare import check_whole
from serverless_gc.refusals import unknown_argument, unknown_name
from serverless_gc.topologies import Groups as Consecutive
from serverless_gc.transforms import DelayCompensation, GapAware, PseudoGradient, SumMessages, TokenDecay
from serverless_gc.types import Aggregator, ArrivalTransform, Optimizer, WaitPolicy

__all__ = ["SCHEMES", "Scheme", "Stats", "TaskKind", "find_scheme", "with_optimizer"]

TaskKind = Literal["gradient", "local-sgd", "mini-batches"]
Stats = Literal["", "sum_of_squares", "fisher"]


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
        Mini-batches of one task, ``batch`` rows each; with ``stop_at`` there are as many as begin in time.
    shards
        Which data a task is about: ``"drawn"``, a partition drawn by the task's seed; ``"fixed"``, those of its slot;
        ``"grouped"``, those of the group in its payload.
    balance
        Whether gradients of fixed shards are scaled so that their mean over the shards is that over all rows.
    transforms, aggregator, optimizer
        The plug-ins of `serverless_gc.fitting.training.Training`; the optimizer is `serverless_gc.optim.SGD` if None. A
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
    stats: Stats = ""
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
        if not isinstance(self.policy, WaitPolicy):
            raise InputError(f"policy must be one like those of serverless_gc.policies, got {self.policy!r}")
        rule = self.rule
        if isinstance(rule, LocallyAsync | GossipReady):
            raise InputError(f"{type(rule).__name__} is about models of nodes: take sgc.minimize_decentralized")
        if (self.shards == "grouped") != isinstance(rule, Groups):
            raise InputError("shards='grouped' goes with policy=Groups(...) and with no other")
        if self.task == "mini-batches" and (self.stats or isinstance(rule, Anytime)):
            raise InputError("task='mini-batches' delivers gradients alone, of a given number: no stats, no stop_at")

    @property
    def rule(self) -> WaitPolicy:
        """The policy, without others that follow it."""
        policy = self.policy
        while isinstance(policy, Following):
            policy = policy.inner
        return policy


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


def _anytime(n: int, lr: Rate, *, compute_seconds: float, guard: float | None = None) -> Scheme:  # noqa: ARG001
    return Scheme(
        name="anytime",
        policy=_until(compute_seconds, guard),
        task="local-sgd",
        aggregator=AverageModels(),
        optimizer=ModelAverage(),
    )


def _anytime_minibatch(
    n: int,  # noqa: ARG001
    lr: Rate,
    *,
    compute_seconds: float,
    guard: float | None = None,
    alpha: float = 0.0,
) -> Scheme:
    return Scheme(
        name="anytime-minibatch",
        policy=_until(compute_seconds, guard),
        aggregator=WeightedMean(),
        optimizer=DualAveraging(1.0 / as_schedule(lr)(0), alpha),
    )


def _until(seconds: float, guard: float | None) -> Anytime:
    """Wait for results as long again as they were computed, but a second: a guard is for what never answers."""
    return Anytime(seconds, max(1.0, seconds) if guard is None else guard)


def _non_blocking(n: int, lr: Rate, *, mini_batches: int = 10, k: int = 1) -> Scheme:  # noqa: ARG001
    return Scheme(
        name="non-blocking",
        policy=FirstDone(k),
        task="mini-batches",
        units=mini_batches,
        transforms=(SumMessages(),),
        aggregator=WeightedMean(of="sums"),
    )


def _hybrid(
    n: int,
    lr: Rate,
    *,
    k: int | None = None,
    local_steps: int = 5,
    compensation: float = 1.0,
    curvature: Literal["persample", "square"] = "persample",
    adaptive: bool = False,
) -> Scheme:
    return Scheme(
        name="hybrid-federated",
        policy=FreshK(_most(n, k)),
        task="local-sgd",
        units=local_steps,
        shards="fixed",
        transforms=(PseudoGradient(lr), DelayCompensation(compensation, curvature, adaptive=adaptive)),
        aggregator=WeightedMean("rows"),
        stats="sum_of_squares" if compensation and curvature == "persample" else "",
    )


def _lazy(name: str, n: int, lr: Rate, group_size: int, trigger: LazyTrigger) -> Scheme:
    groups = Consecutive(n, group_size).groups()
    return Scheme(
        name=name,
        policy=Groups(groups, trigger),
        shards="grouped",
        aggregator=GradientTable(len(groups)),
        optimizer=AMSGrad(lr),
    )


def _cada(n: int, lr: Rate, *, group_size: int = 1, weight: float = 1.0, window: int = 10, max_age: int = 20) -> Scheme:
    return _lazy("cada", n, lr, group_size, CADA2Trigger(weight, window, max_age))


def _lag(
    n: int,
    lr: Rate,
    *,
    group_size: int = 1,
    weight: float = 1.0,
    window: int = 10,
    max_age: int = 20,
    smoothness: float | None = None,
) -> Scheme:
    return _lazy("lag", n, lr, group_size, LagPSTrigger(weight, window, max_age, smoothness=smoothness))


def _precision(n: int, lr: Rate, *, k: int | None = None, memory: float = 0.9) -> Scheme:  # noqa: ARG001
    return Scheme(
        name="precision",
        policy=KSync(n if k is None else k),
        shards="fixed",
        balance=False,
        aggregator=PrecisionWeightedMean(memory),
        stats="sum_of_squares",
    )


def _natural(
    n: int,
    lr: Rate,
    *,
    k: int | None = None,
    kind: Literal["diag", "full"] = "diag",
    damping: float = 1e-3,
    memory: float = 0.9,
) -> Scheme:
    rule = NaturalGradient(lr, kind, damping, memory)
    return with_optimizer(Scheme(name="natural-gradient", policy=KSync(n if k is None else k)), rule)


def with_optimizer(scheme: Scheme, optimizer: Optimizer) -> Scheme:
    """Return a scheme with another optimizer, and with the statistics that this one wants.

    Raises
    ------
    InputError
        If it is none, or wants other statistics than the scheme.

    Examples
    --------
    >>> with_optimizer(Scheme(name="mine", policy=WaitAll()), NaturalGradient(0.1)).stats
    'sum_of_squares'
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "step")):
        raise InputError(f"optimizer must be one like those of serverless_gc.optim, got {optimizer!r}")
    if not isinstance(optimizer, NaturalGradient):
        return replace(scheme, optimizer=optimizer)
    wanted: Stats = "sum_of_squares" if optimizer.kind == "diag" else "fisher"
    if scheme.stats not in {"", wanted}:
        raise InputError(f"scheme {scheme.name!r} needs {scheme.stats}: take NaturalGradient(kind='diag')")
    aggregator = AverageStats(scheme.aggregator, wanted)
    return replace(scheme, optimizer=optimizer, stats=wanted, aggregator=aggregator)


SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "sync": _sync,
    "k-sync": _k_sync,
    "k-batch-sync": _k_batch_sync,
    "k-async": _k_async,
    "k-batch-async": _k_batch_async,
    "adasync": _adasync,
    "anytime": _anytime,
    "anytime-minibatch": _anytime_minibatch,
    "non-blocking": _non_blocking,
    "cutoff": _cutoff,
    "gba": _gba,
    "gap-aware": _gap_aware,
    "hybrid-federated": _hybrid,
    "cada": _cada,
    "lag": _lag,
    "precision": _precision,
    "natural-gradient": _natural,
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
