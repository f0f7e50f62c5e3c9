"""Gupta, Kadhe, Courtade, Mahoney, Ramchandran, "OverSketched Newton: Fast Convex Optimization for Serverless Systems".

arXiv:1903.08857: gradients by product-coded matrix products, the Hessian by a sketch that tolerates stragglers too. A
few steps replace the many of first-order methods, and every step is a few rounds of functions that come and go. Here
the sketch is a coded round like the others; the delays are simulated.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

import serverless_gc as sgc

ROWS, COLUMNS, WORKERS, CLOSE = 2000, 20, 16, 1e-6
FIRST_ORDER = {"gradient descent": ("gradient-descent", 120), "nesterov": ("nesterov", 120), "l-bfgs": ("lbfgs", 40)}
PER_COLUMN = (2, 5, 10, 20, 50)
OBJECTIVE = {"loss": "logistic", "l2": 1e-3, "reduction": "mean", "tolerance": 0.0}


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    course: dict  # seconds and loss above the least one, by method
    seconds: dict  # until the loss is 1e-6 above the least one
    steps: dict  # the same in steps, by rows of the sketch for each column
    waiting: dict  # seconds of the sketched steps by what rounds wait for


def problem():
    """Logistic regression on columns of different scale."""
    rng = np.random.default_rng(1)
    scales = np.geomspace(1, 5, COLUMNS)
    X = rng.normal(size=(ROWS, COLUMNS)) * scales
    return X, (rng.random(ROWS) < 1 / (1 + np.exp(-X @ (rng.normal(size=COLUMNS) / scales)))).astype(float)


def train(method, steps, **options):
    """Train in a session of its own: every run meets the same delays."""
    with sgc.Session("simulated", seed=2, inject=sgc.inject.Stragglers(fraction=0.1, slowdown=10)) as session:
        data = session.encode(*problem(), code="product", n_workers=WORKERS)
        return sgc.minimize(data, np.zeros(COLUMNS), method=method, max_rounds=steps, **OBJECTIVE, **options)


def first(fit, least, of):
    """Return what ``of`` says when the loss comes close to the least one; infinite if it does not."""
    there = np.flatnonzero(fit.values - least <= CLOSE)
    return float(of[there[0]]) if len(there) else np.inf


def figures():
    least = train("sketched-newton", 12, sketch_rows=ROWS).value
    fits = {name: train(method, steps) for name, (method, steps) in FIRST_ORDER.items()}
    fits["sketched newton"] = train("sketched-newton", 15)
    fits["newton"] = train("sketched-newton", 10, sketch_rows=ROWS)
    sketches = {rows: train("sketched-newton", 40, sketch_rows=rows * COLUMNS) for rows in PER_COLUMN}
    everyone = train("sketched-newton", 15, policy=sgc.WaitAll())
    return Figures(
        {name: (fit.seconds, fit.values - least) for name, fit in fits.items()},
        {name: first(fit, least, fit.seconds) for name, fit in fits.items()},
        {rows: first(fit, least, np.arange(len(fit.values))) for rows, fit in sketches.items()},
        {
            "until decodable": first(fits["sketched newton"], least, fits["sketched newton"].seconds),
            "wait for all": first(everyone, least, everyone.seconds),
        },
    )


def picture(found, path):
    rows = np.array(list(found.steps))
    draw(
        path,
        f"OverSketched Newton 2020: {WORKERS} workers, product code, {COLUMNS} columns scaled 1 to 5",
        [
            Panel(
                "loss over time",
                "loss above the least",
                lines={name: (t, np.where(y > 1e-12, y, np.nan)) for name, (t, y) in found.course.items()},
                x="seconds",
                log=True,
            ),
            Panel("coarser sketches, more steps", "steps to 1e-6", {"": (rows, list(found.steps.values()))},
                  x="rows of the sketch for each column", legend=False),
            Panel("rounds that wait for all", "seconds to 1e-6", bars=found.waiting),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main(figures, picture)
