"""``serverless-gc trace``: what is in a recorded trace of delays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.words import make_console
from serverless_gc.errors import InputError
from serverless_gc.plan.explain import seconds_in_words
from serverless_gc.stragglers import Trace, hazard
from serverless_gc.types import Array

__all__ = ["trace"]

_PHASES = ("queued", "read", "compute", "write")


def trace(file: Annotated[Path, typer.Argument(help="Written by serverless-gc demo --record, or Trace.save.")]) -> None:
    """Show how long recorded tasks took, phase by phase, and what that says of late ones."""
    recorded = Trace.load(file)
    console = make_console()
    done = recorded.finished > 0
    given_up, copies = int((~done).sum()), int((recorded.rows[:, 2] > 0).sum())
    about = "".join(f", {key} {value}" for key, value in recorded.about.items())
    console.print(
        f"{file.name}: {recorded.n_rounds} rounds of {recorded.n_slots} slots, {len(done)} attempts ({copies} of them "
        f"retries or copies), {int(done.sum())} finished, {given_up} given up{about}",
        soft_wrap=True,
        highlight=False,
    )
    console.print(_table(recorded, done))
    law = recorded.law()
    console.print(
        f"With those given up: mean {seconds_in_words(law.mean())}, median {seconds_in_words(law.quantile(0.5))}, "
        f"p99 {seconds_in_words(law.quantile(0.99))}, longest {seconds_in_words(float(law.seconds[-1]))}",
        highlight=False,
    )
    console.print(_advice(recorded, done), soft_wrap=True, highlight=False)


def _table(recorded: Trace, done: Array) -> Table:
    title = "seconds of the finished attempts"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("phase", no_wrap=True)
    for heading in ("mean", "median", "p95", "p99", "longest", "p99 / median"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = {"total": recorded.totals[done]}
    rows |= {name: recorded.rows[done, 4 + i] for i, name in enumerate(_PHASES)}
    for name, seconds in rows.items():
        middle, p95, p99 = np.quantile(seconds, [0.5, 0.95, 0.99])
        ratio = f"{p99 / middle:.2f}" if middle > 0 else "-"
        figures = (seconds.mean(), middle, p95, p99, seconds.max())
        table.add_row(name, *(seconds_in_words(float(x)) for x in figures), ratio)
    return table


def _advice(recorded: Trace, done: Array) -> str:
    try:
        found = hazard(recorded.totals[done], recorded.totals[~done])
    except InputError as few:
        return f"Whether late tasks should be kept or given up cannot be told: {few}"
    what = {
        "keep": "old tasks end sooner than fresh ones would: keep late tasks (leftover='keep')",
        "cancel": "old tasks take longer than fresh ones would: give late tasks up (leftover='cancel')",
        "either": "old tasks take about as long as fresh ones: keeping and giving up late tasks is equal",
    }
    return f"Counted {found.seen()}; {what[found.leftover]}."
