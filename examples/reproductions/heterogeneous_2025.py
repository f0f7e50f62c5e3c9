"""Song, Choi, "Approximate Gradient Coding for Distributed Learning with Heterogeneous Stragglers", arXiv:2510.22539.

Workers straggle with known, different probabilities. Weights by these are unbiased with less variance than equal ones,
and giving reliable workers what matters lowers it further; training is less noisy.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main

from serverless_gc.codes import get

WORKERS, LOAD, ROUNDS = 20, 2, 150
CHANCE = np.linspace(0.02, 0.6, WORKERS)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    error: dict  # scheme -> mean squared error, by its closed form
    measured: dict
    bias: dict  # largest departure of a mean weight from one, measured
    excess: dict
    floors: dict


def figures():
    cyclic = [[j, (j + 1) % WORKERS] for j in range(WORKERS)]
    around = get("heterogeneous", n_workers=WORKERS, p=CHANCE, placement=cyclic)
    chosen = get("heterogeneous", n_workers=WORKERS, p=CHANCE, load=LOAD)
    # What an arrived worker adds to the weight of each partition; equal weights are unbiased, too.
    split = (around.coefficients > 0) / (around.coefficients > 0).sum(axis=0)
    schemes = {
        "equal weights": split / (1 - CHANCE)[:, None],
        "weights by chance": around.coefficients,
        "placement by chance, too": chosen.coefficients,
    }
    error = {
        "equal weights": float((CHANCE / (1 - CHANCE) @ split**2).sum()),
        "weights by chance": around.unbiased_error,
        "placement by chance, too": chosen.unbiased_error,
    }
    problem = Problem.drawn(seed=8, drift=0.5)
    measured, bias, excess = {}, {}, {}
    arrivals = np.random.default_rng(3).random((2000, WORKERS)) >= CHANCE
    for name, adds in schemes.items():
        alpha = arrivals @ adds
        measured[name] = float(((alpha - 1) ** 2).sum(axis=1).mean())
        bias[name] = float(np.abs(alpha.mean(axis=0) - 1).max())
        excess[name] = descend(problem, alpha[:ROUNDS])
    assert np.allclose(chosen.weights(np.flatnonzero(arrivals[0]).tolist(), "unbiased").alpha, arrivals[0] @ adds)
    return Figures(error, measured, bias, excess, {name: float(run[-50:].mean()) for name, run in excess.items()})


def descend(problem, alpha):
    """Gradient descent; in round ``t`` partition ``j`` counts ``alpha[t, j]`` times."""
    w = np.zeros(problem.X.shape[1])
    excess = []
    for weights in alpha:
        w = w - 0.5 * problem.step / len(problem.y) * weights @ problem.gradients(w, WORKERS)
        excess.append(problem.loss(w) - problem.least)
    return np.array(excess)


def picture(found, path):
    lines = {name: (range(ROUNDS), run) for name, run in found.excess.items()}
    draw(
        path,
        f"Heterogeneous stragglers 2025: {WORKERS} workers, chances of 2 % to 60 %",
        [
            Panel("unbiased decoders", "mean squared error", bars=found.error),
            Panel("training", "loss above the least", lines, x="iteration", log=True),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
