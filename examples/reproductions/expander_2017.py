"""Raviv, Tamo, Tandon, Dimakis, "Gradient Coding from Cyclic MDS Codes and Expander Graphs", arXiv:1707.03858.

An expander's worst error stays below its spectral bound, far below that of repetition and of ignoring; training with it
ends lower than ignoring stragglers. The cyclic MDS code of the same paper is exact, without a random number.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main, train

from serverless_gc.codes import get
from serverless_gc.codes.gradient.worst import worst_case

LOST = (1, 2, 3, 4)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    worst: dict  # decoder -> worst squared error of the Petersen graph at each of LOST
    at_same_load: dict  # code -> worst error per partition, six of twelve workers missing
    runs: dict
    floors: dict
    cyclic_mds_error: float


def figures():
    petersen = get("expander", n_workers=10, graph="petersen")
    worst = {
        "bound": [petersen.worst_error(s) for s in LOST],
        "one step": [worst_case(petersen, s, method="one-step").error for s in LOST],
        "optimal": [worst_case(petersen, s).error for s in LOST],
        "ignoring": [float(s) for s in LOST],
    }
    same = {
        "expander": get("expander", n_workers=12, load=3),
        "repetition": get("erasurehead", n_workers=12, load=3),
        "ignoring": get("ignore-stragglers", n_workers=12),
    }
    problem = Problem.drawn(seed=4, drift=0.5)
    runs = {}
    for name in ("ignoring", "expander"):
        code = {"ignoring": get("ignore-stragglers", n_workers=30, wait=24)}.get(name)
        code = code or get("expander", n_workers=30, load=3, wait=24)
        runs[name] = train(code, problem, 90, method="one-step", step=0.5, seed=5)
    mds = get("cyclic-mds", n_workers=15, stragglers=4)
    return Figures(
        worst,
        {name: worst_case(code, 6).error / 12 for name, code in same.items()},
        runs,
        {name: run.floor for name, run in runs.items()},
        float(np.abs(mds.weights(range(4, 15)).alpha - 1).max()),
    )


def picture(found, path):
    errors = {name: (LOST, values) for name, values in found.worst.items()}
    training = {name: (range(90), run.excess) for name, run in found.runs.items()}
    draw(
        path,
        "Raviv et al. 2017: expander codes",
        [
            Panel("Petersen graph, every set", "worst squared error", lines=errors, x="stragglers"),
            Panel("12 workers, load 3, 6 missing", "worst error per partition", bars=found.at_same_load),
            Panel("30 workers, one-step weights", "loss above the least", lines=training, x="iteration", log=True),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
