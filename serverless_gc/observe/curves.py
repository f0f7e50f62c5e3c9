"""A picture of how exact codes are: decode error against the share of workers that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.observe.plot import figure_type
from serverless_gc.types import FloatArray

__all__ = ["COLOURS", "Curve", "plot_errors"]

# Okabe and Ito's palette without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = "osD^vPX<>"


class Curve(Protocol):
    """What is drawn for one code: see `serverless_gc.plan.ErrorCurve`."""

    @property
    def name(self) -> str:
        """Name in the legend."""
        ...

    @property
    def fraction(self) -> FloatArray:
        """Share of workers missing, ascending."""
        ...

    @property
    def mean(self) -> FloatArray:
        """Mean error at each of them."""
        ...

    @property
    def worst(self) -> FloatArray:
        """Worst error seen at each of them."""
        ...


def plot_errors(
    curves: Sequence[Curve], path: str | PathLike[str] | None = None, title: str = "", *, mark: float | None = None
) -> Any:
    """Draw the mean and the worst decode error of codes on a logarithmic axis.

    Parameters
    ----------
    curves
        One for each code. Where its error is 0, a code has no line.
    path
        Where to save it; the ending says the format (``.png``, ``.svg``, ``.pdf``).
    title
        Title of the figure.
    mark
        Share of missing workers at which to draw a vertical line, labelled as the share of stragglers.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; it belongs to no window and need not be closed.

    Raises
    ------
    InputError
        If there is nothing to draw.
    ConfigError
        If matplotlib is not installed.
    """
    if not curves:
        raise InputError("there is nothing to draw: give at least one code")
    figure = figure_type("errors")(figsize=(8.0, 4.8), layout="constrained")
    mean_axes, worst_axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for i, curve in enumerate(curves):
        look = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": _MARKERS[i % len(_MARKERS)],
            "markersize": 4,
            "linewidth": 1.3,
            "linestyle": "-" if i < len(COLOURS) else "--",
            "label": curve.name if (curve.worst > 0).any() else f"{curve.name} (exact)",
        }
        for axes, errors in ((mean_axes, curve.mean), (worst_axes, curve.worst)):
            axes.plot(curve.fraction, np.where(errors > 0, errors, np.nan), **look)
    floor = min((float(c.mean[c.mean > 0].min()) for c in curves if (c.mean > 0).any()), default=0.1)
    for axes, name in ((mean_axes, "mean of random sets"), (worst_axes, "worst of them")):
        _finish(axes, name, mark, floor)
    mean_axes.set_ylabel("squared decode error per partition", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    handles, labels = mean_axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8, frameon=False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _finish(axes: Any, name: str, mark: float | None, floor: float) -> None:
    axes.set_title(name, fontsize=9, loc="left", pad=16 if mark is not None else 6)
    axes.set_xlabel("share of workers missing (no line: exact)", fontsize=9)
    axes.set_yscale("log")
    axes.set_ylim(floor / 1.5, 1.3)
    if mark is not None:
        axes.axvline(mark, color="#808080", linestyle=(0, (4, 2)), linewidth=0.9, zorder=0)
        axes.annotate(
            f"{mark:.0%} stragglers",
            (mark, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color="#606060",
        )
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.tick_params(labelsize=8)
    axes.grid(color="#E5E5E5", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
