"""Results that every code waits for, and errors of approximate ones, against what their constructions specify.

Mean and 95th percentile over random orders of arrival. What is expected follows from the definition of a code, or was
measured by another implementation: `specified.py` has every figure with its source.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import COLOURS, main
from specified import ARRIVALS, ERRORS

from serverless_gc.codes import get


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested: mean, its standard error and the 95th percentile, in the order of the tables."""

    awaited: dict
    error: dict


def figures():
    return Figures(*({row.label: of(row.measured()) for row in rows} for rows in (ARRIVALS, ERRORS)))


def of(measured):
    return np.array([measured.middle, measured.standard_error, measured.p95])


def picture(found, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 10.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    workers = np.array([get(row.code, **row.params).n_workers for row in ARRIVALS])
    compare(left, found.awaited, ARRIVALS, workers)
    p95 = np.array([row.p95 for row in ARRIVALS])
    measured = np.array([one[2] for one in found.awaited.values()])
    places = np.arange(len(ARRIVALS))
    left.plot(measured / workers, places, "|", color=COLOURS[0], markersize=8, label="95 % of orders")
    left.plot(p95 / workers, places, "x", color=COLOURS[1], markersize=5, label="specified 95 %")
    left.set_xlim(0, 1.03)
    left.set_title("code, workers, blocks: share of the workers that is awaited", fontsize=10, loc="left")
    parts = np.array([1 if row.code == "berrut" else get(row.code, **row.params).k for row in ERRORS])
    compare(right, found.error, ERRORS, parts)
    right.set_xscale("log")
    right.set_title("code, workers - stragglers: squared error of a partition", fontsize=10, loc="left")
    left.legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=110)


def compare(ax, found, rows, unit):
    """Measured means with three standard errors, and the specified ones around them."""
    places = np.arange(len(rows))
    mean, error, _ = np.array(list(found.values())).T / unit
    ax.plot(
        [row.mean for row in rows] / unit,
        places,
        "D",
        color=COLOURS[1],
        fillstyle="none",
        markersize=7,
        label="specified mean",
    )
    bars = {"fmt": "o", "color": COLOURS[0], "markersize": 3, "capsize": 2}
    ax.errorbar(mean, places, xerr=3 * error, label="mean, 3 standard errors", **bars)
    ax.set_yticks(places, list(found), fontsize=7.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="x", labelsize=8)
    ax.grid(color="#E5E5E5", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


if __name__ == "__main__":
    main(figures, picture)
