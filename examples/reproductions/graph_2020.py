"""Glasgow, Wootters, "Approximate Gradient Coding with Optimal Decoding", arXiv:2006.09638: random and adversarial.

Workers are edges of a graph. Optimal weights bring the error of random stragglers near the least possible one, which
one common weight does not; the worst error is about half of that of repetition; training ends lower.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main, train

from serverless_gc.codes import get
from serverless_gc.codes.gradient.worst import greedy_worst

WORKERS, COPIES = 60, 3
CHANCES = (0.05, 0.1, 0.2, 0.3, 0.4)
SHARES = (0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    random: dict  # decoder -> error per partition at each of CHANCES
    adversarial: dict  # code -> worst error per partition at each of SHARES
    bound: list
    runs: dict
    floors: dict


def independent(code, p, rng, method="optimal", trials=150):
    """Mean error per partition when every worker is missing with this probability."""
    sets = (np.flatnonzero(rng.random(code.n_workers) >= p).tolist() for _ in range(trials))
    return float(np.mean([code.weights(arrived, method).error for arrived in sets])) / code.k


def figures():
    graph = get("graph", n_workers=WORKERS, load=COPIES)
    repetition = get("erasurehead", n_workers=WORKERS, load=COPIES)
    rng = np.random.default_rng(0)
    random = {
        "graph, one weight": [independent(graph, p, rng, "one-step") for p in CHANCES],
        "graph, optimal": [independent(graph, p, rng) for p in CHANCES],
        "least possible": [p**COPIES for p in CHANCES],
    }
    lost = [round(share * WORKERS) for share in SHARES]
    adversarial = {
        "repetition": [repetition.worst_error(s) / WORKERS for s in lost],
        "graph": [cut_off(graph, s) for s in lost],
    }
    problem = Problem.drawn(seed=6, drift=0.5)
    runs = {
        method: train(
            get("graph", n_workers=WORKERS, load=COPIES, wait=48), problem, 80, method=method, step=0.5, seed=7
        )
        for method in ("one-step", "optimal")
    }
    return Figures(
        random,
        adversarial,
        [graph.worst_error(s) / graph.k for s in lost],
        runs,
        {method: run.floor for method, run in runs.items()},
    )


def cut_off(code, stragglers):
    """Best attack found on a graph: by greed, or by silencing whole vertices, whichever is worse."""
    missing = []
    for vertex in range(code.k):
        around = [e for e, ends in enumerate(code.edges.tolist()) if vertex in ends and e not in missing]
        if len(missing) + len(around) <= stragglers:
            missing += around
    isolated = code.weights(sorted(set(range(code.n_workers)) - set(missing))).error
    return max(isolated, greedy_worst(code, stragglers).error) / code.k


def picture(found, path):
    share = np.array(SHARES)
    worst = {name: (share, values) for name, values in found.adversarial.items()}
    worst["graph, bound"] = (share, found.bound)
    training = {f"{name} weights": (range(80), run.excess) for name, run in found.runs.items()}
    draw(
        path,
        f"Glasgow, Wootters 2020: {WORKERS} workers, {COPIES} copies",
        [
            Panel(
                "random stragglers",
                "mean error per partition",
                {name: (CHANCES, values) for name, values in found.random.items()},
                x="probability of straggling",
                log=True,
            ),
            Panel("adversary", "worst error per partition", worst, x="share of stragglers"),
            Panel("training, a fifth missing", "loss above the least", training, x="iteration", log=True),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
