"""Fokam, Nazeer, Koenig, Kappel, Subramoney, "LayUp", arXiv:2410.05985: every layer goes to a random peer at once.

Nodes never wait: each pushes the blocks of its model to peers that merge them, against a barrier in each step and nodes
that do not talk. A linear model's "layers" are blocks of coordinates; the weights of a merge are our reconstruction.
"""

import asyncio
from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from network_problems import Lin20, MemoryNodes, SometimesSlow, nothing, still, trained

from serverless_gc.aggregate import Mean
from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.gossip import LayUp, PushSum
from serverless_gc.optim import SGD
from serverless_gc.policies import GossipReady, WaitAll
from serverless_gc.topologies import FromAdjacency, LayerPeers

NODES, LAYERS, STEP, SEEDS = 16, 4, 0.3, 3
TIMES, CHECKPOINTS = np.array([1, 2, 4, 6, 8, 11, 14, 17, 20, 25, 30, 37, 44, 51, 58]), (20, 58)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict
    at_checkpoints: dict


def gossip(scheme, topology, problem, seed):
    """Excess of the mean model and mean excess of the nodes, each with the mail that has reached it."""
    nodes = MemoryNodes(scheme(topology, problem.gradient, np.zeros(problem.d), STEP))
    merging = scheme(topology, nothing, np.zeros(problem.d), still)
    left, found = list(TIMES), []
    host = VirtualHost(SometimesSlow(), seed=seed)

    async def execute(task):
        while left and host.now > left[0]:
            models = [merging.step(i, k + 1, s, nodes.waiting(i))[0] for i, (k, s) in nodes.states.items()]
            models += [np.zeros(problem.d)] * (NODES - len(models))  # these have done nothing yet
            found.append((problem.excess(np.mean(models, axis=0)), np.mean([problem.excess(m) for m in models])))
            left.pop(0)
        return await nodes.run(task)

    async def run():
        engine = Engine(GossipReady(topology, None, ahead=True), NODES, keep_records=False)
        while left:
            await host.run(engine, execute)

    asyncio.run(run())
    return np.transpose(found)


def barrier(problem, seed):
    """Excess where every step waits for all."""
    steps = trained(
        WaitAll(), np.zeros(problem.d), Mean(), SGD(STEP), problem.gradient, SometimesSlow(), slots=NODES,
        until=TIMES[-1], seed=seed,
    )  # fmt: skip
    times = [0.0, *(t for t, _ in steps)]
    models = [np.zeros(problem.d), *(x for _, x in steps)]
    return [problem.excess(models[np.searchsorted(times, t, side="right") - 1]) for t in TIMES]


def figures():
    tables = []
    for seed in range(SEEDS):
        problem = Lin20(batch=8, seed=seed)
        mean, each = gossip(LayUp, LayerPeers(NODES, LAYERS, seed=seed), problem, seed)
        alone = gossip(PushSum, FromAdjacency(np.zeros((NODES, NODES))), problem, seed)[1]
        tables.append((barrier(problem, seed), alone, each, mean))
    names = ("barrier", "no gossip, a node", "LayUp, a node", "LayUp, mean model")
    excess = dict(zip(names, np.mean(tables, axis=0), strict=True))
    return Figures(excess, {name: values[np.searchsorted(TIMES, CHECKPOINTS)] for name, values in excess.items()})


def picture(found, path):
    lines = {name: (TIMES, excess) for name, excess in found.excess.items()}
    draw(
        path,
        f"LayUp 2024: {NODES} nodes, 5 % of tasks slow",
        [Panel(f"{LAYERS} blocks of the model", "loss above the least", lines=lines, x="seconds", log=True)],
    )


if __name__ == "__main__":
    main(figures, picture)
