"""Charles, Papailiopoulos, "Gradient Coding Using the Stochastic Block Model", arXiv:1805.10378.

Between repetition (blocks) and chance: the more of the load lies within hidden blocks, the better against random
stragglers, and the worse against an adversary who has found the blocks.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes.gradient import StochasticBlockCode

SIZE, LOAD, BLOCKS = 100, 5, 4
WITHIN = (0.05, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    random: dict  # by probability within a block: mean squared error, a fifth of the workers missing
    adversary: dict  # the same number, whole blocks
    ensemble: dict  # one step: measured over the closed form


def figures(draws=40):
    rng = np.random.default_rng(0)
    random, adversary, ensemble = {}, {}, {}
    for within in WITHIN:
        found = []
        for seed in range(draws):
            code = StochasticBlockCode(SIZE, SIZE, load=LOAD, within=within, seed=seed)
            hidden = np.random.default_rng(seed).permutation(SIZE) // LOAD  # as the code draws it
            known = np.flatnonzero(hidden >= BLOCKS)
            chance = np.sort(rng.permutation(SIZE)[: SIZE - BLOCKS * LOAD])
            found.append([code.weights(known.tolist()).error, code.weights(chance.tolist()).error])
            found[-1].append(code.one_step_error(SIZE - BLOCKS * LOAD))
        adversary[within], random[within], one_step = (float(x) for x in np.mean(found, axis=0))
        ensemble[within] = one_step / code.ensemble_one_step_error(SIZE - BLOCKS * LOAD)
    return Figures(random, adversary, ensemble)


def picture(found, path):
    lines = {
        "random stragglers": (WITHIN, list(found.random.values())),
        "an adversary who knows the blocks": (WITHIN, list(found.adversary.values())),
    }
    draw(
        path,
        f"Stochastic block code 2018: {SIZE} workers, load {LOAD}, a fifth missing",
        [
            Panel(
                "left: Bernoulli code, right: repetition",
                "squared error",
                lines=lines,
                x="probability of an entry within a block",
            )
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
