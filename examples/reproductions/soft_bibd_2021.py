"""Sakorikar, Wang, "Soft BIBD and Product Gradient Codes", arXiv:2105.05231: nearly designs, at sizes without one.

A soft design of 20 workers follows the error of a design that does not exist, and withstands an adversary; products of
small exact codes tolerate more stragglers than their factors together.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from laboratory import Panel, draw, main, random_errors

from serverless_gc.codes import get
from serverless_gc.codes.gradient import ProductGradientCode
from serverless_gc.codes.gradient.worst import greedy_worst

SIZE, LOAD = 20, 5
LOST = range(1, 7)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    mean: dict  # code -> mean squared error at each of LOST
    worst: dict
    product_decodes: dict  # stragglers -> share of sets that a product of two (3, 1) codes decodes
    fano_product: float


def design_error(stragglers):
    """Error of a design of these numbers, if there were one: pairs of workers share 20/19 partitions."""
    f, shared = SIZE - stragglers, LOAD * (LOAD - 1) / (SIZE - 1)
    return SIZE - f * LOAD**2 / (LOAD + (f - 1) * shared)


def figures():
    codes = {
        "soft design": get("soft-bibd", n_workers=SIZE, load=LOAD),
        "Bernoulli": get("bgc", n_workers=SIZE, load=LOAD, seed=1),
        "repetition": get("erasurehead", n_workers=SIZE, load=LOAD),
    }
    mean = {name: [SIZE * float(random_errors(code, s, 60).mean()) for s in LOST] for name, code in codes.items()}
    mean["design formula"] = [design_error(s) for s in LOST]
    mean["repetition"] = [codes["repetition"].expected_error(SIZE - s) for s in LOST]
    worst = {name: [greedy_worst(code, s).error for s in LOST] for name, code in codes.items()}
    worst["repetition"] = [codes["repetition"].worst_error(s) for s in LOST]
    factor = {"code": "cyclic", "n_workers": 3, "stragglers": 1}
    product = ProductGradientCode(outer=factor, inner=factor)
    decodes = {}
    for lost in range(1, 6):
        sets = [set(range(9)) - set(gone) for gone in combinations(range(9), lost)]
        decodes[lost] = float(np.mean([product.weights(arrived).error < 1e-9 for arrived in sets]))
    fano = ProductGradientCode()
    return Figures(mean, worst, decodes, fano.weights([7 * i + j for i in range(6) for j in range(5)]).error)


def picture(found, path):
    draw(
        path,
        f"Soft designs and products 2021: {SIZE} workers, load {LOAD}",
        [
            Panel("random stragglers", "mean squared error", {n: (LOST, v) for n, v in found.mean.items()}, x="lost"),
            Panel("adversary", "worst squared error", {n: (LOST, v) for n, v in found.worst.items()}, x="lost"),
            Panel(
                "product of two codes for one straggler of three",
                "share of sets that decode",
                {"9 workers": (list(found.product_decodes), list(found.product_decodes.values()))},
                x="lost",
            ),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
