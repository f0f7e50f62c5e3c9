"""A picture of a call: one bar for each worker, phase by phase, and the moment the answer was decodable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.observe.timeline import Fate, Span

__all__ = ["figure_type", "plot_timeline"]

# Okabe and Ito's palette: told apart with every kind of colour vision, and in grey by lightness.
_PHASES = (("queued", "#C9C9C9"), ("read", "#56B4E9"), ("compute", "#0072B2"), ("write", "#009E73"))
_FAILED = "#D55E00"
_MOST_ROUNDS = 4


class _Look(NamedTuple):
    """How bars of one fate are drawn; the outline goes around the whole attempt."""

    alpha: float
    outline: str | None
    hatch: str
    label: str


_LOOKS: dict[Fate, _Look] = {
    "used": _Look(1.0, None, "", "used"),
    "surplus": _Look(0.35, "#404040", "", "arrived, not used"),
    "voided": _Look(0.35, "#808080", "////", "given up"),
    "failed": _Look(0.35, _FAILED, "xxxx", "failed"),
}
_PALE: dict[Fate, str] = {"used": "#0072B2", "surplus": "#A6CDE5", "voided": "#EDEDED", "failed": "#EDEDED"}


def plot_timeline(
    spans: Sequence[Span],
    path: str | PathLike[str] | None = None,
    title: str = "",
    *,
    decodable: Mapping[int, float] | None = None,
    rounds: Sequence[int] | None = None,
    outside: str = "queued",
) -> Any:
    """Draw when each worker did what.

    Parameters
    ----------
    spans
        What to draw, for example `Report.spans`.
    path
        Where to save it; the ending says the format (``.png``, ``.svg``, ``.pdf``).
    title
        Title of the figure.
    decodable
        Round to the time from which its answer was decodable, on the clock of the spans, for example
        `Report.decodable`; drawn as a line.
    rounds
        Which rounds to draw, side by side; the last 4 by default.
    outside
        What the legend calls the time outside the worker's own phases, `Span.queued`: where delays are injected it is
        mostly theirs.

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

    Examples
    --------
    >>> spans = [Span(slot=0, attempt=0, round=0, t_issued=0.0, t_end=1.0, queued=0.2, read=0.3, compute=0.5)]
    >>> figure = plot_timeline(spans, title="one worker", decodable={0: 1.0})
    >>> len(figure.axes)
    1
    """
    shown = sorted({s.round for s in spans}) if rounds is None else list(rounds)
    if not shown or not spans:
        raise InputError("there is nothing to draw: no spans were recorded")
    if rounds is None:
        shown = shown[-_MOST_ROUNDS:]
    if missing := sorted(set(shown) - {s.round for s in spans}):
        raise InputError(f"rounds {missing} have no spans")
    figure_class = figure_type("a timeline")
    n_slots = len({s.slot for s in spans})
    # A quarter of an inch a worker while that fits a page, less for many.
    height = 1.9 + max(1.2, min(n_slots * 0.25, 4.0 + n_slots * 0.065, 22.0))
    figure = figure_class(
        figsize=(6.2 + 3.4 * (len(shown) - 1) if len(shown) > 1 else 8.0, height), layout="constrained"
    )
    axes = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    places = {slot: y for y, slot in enumerate(sorted({s.slot for s in spans}))}
    opened = {number: min(s.t_issued for s in spans if s.round == number) for number in shown}
    longest = max(s.t_end - opened[s.round] for s in spans if s.round in opened)
    axes[0].set_xlim(0, 1.06 * longest or 1.0)  # of all rounds: they share the axis
    for ax, number in zip(axes, shown, strict=True):
        mine = [s for s in spans if s.round == number]
        start = opened[number]
        _draw_round(ax, mine, places, start)
        _mark_decodable(ax, None if decodable is None else decodable.get(number), start)
        _finish_axes(ax, f"round {number + 1}" if len(shown) > 1 or number else "", places)
    axes[0].set_ylabel("worker", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    _legend(figure, {s.fate for s in spans if s.round in shown}, outside)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def figure_type(drawing: str) -> Any:
    """Return the class of figures that belong to no window, for such a drawing.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            f"drawing {drawing} needs matplotlib, which is not installed: pip install 'serverless-gc[plot]'"
        ) from error
    return Figure


