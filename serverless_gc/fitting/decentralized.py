"""`minimize_decentralized`: every node steps on its own part of the data and shares its model with its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.data.gradient import GradientData
from serverless_gc.data.gradient_call import AnyLoss, stored_function
from serverless_gc.encode.parts import Parts
from serverless_gc.engine import Counts, Engine, Host, VirtualHost
from serverless_gc.errors import DeadlineExceeded, NotDecodableError
from serverless_gc.fitting.consensus import DecentralizedFit, Traffic
from serverless_gc.fitting.grouped import train_groups
from serverless_gc.fitting.node_schemes import NodePlan, dealt, grouping
from serverless_gc.fitting.node_tasks import NodeObjective, NodeTasks
from serverless_gc.fitting.placing import check_start
from serverless_gc.fitting.result import Account
from serverless_gc.fitting.unseen import Unseen
from serverless_gc.observe import Report, Span
from serverless_gc.observe.timeline import spans_of
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.prepare import check_whole
from serverless_gc.rounds.resources import Resources
from serverless_gc.types import Topology
from serverless_gc.worker import schemes

__all__ = ["minimize_decentralized", "minimize_decentralized_async"]


@homed
async def minimize_decentralized_async(
    data: GradientData,
    w0: Any,
    *,
    lr: Rate,
    method: str | schemes.Scheme = "push-sum",
    topology: str | Topology | None = None,
    rounds: int = 100,
    loss: AnyLoss = "squared",
    l2: float = 0.0,
    sample_weight: Any = None,
    batch: int | None = None,
    tau: int | None = 0,
    deadline: float | None = None,
    seed: int = 0,
    **params: Any,
) -> DecentralizedFit:
    """Minimize a mean loss by nodes that each know a part of the data and a few neighbours.

    A round of a node is one task: a worker reads the node's last model and its mail from the store, averages, makes a
    gradient step on the node's own partitions, and writes model and mail, each once. The driver says whose turn it is
    and sees no model before the end. So a round that is repeated, or done twice, or whose reply is lost changes
    nothing: in the same rounds the same models come out, bit for bit, on every backend and as in
    `serverless_gc.gossip.synchronous` (with ``tau=0``, and but for ``"lasgd"``).

    Parameters
    ----------
    data
        What `Session.encode` gave for a gradient code; its partitions are dealt to the nodes in order. With
        ``code="ignore-stragglers"`` there is one for each of ``n_workers``.
    w0
        Where every node begins: ``(n_cols,)``, ``(n_cols, c)``, or for a function of one's own any shape.
    lr
        Step length, or a function of the round's number ``0, 1, ...`` (with ``"aet"`` of the node's samples).
    method
        ``"push-sum"`` (Stochastic Gradient Push; ``debias=False``: D-PSGD), ``"row-average"``, ``"aet"`` (AET-SGD:
        ``a * i + b`` gradient steps in round ``i``, parameters ``a``, ``b``, ``cap``), ``"layup"`` (blocks of
        coordinates go to random peers, parameter ``layers``), ``"lasgd"`` (groups of ``group_size`` nodes step
        asynchronously on a model of their own, which the driver keeps, and average them after ``period`` steps each),
        or an object with the methods of `serverless_gc.worker.schemes.Scheme`, sent to the workers like a loss.
    topology
        ``"one-peer"`` (the default), ``"exponential"``, ``"ring"``, ``"directed-ring"``, ``"complete"``: one node for
        each partition; or an object of `serverless_gc.topologies` with at most as many nodes as there are partitions.
        With ``"layup"`` peers are drawn, unless a `LayerPeers` is given; with ``"lasgd"`` it may be a `Groups`.
    rounds
        Rounds of each node; with ``"lasgd"`` averages of the groups.
    loss, l2, sample_weight
        The objective, as for ``data.value_and_gradient`` with ``reduction="mean"``: nodes find the minimum over all
        rows, also if one has more of them than another.
    batch
        Rows that a gradient draws, with replacement; None for all rows of the node.
    tau
        How many rounds mail may be late. 0: a node waits for the mail of the round before. None: it never waits.
        Above 0 models depend on who was fast.
    deadline
        Seconds in which every node must finish its next round; the session's by default.
    seed
        Of drawn rows and peers.
    **params
        Parameters of the method.

    Returns
    -------
    DecentralizedFit
        The mean of the models, each model, and what it cost. What nodes stored is deleted as soon as no other needs
        it, the last of it behind the call.

    Raises
    ------
    InputError
        If an argument is wrong or does not go with another; nothing was stored or invoked.
    NotDecodableError, DeadlineExceeded
        If a node could not finish a round (in time), because of its loss or because its model is no longer finite.
    ConfigError
        If workers cannot run the loss.

    Notes
    -----
    Assran, Loizou, Ballas and Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019; Nguyen and
    Han, "AET-SGD", 2021; Fokam and others, "LayUp"; Avidor and Tal Israel, "Locally Asynchronous Stochastic Gradient
    Descent for Decentralised Deep Learning", 2022. Methods whose mail need not be of the same round (all but
    ``"push-sum"`` and ``"row-average"``) take mail of rounds to come as well when ``tau`` is not 0.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(160, 3))
    >>> with sgc.Session("simulated") as s:
    ...     data = s.encode(X, X @ [1.0, -2.0, 0.5], code="ignore-stragglers", n_workers=8)
    ...     fit = sgc.minimize_decentralized(data, np.zeros(3), lr=0.3, rounds=60)
    >>> fit.w.round(3), fit.models.shape, fit.disagreement < 0.01
    (array([ 1. , -2. ,  0.5]), (8, 3), True)
    """
    point = check_start(data, w0, "what nodes know")
    as_schedule(lr)
    rounds, seed = check_whole("rounds", rounds, 1), check_whole("seed", seed, 0)
    drawn = 0 if batch is None else check_whole("batch", batch, 1)
    if method == "lasgd":
        groups, period = grouping(topology, data.code.k, tau, params)
        plan, n = None, groups.n
    else:
        plan = NodePlan.of(method, topology, data.code.k, point.reshape(-1), lr, tau, rounds, seed, params)
        n = plan.n
    own = dealt(Parts(data.n_rows, data.code.k), n)
    async with data.partitions(point, loss=loss, l2=l2, sample_weight=sample_weight) as stored:
        scale, draws = n / data.n_rows, {"batch": drawn, "seed": seed}
        objective = NodeObjective(stored, own, {"shape": point.shape, "scale": scale, "l2": float(l2), **draws})
        if plan is None:
            return await train_groups(
                data, objective, groups, point, lr, period=period, averages=rounds, deadline=deadline, seed=seed
            )
        return await _gossip(data, objective, plan, point.shape, rounds, deadline, seed)


async def _gossip(
    data: GradientData,
    objective: NodeObjective,
    plan: NodePlan,
    shape: tuple[int, ...],
    rounds: int,
    deadline: float | None,
    seed: int,
) -> DecentralizedFit:
    """Have every node make its rounds, and read what they found."""
    res, kernel, n = await data.owner.resources(), plan.kernel, plan.n
    tasks = NodeTasks(res, kernel, objective, *await _named(kernel.scheme, res))
    policy = data.owner.policy_for(data.code, deadline, inner=plan.policy)
    engine = Engine(policy, n, max_attempts=res.max_attempts, seed=seed)
    whole, unseen = False, Unseen(res.host)
    try:
        await tasks.open()
        done = await _run(engine, res.host, tasks, rounds)
        models = (await tasks.models(rounds)).reshape(n, *shape)
        whole = True
    finally:
        await res.host.close(engine)
        res.chore(tasks.close(whole=whole))
    report = data.reported(replace(tasks.reported(done), code=plan.name, n_workers=n, k=data.code.k, rounds=rounds))
    steps = sum(len(kernel.rates(k)) for k in range(1, rounds + 1))
    return DecentralizedFit(
        w=models.mean(axis=0),
        models=models,
        rounds=rounds,
        method=plan.name,
        gradient_norms=np.array([[tasks.slopes[i, k] for i in range(n)] for k in range(1, rounds + 1)]),
        account=Account(updates=n * rounds).with_report(report, evaluations=n * steps, **unseen.news()),
        traffic=Traffic(**tasks.traffic),
        report=report.without_spans(),
    )


async def _named(scheme: schemes.Scheme, res: Resources) -> tuple[dict[str, Any], str]:
    """Say how tasks name a scheme, and store it if it is one of the user's."""
    known = schemes.described(scheme)
    if known is not None:
        return {"name": known[0], "params": known[1]}, ""
    stamp, key = await stored_function(res, scheme, "method")
    return dict(stamp), key


async def _run(engine: Engine, host: Host, tasks: NodeTasks, rounds: int) -> Report:
    """Run until every node has made its rounds; an engine's round is one more round of every node."""
    counts, seconds = Counts(), 0.0
    spans: list[Span] = []
    for number in range(1, rounds + 1):
        outcome = await host.run(engine, tasks.run)
        if outcome.error is not None:
            kind = DeadlineExceeded if outcome.error == "deadline" else NotDecodableError
            error = kind(f"round {number} of the nodes was given up: {outcome.reason}", failures=dict(outcome.failures))
            if tasks.attempts.traceback:
                error.add_note(f"The first failure of the loss, on its worker:\n{tasks.attempts.traceback}")
            raise error
        counts, seconds = counts + outcome.counts, seconds + outcome.duration
        spans += spans_of(outcome.records, tasks.number)
    simulated = isinstance(host, VirtualHost)
    return Report.of(counts, awaited=counts.used, elapsed=seconds, spans=tuple(spans), simulated=simulated)


minimize_decentralized = blocking(minimize_decentralized_async)
