"""A picture of what progress costs: an objective over the seconds billed, and over the seconds passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from serverless_gc.errors import InputError
from serverless_gc.observe.curves import COLOURS
from serverless_gc.observe.plot import figure_type
from serverless_gc.types import FloatArray

__all__ = ["Descent", "plot_descent"]

_DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))


@dataclass(frozen=True, slots=True)
class Descent:
    """One line of the picture.

    Attributes
    ----------
    colour
        Lines of one such name share a colour.
    dash
        Lines of one such name share a style.
    values
        Of the objective.
    seconds, billed_seconds
        When each was known.
    """

    colour: str
    dash: str
    values: FloatArray
    seconds: FloatArray
    billed_seconds: FloatArray


def plot_descent(
    lines: Sequence[Descent],
    path: str | PathLike[str] | None = None,
    title: str = "",
    *,
    least: float | None = None,
) -> Any:
    """Draw how far objectives are above the least value, on a logarithmic axis.

    Parameters
    ----------
    lines
        One for each run.
    path
        Where to save it; the ending says the format (``.png``, ``.svg``, ``.pdf``).
    title
        Title of the figure.
    least
        The least value there is; by default the least one of the lines.

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
    if not lines:
        raise InputError("there is nothing to draw: give at least one run")
    from matplotlib.lines import Line2D

    figure = figure_type("descents")(figsize=(10.0, 4.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(line.colour for line in lines))}
    dashes = {name: _DASHES[i % len(_DASHES)] for i, name in enumerate(dict.fromkeys(line.dash for line in lines))}
    floor = min(float(line.values.min()) for line in lines) if least is None else least
    rounding = 1e-12 * max(abs(float(line.values[0])) for line in lines)
    for line in lines:
        above = line.values - floor
        shown = above > rounding
        look = {"color": colours[line.colour], "linestyle": dashes[line.dash], "linewidth": 1.4}
        for ax, cost in zip(axes, (line.billed_seconds, line.seconds), strict=True):
            ax.plot(cost[shown], above[shown], **look)
    for ax, label in zip(axes, ("billed seconds of all tasks", "seconds passed"), strict=True):
        ax.set_yscale("log")
        ax.set_xlabel(label, fontsize=9)
        ax.set_xlim(left=0)
        ax.grid(color="#E5E5E5", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    axes[0].set_ylabel("objective above its least value", fontsize=9)
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    handles += [Line2D([], [], color="black", linestyle=dash, label=name) for name, dash in dashes.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)), fontsize=8, frameon=False)
    if title:
        figure.suptitle(title, fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
