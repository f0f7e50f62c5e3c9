"""Kadhe, Koyluoglu, Ramchandran, "Gradient Coding Based on Block Designs", arXiv:1904.13373: nothing to attack.

The error of a block design depends only on how many straggle. At the same load an adversary does much better against
repetition and Bernoulli codes.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main, random_errors

from serverless_gc.codes import get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.worst import greedy_worst, worst_case

LOST = range(1, 9)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    worst: dict  # code -> worst error per partition at each of LOST
    mean: dict
    spread: dict  # code -> worst over mean, five missing
    small: dict  # seven workers of load three: code -> worst squared error at 1 ... 5


def figures():
    codes = {
        "block design": get("bibd", n_workers=21),
        "repetition": get("erasurehead", n_workers=20, load=5),
        "Bernoulli": get("bgc", n_workers=21, load=5, seed=2),
    }
    worst = {name: [greedy_worst(code, s).error / code.k for s in LOST] for name, code in codes.items()}
    # Whole classes: the first steps of a greedy adversary against repetition see no gain.
    worst["repetition"] = [codes["repetition"].worst_error(s) / 20 for s in LOST]
    mean = {name: [float(random_errors(code, s, 40).mean()) for s in LOST] for name, code in codes.items()}
    mean["repetition"] = [codes["repetition"].expected_error(20 - s) / 20 for s in LOST]
    circulant = LinearGradientCode([[float((j - i) % 7 < 3) for j in range(7)] for i in range(7)], exact=False)
    small = {
        "block design": [worst_case(get("bibd", n_workers=7), s).error for s in range(1, 6)],
        "circulant": [worst_case(circulant, s).error for s in range(1, 6)],
    }
    five = LOST.index(5)
    spread = {name: worst[name][five] / mean[name][five] for name in codes}
    return Figures(worst, mean, spread, small)


def picture(found, path):
    share = np.array(LOST) / 21
    worst = {name: (share, values) for name, values in found.worst.items()}
    mean = {name: (share, values) for name, values in found.mean.items()}
    small = {name: (range(1, 6), values) for name, values in found.small.items()}
    draw(
        path,
        "Kadhe et al. 2019: load 5, 20 or 21 workers",
        [
            Panel("adversary", "worst error per partition", lines=worst, x="share of stragglers"),
            Panel("random stragglers", "mean error per partition", lines=mean, x="share of stragglers"),
            Panel("7 workers, load 3: not always best", "worst squared error", lines=small, x="stragglers"),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
