"""``serverless-gc compare``: several codes in the same simulated rounds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.delays import law_named
from serverless_gc.cli.words import check_picture, make_console
from serverless_gc.codes import Code
from serverless_gc.errors import InputError

if TYPE_CHECKING:
    from serverless_gc.plan import Comparison, Sized

__all__ = ["compare"]

_EXACT = 1e-12
"""Errors below this are rounding."""


def compare(
    codes: Annotated[str, typer.Option(help="Names of codes, separated by commas; see serverless-gc codes.")],
    workers: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 30,
    load: Annotated[
        int | None,
        typer.Option(min=1, help="Share of the data that a worker holds, in n-ths; each code's own if not given."),
    ] = None,
    stragglers: Annotated[float, typer.Option(min=0, max=1, help="Fraction of slow tasks.")] = 0.1,
    slowdown: Annotated[float, typer.Option(min=1, help="How many times longer a slow task takes.")] = 10.0,
    delay: Annotated[
        str, typer.Option(help="Law of the seconds that an n-th of the data takes, as name:parameter=value,...")
    ] = "shifted-exponential:shift=1,rate=2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds for each code.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of delays and stragglers.")] = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Draw decode errors against missing workers into this file.")
    ] = None,
) -> None:
    """Run several codes through the same simulated rounds: how exact, how fast, how much work each is."""
    from serverless_gc.plan import compare as compare_codes
    from serverless_gc.plan import sized

    names = [name.strip() for name in codes.split(",") if name.strip()]
    if not names:
        raise InputError("--codes must name at least one code: serverless-gc compare --codes frc,bgc")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"--codes names {twice[0]!r} twice: name every code once")
    check_picture(plot)
    law = law_named(delay)
    chosen = [sized(name, workers, load) for name in names]
    found = compare_codes(
        [one.code for one in chosen],
        delay=law,
        stragglers=stragglers,
        slowdown=slowdown,
        rounds=rounds,
        seed=seed,
        unit=1 / workers,
    )
    console = make_console()
    console.print(_table(found, rounds))
    for note in _notes(found, chosen, rounds):
        console.print(note, soft_wrap=True, highlight=False)
    if plot is not None:
        _draw([one.code for one in chosen], plot, stragglers, seed)
        console.print(f"Decode errors against missing workers: {plot}")


def _table(found: Sequence[Comparison], rounds: int) -> Table:
    table = Table(
        title=f"{rounds} simulated rounds for each code",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption_justify="left",
    )
    table.add_column("code", no_wrap=True)
    headings = ("workers", "load", "error\nmean", "error\nworst", "error\nbound", "awaited\nmean / p95")
    for heading in (*headings, "seconds\nmean / p99", "work"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.name,
            str(one.n_workers),
            f"{one.load:.3g} of {one.k}",
            _error(one.error_mean),
            _error(one.error_worst),
            "-" if one.error_bound is None else _error(one.error_bound),
            f"{one.arrivals_mean:.1f} / {one.arrivals_p95:.0f}",
            f"{one.seconds_mean:.3g} / {one.seconds_p99:.3g}",
            f"{one.work:.2f}x",
        )
    table.caption = (
        "load: partitions or blocks of a worker. error: squared, per partition; its bound is for the results awaited, "
        "whichever are missing, - where none is known. awaited: results in the answer, of all levels in a tree. "
        "work: passes over the data by all tasks issued."
    )
    return table


def _notes(found: Sequence[Comparison], chosen: Sequence[Sized], rounds: int) -> list[str]:
    given_up = [f"{one.name}: {one.given_up} of {rounds} rounds had no answer" for one in found if one.given_up]
    rounded = [
        f"{one.name}: rounding, which the errors above leave out, reached a relative error of {one.rounding:.0e}"
        for one in found
        if one.rounding is not None and one.rounding > _EXACT
    ]
    return [one.note for one in chosen if one.note] + given_up + rounded


def _error(value: float) -> str:
    return "0" if value < _EXACT else f"{value:.1e}"


def _draw(codes: Sequence[Code], path: Path, stragglers: float, seed: int) -> None:
    from serverless_gc.observe.curves import plot_errors
    from serverless_gc.plan import error_curve

    curves = [error_curve(code, seed=seed) for code in codes]
    sizes = sorted({code.n_workers for code in codes})
    workers = f"{sizes[0]} workers" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} workers"
    plot_errors(curves, path, f"Decode error of {workers}, best weights", mark=stragglers)
