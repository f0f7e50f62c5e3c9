"""Bartan, Pilanci, "Straggler Resilient Serverless Computing Based on Polar Codes", arXiv:1901.06811.

512 functions of a service with rare cold starts and slow hosts: waiting for all, two copies, polar codes, and MDS
codes, which need the fewest results and the most work to decode.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes import get
from serverless_gc.plan import simulated_rounds
from serverless_gc.stragglers import LambdaLike, ShiftedExponential

WORKERS, BLOCKS, ROUNDS = 512, 384, 12
# Work is a 512th of the product: two seconds and some. One function in a hundred starts cold, one in fifty is slow.
LAW = LambdaLike(compute=ShiftedExponential(shift=2.0, rate=4.0), p_cold=0.01, cold=3.0)
SLOW = {"stragglers": 0.02, "slowdown": 5.0}


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    seconds: dict
    spread: dict  # standard deviation of the seconds
    awaited: dict  # results
    operations: dict  # additions or multiplications of blocks to decode
    arrivals: np.ndarray  # seconds at which results of one round arrive, uncoded


def missing_blocks(outcome):
    """Count the blocks whose own results are not there, where the first results are the blocks themselves."""
    return BLOCKS - sum(arrival.task.slot < BLOCKS for arrival in outcome.arrivals)


def figures():
    codes = {
        "wait for all": get("uncoded", n_workers=WORKERS),
        "two copies": get("replication", n_workers=WORKERS, k=WORKERS // 2),
        f"polar, k={BLOCKS}": get("polar", n_workers=WORKERS, k=BLOCKS),
        f"MDS, k={BLOCKS}": get("mds", n_workers=WORKERS, k=BLOCKS),
    }
    rounds = {
        name: list(simulated_rounds(code, ROUNDS, delay=LAW, seed=3, unit=1 / WORKERS, **SLOW))
        for name, code in codes.items()
    }
    seconds = {name: np.array([one.duration for one in each]) for name, each in rounds.items()}
    uncoded = rounds["wait for all"][0]
    return Figures(
        {name: float(each.mean()) for name, each in seconds.items()},
        {name: float(each.std()) for name, each in seconds.items()},
        {name: float(np.mean([len(one.arrivals) for one in each])) for name, each in rounds.items()},
        {
            # Peeling adds once for each butterfly at most; an MDS code combines k results for each missing block.
            f"polar, k={BLOCKS}": WORKERS // 2 * int(np.log2(WORKERS)),
            f"MDS, k={BLOCKS}": BLOCKS * float(np.mean([missing_blocks(one) for one in rounds[f"MDS, k={BLOCKS}"]])),
        },
        np.sort([arrival.t_arrived - uncoded.t_open for arrival in uncoded.arrivals]),
    )


def picture(found, path):
    draw(
        path,
        f"Polar codes 2019: {WORKERS} functions",
        [
            Panel(
                "one round",
                "results",
                lines={"uncoded": (found.arrivals, np.arange(1, WORKERS + 1))},
                x="seconds",
            ),
            Panel(f"mean of {ROUNDS} rounds", "seconds", bars=found.seconds),
            Panel("to decode, at most", "operations on blocks", bars=found.operations, first=2),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
