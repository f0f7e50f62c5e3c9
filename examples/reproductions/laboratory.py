"""What the reproductions share: a toy problem, training on simulated rounds, and a picture of the result."""

import sys
from argparse import ArgumentParser
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from serverless_gc.plan import simulated_rounds

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")


@dataclass(frozen=True)
class Problem:
    """Least squares: ``F(w) = ||X w - y||**2 / (2 n)``."""

    X: np.ndarray
    y: np.ndarray

    @classmethod
    def drawn(cls, rows=1200, columns=20, seed=0, *, drift=0.0):
        """Columns of variance 0.2 to 1; with drift the first rows have another solution than the last ones."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(rows, columns)) * np.sqrt(np.geomspace(0.2, 1, columns))
        w = rng.normal(size=columns) + np.linspace(-drift, drift, rows)[:, None]
        return cls(X, (X * w).sum(axis=1) + rng.normal(size=rows))

    def gradients(self, w, k):
        """Gradients of the ``k`` partitions, runs of consecutive rows; their sum over ``n`` is that of ``F``."""
        terms = (self.X @ w - self.y)[:, None] * self.X
        return np.add.reduceat(terms, len(self.y) * np.arange(k) // k)

    def loss(self, w):
        """``F(w)``."""
        return float(((self.X @ w - self.y) ** 2).mean() / 2)

    @property
    def least(self):
        """The least loss."""
        return self.loss(np.linalg.lstsq(self.X, self.y, rcond=None)[0])

    @property
    def step(self):
        """Inverse of the largest curvature."""
        return len(self.y) / np.linalg.norm(self.X, 2) ** 2


@dataclass(frozen=True)
class Run:
    """Training: seconds at the end of every round, and how far the loss then is from the least one."""

    seconds: np.ndarray
    excess: np.ndarray

    @property
    def per_round(self):
        """Mean seconds of a round."""
        return float(self.seconds[-1] / len(self.seconds))

    def reaches(self, target):
        """Seconds until the excess is at most the target; infinite if it never is."""
        there = np.flatnonzero(self.excess <= target)
        return float(self.seconds[there[0]]) if len(there) else np.inf

    @property
    def floor(self):
        """Mean excess of the last third of the rounds."""
        return float(self.excess[-len(self.excess) // 3 :].mean())


def train(code, problem, rounds, *, method="optimal", step=1.0, **simulation):
    """Gradient descent; every gradient is encoded, lost in part and decoded by the code, in simulated time."""
    w = np.zeros(problem.X.shape[1])
    least, rate = problem.least, step * problem.step / len(problem.y)
    seconds, excess = [], []
    for outcome in simulated_rounds(code, rounds, **simulation):
        messages = [m for arrival in outcome.arrivals for m in code.placement(arrival.task.slot)]
        sent = code.encode(problem.gradients(w, code.k), messages=messages)
        total, _ = code.decode(dict(zip(messages, sent, strict=True)), method=method)
        w = w - rate * total[: len(w)]
        seconds.append(outcome.t_close)
        excess.append(problem.loss(w) - least)
    return Run(np.array(seconds), np.array(excess))


def random_errors(code, stragglers, trials=100, seed=0, method="optimal"):
    """Squared error per partition of random sets of so many stragglers, shape ``(trials,)``."""
    rng = np.random.default_rng(seed)
    kept = code.n_workers - stragglers
    sets = (rng.permutation(code.n_workers)[:kept] for _ in range(trials))
    return np.array([code.weights(np.sort(arrived).tolist(), method).error for arrived in sets]) / code.k


@dataclass(frozen=True)
class Panel:
    """One part of a picture: lines by name, as ``(x, y)``, or bars by name, as a height.

    What is above ``top`` is not drawn: runs that diverge would leave no room for the others.
    """

    title: str
    y: str
    lines: dict | None = None
    bars: dict | None = None
    x: str = ""
    log: bool = False
    top: float = np.inf
    legend: bool = True  # False where another panel tells the same names
    first: int = 0  # of the colours for the bars: those of another panel that begins with other names


def draw(path, title, panels):
    """Draw the panels side by side."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.6 * len(panels) + 0.4, 4.0), layout="constrained")
    for ax, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for i, (name, (x, y)) in enumerate((panel.lines or {}).items()):
            height = np.asarray(y, float)
            shown = np.where((height <= panel.top) & ((height > 0) | (not panel.log)), height, np.nan)
            look = {"marker": "osD^vPX"[i % 7], "markersize": 3.5} if len(x) <= 30 else {}
            # Dashes let a line that lies on another one be seen.
            ax.plot(
                x, shown, color=COLOURS[i % 7], linewidth=1.3, linestyle=("-", (0, (5, 2)))[i % 2], label=name, **look
            )
        if panel.lines and panel.legend:
            ax.legend(fontsize=7, framealpha=0.6, edgecolor="none")
        if panel.lines and all(np.issubdtype(np.asarray(x).dtype, np.integer) for x, _ in panel.lines.values()):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if panel.bars:
            places = range(len(panel.bars))
            heights = list(panel.bars.values())
            bars = ax.barh(places, heights, color=[COLOURS[(panel.first + i) % 7] for i in places], height=0.6)
            labels = [f"{height:,.0f}" if height >= 1000 else f"{height:.3g}" for height in heights]
            ax.bar_label(bars, labels, fontsize=7, padding=2)
            ax.set_yticks(places, list(panel.bars), fontsize=8)
            ax.invert_yaxis()
            ax.margins(x=0.15)
        (ax.set_xlabel if panel.bars else ax.set_ylabel)(panel.y, fontsize=8)
        if panel.x:
            ax.set_xlabel(panel.x, fontsize=8)
        if panel.log:
            (ax.set_xscale if panel.bars else ax.set_yscale)("log")
        ax.set_title(panel.title, fontsize=9, loc="left")
        ax.tick_params(labelsize=8, which="both")
        ax.grid(color="#E5E5E5", linewidth=0.6, axis="x" if panel.bars else "both")
        ax.set_axisbelow(True)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)


def main(figures, picture):
    """Compute, draw into the path given (by default a file in the current folder), and print the numbers."""
    parser = ArgumentParser(description="Compute, draw and print the figures of this reproduction.")
    parser.add_argument("path", nargs="?", type=Path, default=Path(f"{Path(sys.argv[0]).stem}.png"), help="the picture")
    path = parser.parse_args().path
    found = figures()
    picture(found, path)
    for field in fields(found):
        value = getattr(found, field.name)
        for key, number in value.items() if isinstance(value, dict) else [("", value)]:
            if not isinstance(number, Run) and np.size(number) <= 12:
                print(f"{field.name:<18} {key!s:<28} {np.array2string(np.asarray(number), precision=4)}")
    print(f"drawn: {path}")
