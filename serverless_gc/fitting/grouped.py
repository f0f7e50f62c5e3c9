"""LASGD over workers: groups of nodes train a model each, asynchronously, and average their models now and then.

The driver is every group's parameter server, so that what a worker does is the gradient of one node at its group's
model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from serverless_gc.codes.gradient.ignore import IgnoreStragglersCode
from serverless_gc.data.gradient import GradientData
from serverless_gc.engine import Engine
from serverless_gc.fitting.consensus import DecentralizedFit, Traffic
from serverless_gc.fitting.gradient_tasks import GradientTasks
from serverless_gc.fitting.node_tasks import NodeObjective
from serverless_gc.fitting.result import Account
from serverless_gc.fitting.training import Training
from serverless_gc.fitting.unseen import Unseen
from serverless_gc.gossip import GroupedSGD, GroupGradients
from serverless_gc.observe import Report
from serverless_gc.optim.schedules import Rate
from serverless_gc.policies import LocallyAsync
from serverless_gc.rounds.jobs import Job
from serverless_gc.topologies import Groups
from serverless_gc.types import Array

__all__ = ["train_groups"]


async def train_groups(
    data: GradientData,
    objective: NodeObjective,
    groups: Groups,
    w0: Array,
    lr: Rate,
    *,
    period: int,
    averages: int,
    deadline: float | None,
    seed: int,
) -> DecentralizedFit:
    """Train until the groups have averaged their models so many times.

    Parameters
    ----------
    data
        Where the objective is stored.
    objective
        What the nodes minimize.
    groups
        Nodes in groups.
    w0
        Where every group begins, of any shape.
    lr
        Step length, or a function of the number of rounds of the engine so far, each an update or a few.
    period, averages
        Updates of a group between two averages, and how many averages there are.
    deadline
        Seconds in which the next update must come; the session's by default.
    seed
        Of the engine.

    Raises
    ------
    NotDecodableError, DeadlineExceeded
        If a group gets no gradients any more (in time).
    """
    res, code = await data.owner.resources(), IgnoreStragglersCode(objective.n, objective.n)
    job = Job(
        code=code,
        label="gradient",
        kernel="node-gradient",
        blocks=lambda spec: objective.blocks(spec.slot),
        shape=(w0.size,),
        dtype=np.dtype(np.float64),
        params=lambda spec: {**objective.task_params(spec.slot), "draw": spec.payload["version"]},
        stored=np.dtype(np.float64),
        finish=lambda total: total,
    )
    members = groups.groups()
    tasks = GradientTasks(res, job, row=lambda task: int(task.payload["group"]))
    engine = Engine(
        data.owner.policy_for(code, deadline, inner=LocallyAsync(members, period)),
        objective.n,
        max_attempts=res.max_attempts,
        seed=seed,
    )
    training = Training(
        engine,
        res.host,
        tasks.run,
        np.tile(w0.reshape(-1), (len(members), 1)),
        aggregator=GroupGradients(),
        optimizer=GroupedSGD(lr, period),
        seed=seed,
    )
    account, report = Account(updates=averages * period * len(members)), Report(rounds=0)
    norms, every = np.zeros((averages, len(members))), period * len(members)
    made, unseen = 0, Unseen(res.host)
    try:
        while made < averages * every:
            step = await anext(training.steps(1))
            for group in np.flatnonzero(step.update.meta["updates"]):
                norms[made // every, group] = np.linalg.norm(step.update.direction[group])
            made += int(step.update.n_eff)
            cost = tasks.report(step.outcome.counts, step.outcome)
            account, report = account.with_report(cost, step.staleness), report.merge(cost.without_spans())
    finally:
        await training.close()
        await tasks.close()
    given_up = tasks.report(engine.counts)
    account = account.with_report(given_up, (), evaluations=0, **unseen.news())
    models = training.x.reshape(len(members), *w0.shape)
    return DecentralizedFit(
        w=models.mean(axis=0),
        models=models,
        rounds=averages,
        method="lasgd",
        gradient_norms=norms,
        account=replace(account, evaluations=account.used),
        traffic=Traffic(),
        report=data.reported(report.merge(given_up)),
    )
