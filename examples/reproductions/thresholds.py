"""Results that the codes of blocks wait for, against the figures that their constructions were specified by.

Mean and 95th percentile over random orders of arrival; expected figures are measurements of another implementation or,
where there is one, a closed form.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from laboratory import main

from serverless_gc.codes import get
from serverless_gc.codes.threshold import count_arrivals


@dataclass(frozen=True)
class Row:
    """One code, the expected mean with its own uncertainty (standard error or rounding), and the expected p95."""

    code: str
    n: int
    k: int
    mean: float
    uncertain: float
    p95: float | None = None
    trials: int = 150
    options: tuple = ()
    draws: int = 1  # of a random code, the trials spread over them

    @property
    def label(self):
        """Code, workers and blocks."""
        mode = "".join(f" {value}" for _, value in self.options if isinstance(value, str))
        return f"{self.code}{mode} {self.n}, {self.k}"


ROWS = (
    Row("mds", 64, 48, 48, 0, 48),
    Row("replication", 64, 32, 54.934, 0),
    Row("replication", 90, 30, 65.039, 0),
    Row("polar", 64, 32, 38.8, 0.5, 45, options=(("mode", "sc"),)),
    Row("polar", 64, 32, 37.7, 0.5, 44, options=(("mode", "peel"),)),
    Row("polar", 64, 48, 52.2, 0.5, 57, options=(("mode", "peel"),)),
    Row("polar", 256, 192, 208.6, 1.0, 220, trials=60, options=(("mode", "peel"),)),
    Row("product", 16, 9, 10.0, 0.1, 12, options=(("grid", ((4, 3), (4, 3))),)),
    Row("product", 121, 100, 106.8, 0.2, 112, options=(("grid", ((11, 10), (11, 10))),)),
    Row("ldpc", 64, 32, 1.21 * 32, 0.5, options=(("inactivation", 0),), draws=15),
    Row("ldpc", 256, 192, 1.08 * 192, 1.5, trials=100, options=(("inactivation", 0),), draws=10),
    Row("lt", 200, 100, 134.0, 2.5, 175.0, options=(("alpha", 2.0), ("inactivation", 0)), draws=15),
)


class Measured(NamedTuple):
    """Over the trials of one row."""

    mean: float
    standard_error: float
    p95: float


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    rows: dict  # label of the row -> Measured


def figures():
    rows = {}
    for row in ROWS:
        counts = np.concatenate([counted(row, seed) for seed in range(row.draws)])
        spread = counts.std(ddof=1) / np.sqrt(len(counts))
        if row.draws > 1:  # orders of one code are not independent trials of the ensemble
            spread = counts.reshape(row.draws, -1).mean(axis=1).std(ddof=1) / np.sqrt(row.draws)
        rows[row.label] = Measured(float(counts.mean()), float(spread), float(np.percentile(counts, 95)))
    return Figures(rows)


def counted(row, seed):
    """Results awaited in each of the trials of one draw of the code."""
    random = {"seed": seed} if row.draws > 1 else {}
    code = get(row.code, n_workers=row.n, k=row.k, **dict(row.options), **random)
    return count_arrivals(code, row.trials // row.draws, seed=seed + 1)


def picture(found, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    ax = figure.subplots()
    places = range(len(ROWS))
    measured = list(found.rows.values())
    each = [row.k for row in ROWS]
    mean = [one.mean / k for one, k in zip(measured, each, strict=True)]
    three = [3 * one.standard_error / k for one, k in zip(measured, each, strict=True)]
    ax.errorbar(mean, places, xerr=three, fmt="o", color="#0072B2", markersize=4, capsize=3, label="mean, 3 errors")
    ax.plot(
        [one.p95 / k for one, k in zip(measured, each, strict=True)],
        places,
        "|",
        color="#0072B2",
        label="95 % of orders",
    )
    ax.plot([row.mean / row.k for row in ROWS], places, "D", color="#D55E00", fillstyle="none", label="specified mean")
    known = [(row.p95 / row.k, place) for place, row in enumerate(ROWS) if row.p95]
    ax.plot(*zip(*known, strict=True), "x", color="#D55E00", label="specified 95 %")
    ax.set_yticks(places, list(found.rows), fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("results awaited / k", fontsize=9)
    ax.set_title("workers, blocks: results that codes of blocks wait for", fontsize=10, loc="left")
    ax.grid(color="#E5E5E5", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(figures, picture)
