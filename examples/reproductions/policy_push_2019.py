"""Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push", arXiv:1811.10792: gossip with weights that are pushed.

Nodes send shares of model and weight and evaluate gradients at their ratio: as good as an all-reduce on any digraph.
Averages of what is received, and shares without weights, are biased on irregular digraphs. A node waits for its
neighbours alone, or for what they sent some rounds ago.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from network_problems import net16

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.gossip import PushSum, RowAverage, synchronous
from serverless_gc.policies import GossipReady, KSync
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import FromAdjacency, OnePeerExponential, Ring

NODES, ROUNDS, SEEDS, LOOK = 16, 300, 2, 10
TIMED = 8  # nodes whose rounds are timed


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    mean_node: dict  # excess of the mean of all models, every ten rounds
    each_node: dict  # mean excess of the models
    final_mean_node: dict
    final_each_node: dict
    seconds: dict  # per round


def rate(t):
    """Length of step ``t``; the last round only mixes."""
    return 0.0 if t == ROUNDS - 1 else 0.05 if t < ROUNDS // 2 else 0.005


def irregular(seed):
    """Every node sends to itself, its successor, node 0 and up to three others."""
    rng, edges = np.random.default_rng(seed), np.zeros((NODES, NODES), bool)
    for i in range(NODES):
        edges[i, [(i + 1) % NODES, 0, *rng.choice(NODES, rng.integers(4), replace=False)]] = True
    return FromAdjacency(edges)


def all_reduce(problem):
    """Models after each round, one for all nodes."""
    x = np.zeros(problem.d)
    for t in range(ROUNDS):
        x = x - rate(t) * np.mean([problem.gradient(i, t + 1, x) for i in range(NODES)], axis=0)
        yield [x]


def gossip(kernel):
    """Models of the nodes after each round."""
    for states in synchronous(kernel, NODES, ROUNDS):
        yield [kernel.model(s) if isinstance(kernel, PushSum) else s[0] for s in states]


def excess_of(problem, rounds):
    """Excess of the mean node, and mean excess of the nodes, every so many rounds."""
    looked = [models for k, models in enumerate(rounds, 1) if k % LOOK == 0]
    each = [np.mean([problem.excess(x) for x in models]) for models in looked]
    return [problem.excess(np.mean(models, axis=0)) for models in looked], each


def seconds_per_round():
    policies = {
        "neighbours on a ring": GossipReady(Ring(TIMED), every=400),
        "one peer": GossipReady(OnePeerExponential(TIMED), every=400),
        "one peer, 1 round late": GossipReady(OnePeerExponential(TIMED), 1, every=400),
        "one peer, 3 rounds late": GossipReady(OnePeerExponential(TIMED), 3, every=400),
    }
    host = VirtualHost(Exponential(1.0), seed=3)
    barrier = len(list(host.simulate(Engine(KSync(TIMED), TIMED, keep_records=False), 1200)))
    seconds = {"all": host.now / barrier}
    for name, policy in policies.items():
        host = VirtualHost(Exponential(1.0), seed=3)
        closes = len(list(host.simulate(Engine(policy, TIMED, keep_records=False), 3)))
        seconds[name] = host.now / (400 * closes)
    return seconds


def figures():
    tables = {}
    for seed in range(SEEDS):
        problem = net16(batch=10, seed=seed)
        common, digraph = (problem.gradient, np.zeros(problem.d), rate), irregular(seed)
        methods = {
            "all-reduce": all_reduce(problem),
            "push, one peer": gossip(PushSum(OnePeerExponential(NODES), *common)),
            "push, irregular": gossip(PushSum(digraph, *common)),
            "averages of rows": gossip(RowAverage(digraph, *common)),
            "push without weights": gossip(PushSum(digraph, *common, debias=False)),
        }
        for name, rounds in methods.items():
            tables.setdefault(name, []).append(excess_of(problem, rounds))
    both = {name: np.mean(table, axis=0) for name, table in tables.items()}
    mean_node, each_node = ({name: table[part] for name, table in both.items()} for part in (0, 1))
    finals = ({name: values[-1] for name, values in part.items()} for part in (mean_node, each_node))
    return Figures(mean_node, each_node, *finals, seconds_per_round())


def picture(found, path):
    rounds = np.arange(LOOK, ROUNDS + 1, LOOK)
    draw(
        path,
        f"Stochastic Gradient Push 2019: {NODES} nodes, each with data of its own",
        [
            Panel(
                title,
                "loss above the least",
                lines={name: (rounds, excess) for name, excess in part.items()},
                x="rounds",
                log=True,
                legend=part is found.mean_node,
            )
            for title, part in (("mean of the models", found.mean_node), ("each model, mean", found.each_node))
        ]
        + [Panel(f"whom {TIMED} nodes wait for", "seconds per round", bars=found.seconds)],
    )


if __name__ == "__main__":
    main(figures, picture)