def _draw_round(ax: Any, spans: Sequence[Span], places: Mapping[int, int], start: float) -> None:
    boxes: dict[tuple[str, Fate], list[tuple[float, float, float, float]]] = {}
    outlines: dict[Fate, list[tuple[float, float, float, float]]] = {}
    for span, (y, tall) in _lanes(spans, places):
        left = span.t_issued - start
        outlines.setdefault(span.fate, []).append((left, span.t_end - span.t_issued, y, tall))
        for phase, _ in _PHASES:
            width = getattr(span, phase)
            if width > 0:
                boxes.setdefault((phase, span.fate), []).append((left, width, y, tall))
                left += width
    colours = dict(_PHASES)
    for (phase, fate), rows in boxes.items():
        left_, width_, y_, tall_ = zip(*rows, strict=True)
        ax.barh(y_, width_, tall_, left_, color=colours[phase], alpha=_LOOKS[fate].alpha, linewidth=0, zorder=2)
    for fate, rows in outlines.items():
        look = _LOOKS[fate]
        if look.outline is None:
            continue
        left_, width_, y_, tall_ = zip(*rows, strict=True)
        line = 1.1 if fate == "failed" else 0.6
        ax.barh(
            y_, width_, tall_, left_, fill=False, edgecolor=look.outline, hatch=look.hatch, linewidth=line, zorder=3
        )


def _lanes(spans: Sequence[Span], places: Mapping[int, int]) -> list[tuple[Span, tuple[float, float]]]:
    """Place attempts of one worker on one line while they follow each other, on several when they overlap."""
    of_slot: dict[int, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.t_issued, s.attempt)):
        of_slot.setdefault(span.slot, []).append(span)
    placed = []
    for slot, mine in of_slot.items():
        ends: list[float] = []
        lane_of = []
        for span in mine:
            lane = next((i for i, end in enumerate(ends) if end <= span.t_issued), len(ends))
            ends[lane : lane + 1] = [span.t_end]
            lane_of.append(lane)
        tall = 0.78 / len(ends)
        for span, lane in zip(mine, lane_of, strict=True):
            placed.append((span, (places[slot] - 0.39 + (lane + 0.5) * tall, tall)))
    return placed


def _mark_decodable(ax: Any, t: float | None, start: float) -> None:
    if t is None:
        return
    ax.axvline(t - start, color="black", linestyle=(0, (4, 2)), linewidth=1.2, zorder=4)
    ax.annotate(
        f"decodable {t - start:.3g} s",
        (t - start, 1.0),
        annotation_clip=False,
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if t - start > 0.7 * ax.get_xlim()[1] else "center",
        va="bottom",
        fontsize=8,
    )


def _finish_axes(ax: Any, name: str, places: Mapping[int, int]) -> None:
    slots = sorted(places, key=places.__getitem__)
    step = next(s for s in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 40) if len(slots) <= 32 * s or s > 512)
    ax.set_yticks(range(0, len(slots), step), [str(slots[i]) for i in range(0, len(slots), step)])
    ax.set_ylim(len(slots) - 0.4, -0.6)
    ax.set_xlabel("seconds since the round was opened", fontsize=9)
    ax.tick_params(labelsize=8)
    ax.grid(axis="x", color="#E5E5E5", linewidth=0.6, zorder=0)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if name:
        ax.set_title(name, fontsize=9, pad=16, loc="left")


def _legend(figure: Any, fates: set[Fate], outside: str) -> None:
    from matplotlib.patches import Patch

    (_, grey), *phases = _PHASES
    handles = [Patch(facecolor=colour, label=name) for name, colour in ((outside, grey), *phases)]
    for fate, look in _LOOKS.items():
        if fate in fates and look.outline is not None:
            handles.append(Patch(facecolor=_PALE[fate], edgecolor=look.outline, hatch=look.hatch, label=look.label))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
