"""Ye, Abbe, "Communication-Computation Efficient Gradient Coding", arXiv:1802.03475: shorter messages for more work.

A task computes ``d`` partitions and sends an ``m``-th of a gradient; any ``n - s`` suffice, with ``d = s + m``. Where
sending is slow the best ``m`` is above 1, the best that earlier codes could do.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main

from serverless_gc.codes import get
from serverless_gc.codes.gradient import YeAbbeCode
from serverless_gc.plan import simulated_rounds
from serverless_gc.stragglers import ShiftedExponential
from serverless_gc.types import Timing

WORKERS, ROUNDS = 8, 200
COMPUTE, SEND = ShiftedExponential(shift=1.6, rate=0.8), ShiftedExponential(shift=6.0, rate=0.1)


@dataclass(frozen=True)
class Link:
    """A task computes for so long a partition, and sends for so long a gradient, of which it sends a part."""

    part: float

    def sample(self, slot, k, work, rng):  # noqa: ARG002 - the same law for all
        """Draw the times of one task."""
        return Timing(compute=work * COMPUTE.draw(rng), write=self.part * SEND.draw(rng))


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    seconds: dict  # by (d, m)
    best: dict
    message_length: dict
    decode_error: float


def figures():
    seconds = {}
    for d in range(1, WORKERS + 1):
        for m in range(1, min(d, 4) + 1):
            code = YeAbbeCode(WORKERS, WORKERS, stragglers=d - m, fold=m)
            rounds = list(simulated_rounds(code, ROUNDS, delay=Link(1 / m), stragglers=0.0, seed=1))
            seconds[d, m] = rounds[-1].t_close / ROUNDS
    uncoded = seconds[1, 1]
    folded_from = min((d for d in seconds if d[1] > 1), key=seconds.__getitem__)
    plain_from = min((d for d in seconds if d[1] == 1), key=seconds.__getitem__)
    best = {
        "uncoded": uncoded,
        f"whole messages, d={plain_from[0]}": seconds[plain_from],
        f"d={folded_from[0]}, m={folded_from[1]}": seconds[folded_from],
    }
    code = get("ye-abbe", n_workers=WORKERS, load=folded_from[0], fold=folded_from[1])
    problem = Problem.drawn(columns=24)
    parts = problem.gradients(np.ones(24), WORKERS)
    arrived = list(range(folded_from[0] - folded_from[1], WORKERS))
    sent = code.encode(parts, messages=arrived)
    total, _ = code.decode(dict(zip(arrived, sent, strict=True)))
    exact = parts.sum(axis=0)
    return Figures(
        seconds,
        best,
        {"gradient": parts.shape[1], "message": sent.shape[1]},
        float(np.linalg.norm(total[:24] - exact) / np.linalg.norm(exact)),
    )


def picture(found, path):
    lines = {}
    for m in (1, 2, 3, 4):
        loads = range(m, WORKERS + 1)
        lines[f"messages of 1/{m}"] = (loads, [found.seconds[d, m] for d in loads])
    draw(
        path,
        f"Ye, Abbe 2018: {WORKERS} workers on slow links",
        [
            Panel("load against message length", "seconds per iteration", lines=lines, x="partitions of a worker, d"),
            Panel("best of each kind", "seconds per iteration", bars=found.best),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
