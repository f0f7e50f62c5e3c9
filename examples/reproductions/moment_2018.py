"""Maity, Rawat, Mazumdar, "Robust Gradient Descent via Moment Encoding with LDPC Codes", arXiv:1805.08327.

Rows of ``X.T X`` are encoded by an LDPC code; a few rounds of peeling after a deadline, and what is not known then is
left out of the step. That is descent along random coordinates, and ends at the solution; dropped data do not.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main

from serverless_gc.codes.peeling.density import density_evolution
from serverless_gc.codes.peeling.ldpc import LDPCCode
from serverless_gc.codes.peeling.moment import interleave, partial_gradient

WORKERS, BLOCKS, STEPS, LOST = 40, 20, 200, 0.3
DEADLINE = -np.log(LOST)  # by which so many are lost, where delays are exponential with mean 1
ALL = np.sum(1 / np.arange(1, WORKERS + 1))  # expected seconds until all have answered
ROUNDS, SHOWN = range(6), 240  # rounds of peeling, seconds of training drawn


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    excess: dict  # over the steps
    seconds_to_1e_6: dict
    final: dict
    unknown: dict  # share of the blocks that stay unknown after rounds of peeling, long code
    incomplete: float  # share of the steps in which two rounds left something out


def descend(problem, gradient):
    """Excess after each step; ``gradient(w, lost)`` knows which workers are lost."""
    rng = np.random.default_rng(1)
    w, excess = np.zeros(problem.X.shape[1]), []
    for _ in range(STEPS):
        w = w - problem.step * gradient(w, rng.random(WORKERS) < LOST) / len(problem.y)
        excess.append(problem.loss(w) - problem.least)
    return np.array(excess)


def unknown_shares():
    """Of a long regular code, and of the theory of still longer ones."""
    code, rng = LDPCCode(1000, 500, ensemble="regular"), np.random.default_rng(1)
    measured = []
    for _ in range(20):
        arrived = np.flatnonzero(rng.random(1000) >= LOST).tolist()
        measured.append([len(code.unknown_after(arrived, d)) / 500 for d in ROUNDS])
    theory = density_evolution(LOST, 3, 6, len(ROUNDS)).symbols[: len(ROUNDS)]
    return {"1000 workers": np.mean(measured, axis=0), "density evolution": np.asarray(theory)}


def figures():
    problem = Problem.drawn(seed=4, drift=0.5)
    moments, b = problem.X.T @ problem.X, problem.X.T @ problem.y
    code = LDPCCode(WORKERS, BLOCKS, seed=1)
    coded = code.encode(interleave(moments, BLOCKS))
    left_out = []

    def anytime(rounds):
        def gradient(w, lost):
            found = code.decode_anytime({j: coded[j] @ w for j in np.flatnonzero(~lost).tolist()}, rounds=rounds)
            if rounds == 2:
                left_out.append(bool(found.unknown))
            return partial_gradient(found.blocks, b, found.unknown)

        return gradient

    def dropped(w, lost):
        return problem.gradients(w, WORKERS)[~lost].sum(axis=0) / (1 - LOST)

    def exact(w, _lost):
        return moments @ w - b

    excess = {
        "wait for all": descend(problem, exact),
        "data dropped": descend(problem, dropped),
        "moments, no peeling": descend(problem, anytime(0)),
        "moments, 2 rounds": descend(problem, anytime(2)),
    }
    pace = {name: ALL if name == "wait for all" else DEADLINE for name in excess}
    return Figures(
        excess,
        {
            name: pace[name] * (1 + np.argmax(each <= 1e-6)) if (each <= 1e-6).any() else np.inf
            for name, each in excess.items()
        },
        {name: float(each[-1]) for name, each in excess.items()},
        unknown_shares(),
        float(np.mean(left_out)),
    )


def picture(found, path):
    lines = {}
    for name, excess in found.excess.items():
        seconds = np.arange(1, STEPS + 1) * (ALL if name == "wait for all" else DEADLINE)
        lines[name] = seconds[seconds < SHOWN], np.maximum(excess, 1e-12)[seconds < SHOWN]
    draw(
        path,
        f"Moment encoding 2018: {WORKERS} workers, {100 * LOST:.0f} % late",
        [
            Panel(
                "training",
                "loss above the least",
                lines=lines,
                x="seconds, expected",
                log=True,
            ),
            Panel(
                "peeling",
                "share of blocks unknown",
                lines={name: (np.array(ROUNDS), shares) for name, shares in found.unknown.items()},
                x="rounds",
                log=True,
            ),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
