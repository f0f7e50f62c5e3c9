"""Charles, Papailiopoulos, Ellenberg, "Approximate Gradient Coding via Sparse Random Graphs", arXiv:1711.06771.

Decode error against stragglers: repetition (FRC), regular graphs and Bernoulli codes, decoded in one step or optimally;
random stragglers, and an adversary who undoes repetition.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main, random_errors

from serverless_gc.codes import get
from serverless_gc.codes.gradient.worst import greedy_worst

SIZE, LOAD = 100, 5
LOST = (5, 10, 15, 20, 30, 40)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    one_step: dict  # code -> error per partition at each of LOST
    optimal: dict
    adversarial: dict  # code -> error per partition, a fifth of 30 workers silenced


def figures():
    codes = {
        "FRC": get("erasurehead", n_workers=SIZE, load=LOAD),
        "regular graph": get("expander", n_workers=SIZE, load=LOAD),
        "Bernoulli": get("bgc", n_workers=SIZE, load=LOAD, seed=1),
        "trimmed Bernoulli": get("rbgc", n_workers=SIZE, load=LOAD, seed=1),
    }
    one_step = {name: [code.one_step_error(SIZE - s) / SIZE for s in LOST] for name, code in codes.items()}
    optimal = {name: [float(random_errors(code, s, 15).mean()) for s in LOST] for name, code in codes.items()}
    optimal["FRC"] = [codes["FRC"].expected_error(SIZE - s) / SIZE for s in LOST]
    small = {
        "FRC": get("erasurehead", n_workers=30, load=3),
        "regular graph": get("expander", n_workers=30, load=3),
        "Bernoulli": get("bgc", n_workers=30, load=3, seed=1),
    }
    adversarial = {}
    for name, code in small.items():
        whole = code.weights(range(30)).error  # a Bernoulli code misses something from the start
        adversarial[name] = (greedy_worst(code, 6).error - whole) / 30
    adversarial["FRC"] = small["FRC"].worst_error(6) / 30  # whole classes: the greedy adversary sees no first step
    return Figures(one_step, optimal, adversarial)


def picture(found, path):
    share = np.array(LOST) / SIZE

    def lines(errors):
        return {name: (share, values) for name, values in errors.items()}

    draw(
        path,
        f"Charles et al. 2017: {SIZE} workers and partitions, load {LOAD}",
        [
            Panel("one step", "error per partition", lines=lines(found.one_step), x="share of stragglers"),
            Panel("optimal", "error per partition", lines=lines(found.optimal), x="share of stragglers", log=True),
            Panel("30 workers, a fifth silenced by an adversary", "added error per partition", bars=found.adversarial),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
