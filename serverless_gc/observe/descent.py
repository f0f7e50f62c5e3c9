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
_COSTS = ("billed seconds of all tasks", "seconds passed")
_SHOWN = 1e-4
"""Panels show how an objective falls to this share of where it began: what falls deeper would flatten all others."""


@dataclass(frozen=True, slots=True)
class Descent:
    """One line of the picture.

    Attributes
    ----------
    colour
        Lines of one such name share a colour.
    dash
        Lines of one such name share a style, or a panel.
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

    What is more than five dashes or seven colours tell apart is drawn in panels, one for each ``dash``.

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
    figure_of = figure_type("descents")
    colours = list(dict.fromkeys(line.colour for line in lines))
    dashes = list(dict.fromkeys(line.dash for line in lines))
    floor = min(float(line.values.min()) for line in lines) if least is None else least
    if len(colours) > len(COLOURS) or len(dashes) > len(_DASHES):
        figure = _panels(figure_of, lines, colours, dashes, floor)
    else:
        figure = figure_of(figsize=(10.0, 4.8), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for line in lines:
            look = {"color": COLOURS[colours.index(line.colour)], "linestyle": _DASHES[dashes.index(line.dash)]}
            _draw(axes, line, floor, look)
        for ax, label in zip(axes, _COSTS, strict=True):
            _finish(ax)
            ax.set_xlabel(label, fontsize=9)
        axes[0].set_ylabel("objective above its least value", fontsize=9)
        looks = [(name, {"color": COLOURS[i]}) for i, name in enumerate(colours)]
        looks += [(name, {"color": "black", "linestyle": _DASHES[i]}) for i, name in enumerate(dashes)]
        _legend(figure, looks)
    if title:
        figure.suptitle(title, fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _panels(
    figure_of: Any, lines: Sequence[Descent], colours: Sequence[str], dashes: Sequence[str], floor: float
) -> Any:
    """Draw two pairs of panels in a row, over the same axes, so that they can be compared."""
    rows = -(-len(dashes) // 2)
    figure = figure_of(figsize=(13.0, 1.2 + 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, 4, sharey=True, squeeze=False)
    pairs = axes.reshape(-1, 2)
    looks = {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i // len(COLOURS) % len(_DASHES)]}
        for i, name in enumerate(colours)
    }
    for name, pair in zip(dashes, pairs, strict=False):
        for line in lines:
            if line.dash == name:
                _draw(pair, line, floor, looks[line.colour])
        for ax in pair:
            _finish(ax)
        pair[0].set_title(name, fontsize=10, loc="left")
    for pair in pairs[len(dashes) :]:
        for ax in pair:
            ax.set_axis_off()
    for number, label in enumerate(_COSTS):
        widest = max(float(getattr(line, ("billed_seconds", "seconds")[number]).max()) for line in lines)
        for ax in pairs[:, number]:
            ax.set_xlim(0, 1.02 * widest)
        for ax in pairs[max(0, len(dashes) - 2) : len(dashes), number]:
            ax.set_xlabel(label, fontsize=9)
    start = max(float(line.values[0]) for line in lines) - floor
    axes[0, 0].set_ylim(_SHOWN * start, 2 * start)
    figure.supylabel("objective above its least value", fontsize=9)
    _legend(figure, list(looks.items()))
    return figure


def _draw(pair: Any, line: Descent, floor: float, look: dict[str, Any]) -> None:
    above = line.values - floor
    shown = above > 1e-12 * abs(float(line.values[0]))  # the rest is rounding
    for ax, cost in zip(pair, (line.billed_seconds, line.seconds), strict=True):
        ax.plot(cost[shown], above[shown], linewidth=1.4, **look)


def _finish(ax: Any) -> None:
    ax.set_yscale("log")
    ax.set_xlim(left=0)
    ax.grid(color="#E5E5E5", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend(figure: Any, looks: Sequence[tuple[str, dict[str, Any]]]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=name, **look) for name, look in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(7, len(handles)), fontsize=8, frameon=False)
