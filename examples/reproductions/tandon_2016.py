"""Tandon, Lei, Dimakis, Karampatziakis, "Gradient Coding", arXiv:1612.03301: time per iteration and final loss.

Two workers are slow, always. Waiting for all costs their delay; ignoring them loses their data; coding costs three
times the work and loses neither.
"""

from dataclasses import dataclass

from laboratory import Panel, Problem, draw, main, train

from serverless_gc.codes import get

WORKERS, STRAGGLERS, ROUNDS = 12, 2, 60


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    runs: dict
    seconds: dict
    final_excess: dict


def figures():
    problem = Problem.drawn(drift=0.5)
    codes = {
        "wait for all": get("ignore-stragglers", n_workers=WORKERS, wait=WORKERS),
        "ignore stragglers": get("ignore-stragglers", n_workers=WORKERS, wait=WORKERS - STRAGGLERS),
        "fractional repetition": get("frc", n_workers=WORKERS, stragglers=STRAGGLERS),
        "cyclic repetition": get("cyclic", n_workers=WORKERS, stragglers=STRAGGLERS),
    }
    runs = {}
    for name, code in codes.items():
        # The decoder scales what arrived, so that ignoring is not merely a smaller step.
        method = "one-step" if code.name == "ignore-stragglers" else "optimal"
        runs[name] = train(code, problem, ROUNDS, method=method, stragglers={2, 7}, slowdown=8, seed=1)
    return Figures(
        runs,
        {name: run.per_round for name, run in runs.items()},
        {name: float(run.excess[-1]) for name, run in runs.items()},
    )


def picture(found, path):
    time_to = {name: (run.seconds, run.excess) for name, run in found.runs.items()}
    draw(
        path,
        f"Tandon et al. 2016: {WORKERS} workers, {STRAGGLERS} of them 8 times slower",
        [
            Panel("time per iteration", "seconds", bars=found.seconds),
            Panel("training", "loss above the least", lines=time_to, x="seconds", log=True),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
