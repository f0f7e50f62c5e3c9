"""`minimize_stochastic`: gradients on mini-batches or local steps of workers, under any rule of waiting."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

from serverless_gc.aggregate import PrecisionWeightedMean
from serverless_gc.background import blocking, homed
from serverless_gc.codes.gradient.ignore import IgnoreStragglersCode
from serverless_gc.data.gradient import GradientData
from serverless_gc.data.gradient_call import AnyLoss
from serverless_gc.encode.parts import Parts
from serverless_gc.engine import Engine, milestones
from serverless_gc.errors import InputError
from serverless_gc.fitting.placing import Placing, check_start
from serverless_gc.fitting.result import Fit, Iterate
from serverless_gc.fitting.sample_tasks import Compression, SampleTasks, Sampling
from serverless_gc.fitting.sampling import StochasticLoop
from serverless_gc.fitting.schemes import Scheme, find_scheme, with_optimizer
from serverless_gc.fitting.training import Training
from serverless_gc.optim import SGD
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.policies import Anytime, Deadline, Groups
from serverless_gc.prepare import check_operand, check_seconds, check_whole
from serverless_gc.types import Compressor, Optimizer, WaitPolicy
from serverless_gc.worker import losses

__all__ = ["minimize_stochastic", "minimize_stochastic_async"]


@homed
async def minimize_stochastic_async(
    data: GradientData,
    w0: Any,
    *,
    lr: Rate,
    scheme: str | Scheme = "k-sync",
    rounds: int = 100,
    batch: int | None = None,
    loss: AnyLoss = "squared",
    l2: float = 0.0,
    sample_weight: Any = None,
    optimizer: Optimizer | None = None,
    compressor: Compressor | None = None,
    shards: Literal["drawn", "fixed"] | None = None,
    n_workers: int | None = None,
    seconds: float | None = None,
    deadline: float | None = None,
    seed: int = 0,
    callback: Callable[[Iterate], Any] | None = None,
    progress: bool = False,
    **params: Any,
) -> Fit:
    """Minimize a mean loss by stochastic gradients of workers, waiting for as many as a scheme says.

    Parameters
    ----------
    data
        What `Session.encode` gave for a gradient code; with ``code="ignore-stragglers"`` there is one partition for
        each of ``n_workers``.
    w0
        Where to begin: ``(n_cols,)``, ``(n_cols, c)``, or for a function of one's own any shape.
    lr
        Step length, or a function of the update's number ``0, 1, ...``.
    scheme
        A name, see the notes, or a `Scheme` composed of plug-ins.
    rounds
        Updates of the model.
    batch
        Rows of a mini-batch, drawn with replacement; None for all rows of the partition.
    loss, l2, sample_weight
        The objective, as for ``data.value_and_gradient`` with ``reduction="mean"``.
    optimizer
        Makes the steps, see `serverless_gc.optim`; by default what belongs to the scheme, with step length ``lr``.
    compressor
        Makes results smaller on the wire, such as `serverless_gc.policies.DitheredUniform`, or an object of one's own
        with ``encode(g, seed) -> bytes`` and ``decode(data, seed) -> array``; it is sent along like a loss.
    shards
        ``"drawn"``: every task is about a partition drawn by its seed, so that a slow slot does not tilt the objective.
        ``"fixed"``: each slot has partitions of its own. By default what belongs to the scheme.
    n_workers
        Number of slots; as many as the data have workers if None.
    seconds
        Stop after so many seconds, on the clock of the backend.
    deadline
        Seconds in which each update must come; the session's by default.
    seed
        Of what tasks draw. The same results in the same order give the same bits; so does a repeated task.
    callback
        Told each update, in a thread of its own; stops the run by returning True. Values and gradients are those of the
        update's samples.
    progress
        Show a bar.
    **params
        Parameters of the scheme.

    Returns
    -------
    Fit
        ``values`` are mean losses of the samples of each update, that before if there were none, NaN where a function
        of one's own does not tell; ``gradient`` is the direction of the last update.

    Raises
    ------
    InputError
        If an argument is wrong or does not go with another; nothing was stored or invoked.
    NotDecodableError, DeadlineExceeded
        If too few results came for an update (in time), because of the loss for example.
    ConfigError
        If workers cannot run the loss.

    Notes
    -----
    Schemes and their parameters; ``k`` is how many results end a round:

    ``"sync"``, ``"k-sync"``, ``"k-batch-sync"``, ``"k-async"``, ``"k-batch-async"`` (``k``), ``"adasync"`` (``k``,
    ``interval``, ``floor``, ...: `serverless_gc.policies.AdaSync`)
        The rest of the tasks are given up, or used later, stale; with "batch" a slot goes on at once. AdaSync waits for
        more as the loss falls. Dutta, Joshi, Ghosh, Dube and Nagpurkar 2018; Dutta, Wang and Joshi 2021.
    ``"cutoff"`` (``predictor``, ``least``)
        The number of results that a forecast finds best. Teng and Wood 2018.
    ``"anytime"`` (``compute_seconds``, ``guard``), ``"anytime-minibatch"`` (also ``alpha``)
        Local steps, or gradients at one point, until a time; means weighted by the work done; the second with dual
        averaging whose first step is ``lr``. Ferdinand and Draper 2018; Ferdinand, Al-Lawati, Draper and Nokleby 2019.
    ``"non-blocking"`` (``mini_batches``, ``k``)
        Workers publish each mini-batch; when ``k`` have done all of theirs, those of the others count as well. He and
        Dube 2022.
    ``"gba"`` (``k``, ``tolerance``, ``decay``), ``"gap-aware"`` (``mode``, ``elementwise``)
        Asynchronous; global batches by tokens, or gradients divided by how far the model moved. Su and others 2022;
        Barkai, Hakimi and Schuster 2020.
    ``"hybrid-federated"`` (``k``, ``local_steps``, ``compensation``, ``curvature``, ``adaptive``)
        Local steps on fixed shards, averaged by their rows; late models are merged with a correction. With ``k`` the
        number of slots it is federated averaging. Li, Qu, Tang and Lu 2021.
    ``"cada"``, ``"lag"`` (``group_size``, ``weight``, ``window``, ``max_age``; ``"lag"`` also ``smoothness``)
        The first of each group answers, and a table of gradients is stepped along by AMSGrad. Workers send only what
        changed; or groups whose gradient cannot have changed are not asked. Zhu, Zhang, Simeone and Wang 2022.
    ``"precision"`` (``k``, ``memory``), ``"natural-gradient"`` (``k``, ``kind``, ``damping``, ``memory``)
        Slots count by the inverse of their noise; steps are measured by the gradients of single rows. Ofner, Ratul,
        Ghosh and Stober 2021.

    On the simulated clock the law of delays gives the seconds of a task, or of one mini-batch where work goes on until
    a time. On a real one such a worker looks at its own clock: by what it is ahead of the driver's it does less, by
    what it is behind it is late. The results of a round give the same bits in whatever order they arrive.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(160, 3))
    >>> with sgc.Session("simulated") as s:
    ...     data = s.encode(X, X @ [1.0, -2.0, 0.5], code="ignore-stragglers", n_workers=8)
    ...     fit = sgc.minimize_stochastic(data, np.zeros(3), scheme="k-async", k=2, lr=0.1, batch=5, rounds=300)
    >>> fit.w.round(2), fit.account.used, fit.account.samples
    (array([ 1. , -2. ,  0.5]), 600, 3000.0)
    """
    point = check_start(data, w0, "what tasks draw from")
    rate = as_schedule(lr)
    n = data.code.n_workers if n_workers is None else check_whole("n_workers", n_workers, 1)
    rounds, seed = check_whole("rounds", rounds, 1), check_whole("seed", seed, 0)
    rows = 0 if batch is None else check_whole("batch", batch, 1)
    if seconds is not None:
        check_seconds("seconds", seconds)
    chosen = _with_options(find_scheme(scheme, n, lr, params), shards, optimizer, compressor, rows)
    rule = chosen.rule
    hands = len(rule.groups) if isinstance(rule, Groups) else n
    placing = Placing.of(chosen.shards, Parts(data.n_rows, data.code.k), hands)
    policy = data.owner.policy_for(IgnoreStragglersCode(n, n), deadline, inner=chosen.policy)
    _check_policy(policy, rule, n)
    if isinstance(chosen.aggregator, PrecisionWeightedMean) and (rows or min(placing.rows)) < 2:
        raise InputError("one row has no variance, by which results are weighted: take batch=2 or more")
    own = callable(loss) and not isinstance(loss, losses.Loss)
    if not own:
        check_operand(point, data.n_cols, "w0")
    res = await data.owner.resources()
    if isinstance(rule, Anytime):
        _check_time(rule, policy, res.attempt_timeout)
    async with data.partitions(point, loss=loss, l2=l2, sample_weight=sample_weight) as stored:
        tasks = SampleTasks(
            res,
            chosen,
            Sampling(
                objective=stored,
                placing=placing,
                shape=point.shape,
                batch=rows,
                l2=float(l2),
                rate=rate,
                value="if-given" if own and not chosen.needs_loss else True,
                compression=None if compressor is None else await Compression.of(compressor, res),
            ),
            n,
        )
        published = milestones(chosen.units, 1) if chosen.task == "mini-batches" else ()
        engine = Engine(policy, n, max_attempts=res.max_attempts, seed=seed, milestones=lambda _: published)
        training = Training(
            engine,
            res.host,
            tasks.run,
            point,
            aggregator=chosen.aggregator,
            optimizer=SGD(lr) if chosen.optimizer is None else chosen.optimizer,
            transforms=chosen.transforms,
            seed=seed,
            watch=tasks.watch,
        )
        loop = StochasticLoop(
            data, training, tasks, chosen.name, rounds=rounds, seconds=seconds, callback=callback, progress=progress
        )
        return await loop.run()


def _with_options(
    scheme: Scheme,
    shards: Literal["drawn", "fixed"] | None,
    optimizer: Optimizer | None,
    compressor: Compressor | None,
    batch: int,
) -> Scheme:
    """Return the scheme with what a call says otherwise; raise `InputError` if that does not go with it."""
    if shards is not None:
        if scheme.shards == "grouped":
            raise InputError("shards= does not go with groups, whose members share the partitions of their group")
        scheme = replace(scheme, shards=shards)
    if optimizer is not None:
        scheme = with_optimizer(scheme, optimizer)
    if compressor is not None:
        if not (hasattr(compressor, "encode") and hasattr(compressor, "decode")):
            raise InputError(f"compressor must have the methods encode and decode, got {compressor!r}")
        if scheme.task == "mini-batches":
            raise InputError("compressor= does not go with partial results, which are added up as they come")
    if scheme.task == "mini-batches" and not batch:
        raise InputError(f"scheme {scheme.name!r} splits its work into mini-batches: say how many rows, batch=")
    return scheme


def _check_policy(policy: WaitPolicy, rule: WaitPolicy, n: int) -> None:
    """Raise `InputError` if a policy cannot do with so many slots; a copy of it opens a round."""
    if isinstance(rule, Groups) and (most := max(map(max, rule.groups))) >= n:
        raise InputError(f"groups name slot {most}, and there are {n}: give n_workers=, or other groups")
    try:
        copy = deepcopy(policy)
    except TypeError:  # one that cannot be copied says it when it runs
        return
    Engine(copy, n).open(0.0)


def _check_time(rule: Anytime, policy: WaitPolicy, patience: float) -> None:
    """Raise `InputError` if a round, or an attempt, would be given up before its results can be there."""
    if rule.seconds >= patience:
        raise InputError(
            f"workers cannot compute for {rule.seconds:g} s: here an attempt is given up after {patience:g} s"
        )
    needed = rule.seconds + rule.guard
    if isinstance(policy, Deadline) and policy.seconds < needed:
        raise InputError(
            f"a round may last {needed:g} s, in which workers compute for {rule.seconds:g} s, but its deadline is "
            f"{policy.seconds:g} s: give a longer deadline=, or less time to compute"
        )


minimize_stochastic = blocking(minimize_stochastic_async)
