"""Mallick, Chaudhari, Sheth, Palanikumar, Joshi, "Rateless Codes for Near-Perfect Load Balancing", arXiv:1804.10331.

Workers multiply coded rows one by one and send each product: whatever a slow worker has done counts, and no fast one
idles. A worker begins late by an exponential time; then every row takes as long.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes import get

WORKERS, ROWS, PER_ROW, TRIALS = 10, 1000, 0.01, 60  # a tenth of the rows take a second; starts are late by 1 s
MDS_NEEDED = 8


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    seconds: dict
    computed: dict  # rows computed by all workers when the product is known, over the rows there are
    idle: dict  # share of the workers' seconds, from their start on, that they had nothing to do
    latency: dict  # seconds of each trial, sorted


def products_by(t, starts, most):
    """Rows that each worker has done at a time."""
    return np.clip(np.floor((t - starts) / PER_ROW + 1e-9), 0, most)


def whole_shares(starts, copies, needed):
    """Time and rows done when all is known from whole shares: one of ``copies`` each, or any ``needed`` of them."""
    share = ROWS * copies // WORKERS if needed is None else ROWS // needed
    ends = starts + share * PER_ROW
    done = ends.reshape(-1, copies).min(axis=1).max() if needed is None else np.sort(ends)[needed - 1]
    return done, products_by(done, starts, share).sum()


def rateless(starts, code):
    """Time and rows done when the products that arrived suffice to peel."""
    share = code.n_messages // WORKERS
    ends = starts[:, None] + PER_ROW * np.arange(1, share + 1)
    tracker = code.tracker()
    for message in np.argsort(ends, axis=None, kind="stable").tolist():
        if tracker.add(message):
            break
    done = ends.ravel()[message]
    return done, products_by(done, starts, share).sum()


def balanced(starts):
    """Time when as many rows as there are have been done, by whomever, and that number."""
    ends = np.sort((starts[:, None] + PER_ROW * np.arange(1, ROWS + 1)).ravel())
    return ends[ROWS - 1], ROWS


def figures():
    code = get("lt", n_workers=WORKERS, k=ROWS, alpha=2.0, seed=1)
    rng = np.random.default_rng(5)
    table = {}
    for _ in range(TRIALS):
        starts = rng.exponential(1.0, WORKERS)
        for name, (done, computed) in {
            "uncoded": whole_shares(starts, 1, None),
            "two copies": whole_shares(starts, 2, None),
            f"MDS, {MDS_NEEDED} of {WORKERS}": whole_shares(starts, 1, MDS_NEEDED),
            "rateless": rateless(starts, code),
            "perfect balance": balanced(starts),
        }.items():
            idle = 1 - computed * PER_ROW / np.maximum(done - starts, 0).sum()
            table.setdefault(name, []).append((done, computed / ROWS, idle))
    means = {name: np.mean(rows, axis=0) for name, rows in table.items()}
    return Figures(
        *({name: float(mean[part]) for name, mean in means.items()} for part in range(3)),
        {name: np.sort([row[0] for row in rows]) for name, rows in table.items()},
    )


def picture(found, path):
    above = 1 - np.arange(TRIALS) / TRIALS
    draw(
        path,
        f"Rateless codes 2019: {WORKERS} workers, {ROWS} rows",
        [
            Panel(
                "latency",
                "share of the products that take longer",
                lines={name: (seconds, above) for name, seconds in found.latency.items()},
                x="seconds",
                log=True,
            ),
            Panel("work", "rows computed, over the rows there are", bars=found.computed),
            Panel("workers without work", "share of their time", bars=found.idle),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
