"""Wang, Charles, Papailiopoulos, "ErasureHead", arXiv:1901.09671: a slightly wrong gradient, early.

Time to a loss, under exponential delays: waiting for all, for an exact code, or for half of the workers.
"""

from dataclasses import dataclass

from laboratory import Panel, Problem, draw, main, train

from serverless_gc.codes import get
from serverless_gc.stragglers import Exponential

WORKERS, COPIES, ROUNDS, TARGET = 30, 3, 60, 1e-2


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    runs: dict
    to_target: dict


def figures():
    problem = Problem.drawn(seed=2)
    codes = {
        "wait for all": get("ignore-stragglers", n_workers=WORKERS, wait=WORKERS),
        "cyclic repetition": get("cyclic", n_workers=WORKERS, stragglers=COPIES - 1),
        "fractional repetition": get("frc", n_workers=WORKERS, stragglers=COPIES - 1),
        "ErasureHead, half": get("erasurehead", n_workers=WORKERS, load=COPIES, wait=WORKERS // 2),
    }
    runs = {
        name: train(code, problem, ROUNDS, delay=Exponential(1.0), stragglers=0.1, slowdown=5, seed=3)
        for name, code in codes.items()
    }
    return Figures(runs, {name: run.reaches(TARGET) for name, run in runs.items()})


def picture(found, path):
    lines = {name: (run.seconds, run.excess) for name, run in found.runs.items()}
    draw(
        path,
        f"ErasureHead 2019: {WORKERS} workers, {COPIES} copies",
        [
            Panel("training", "loss above the least", lines=lines, x="seconds", log=True),
            Panel(f"time to {TARGET:g}", "seconds", bars=found.to_target),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
