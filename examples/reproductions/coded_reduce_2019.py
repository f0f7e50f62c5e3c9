"""Reisizadeh, Prakash, Pedarsani, Avestimehr, "CodedReduce", arXiv:1902.01981: a tree against one master.

A node receives one message after another. One master of N workers receives N - s of them; in a tree of two levels no
node receives more than n - s, and for the same share of stragglers every worker computes less.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes.gradient import CodedReduceCode
from serverless_gc.stragglers import ShiftedExponential

ROUNDS, RECEIVE = 400, 0.02  # seconds to receive one message
SLOW, SLOWDOWN = 0.05, 30
LAW = ShiftedExponential(shift=1.0, rate=1.0)  # of computing all the data


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    load: dict
    seconds: dict
    by_size: dict
    tree_error: float


def received(times, needed):
    """When so many of these messages have been received, one at a time, in order of arrival; per row."""
    done = np.zeros(len(times))
    for column in np.sort(times, axis=1)[:, :needed].T:
        done = np.maximum(done, column) + RECEIVE
    return done


def one_master(workers, stragglers, rng):
    share = (stragglers + 1) / workers
    return received(share * drawn(rng, ROUNDS, workers), workers - stragglers)


def tree(code, rng):
    n, needed = code.branching, code.branching - code.tolerated
    share = code.units_each / code.k
    below = received(share * drawn(rng, ROUNDS * n, n), needed).reshape(ROUNDS, n)
    own = share * drawn(rng, ROUNDS, n)
    return received(np.maximum(own, below), needed)


def drawn(rng, *shape):
    times = LAW.shift + rng.standard_exponential(shape) / LAW.rate
    return np.where(rng.random(shape) < SLOW, SLOWDOWN * times, times)


def figures():
    rng = np.random.default_rng(0)
    code = CodedReduceCode.tree(branching=5, depth=2, stragglers=2)
    workers, share = code.n_workers, code.tolerated / code.branching
    lost = round(share * workers)
    seconds = {
        "uncoded, one master": float(one_master(workers, 0, rng).mean()),
        "gradient code, one master": float(one_master(workers, lost, rng).mean()),
        "CodedReduce tree": float(tree(code, rng).mean()),
    }
    by_size = {}
    for n in (3, 5, 7, 10, 14):
        grown = CodedReduceCode.tree(branching=n, depth=2, stragglers=round(0.4 * n))
        flat = one_master(grown.n_workers, round(0.4 * grown.n_workers), rng).mean()
        by_size[grown.n_workers] = float(flat / tree(grown, rng).mean())
    g = rng.normal(size=(code.k, 7))
    dead = {0, 3} | {child for node in (1, 2, 4) for child in list(code.children(node))[1:3]}
    total = code.aggregate(g, dead)
    return Figures(
        {"gradient code": (lost + 1) / workers, "CodedReduce": code.units_each / code.k},
        seconds,
        by_size,
        float(np.linalg.norm(total - g.sum(axis=0)) / np.linalg.norm(g.sum(axis=0))),
    )


def picture(found, path):
    line = {"one master / tree": (list(found.by_size), list(found.by_size.values()))}
    draw(
        path,
        "CodedReduce 2019: 40 % of the workers of every parent may straggle",
        [
            Panel("30 workers", "seconds per iteration", bars=found.seconds),
            Panel("speed-up with size", "times faster than one master", lines=line, x="workers"),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
