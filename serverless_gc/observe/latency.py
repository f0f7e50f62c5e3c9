"""Picture of a latency table: completion time against the number of workers, one panel for each law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serverless_gc.observe.curves import COLOURS

__all__ = ["plot_latency"]

_MARKERS = "osD^v<>P*X"
_COLOURS = (*COLOURS, "#7F4F24")  # the usual table has eight methods


def plot_latency(points: Sequence[tuple[str, str, int, float, float]], path: str | Path) -> None:
    """Draw the mean (line) and the 99th percentile (whisker) of every method.

    Parameters
    ----------
    points
        Law, method, number of workers, mean and p99 seconds.
    path
        File to write; its ending chooses the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    laws = list(dict.fromkeys(point[0] for point in points))
    methods = list(dict.fromkeys(point[1] for point in points))
    sizes = sorted({point[2] for point in points})
    figure = Figure(figsize=(1.2 + 3.9 * len(laws), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(laws), squeeze=False)[0]
    for panel, law in zip(panels, laws, strict=True):
        for i, method in enumerate(methods):
            mine = sorted(point[2:] for point in points if point[:2] == (law, method))
            # Methods side by side at each size, so that whiskers do not cover one another.
            at = [sizes.index(n) + (i - (len(methods) - 1) / 2) * 0.05 for n, _, _ in mine]
            means, p99 = [m for _, m, _ in mine], [max(0.0, q - m) for _, m, q in mine]
            panel.errorbar(
                at,
                means,
                yerr=[[0.0] * len(mine), p99],
                marker=_MARKERS[i % len(_MARKERS)],
                color=_COLOURS[i % len(_COLOURS)],
                markersize=5,
                linewidth=0.8,
                capsize=2,
                label=method,
            )
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        panel.yaxis.set_major_formatter(_seconds)
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_title(law, fontsize=9, loc="left")
        panel.set_xticks(range(len(sizes)), [str(n) for n in sizes])
        panel.set_xlabel("workers", fontsize=9)
        panel.tick_params(labelsize=8)
        panel.grid(axis="y", color="#E5E5E5", linewidth=0.6)
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].set_ylabel("seconds of a round: mean, and up to p99", fontsize=9)
    figure.suptitle("Completion time", fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def _seconds(value: float, _: int) -> str:
    return f"{value:g}"
