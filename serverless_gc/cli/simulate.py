"""``serverless-gc simulate``: many rounds of several methods in virtual time, thousands of workers if wanted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from serverless_gc.cli.delays import delay_named
from serverless_gc.cli.words import alike, check_picture, make_console
from serverless_gc.errors import InputError
from serverless_gc.plan import Rounds
from serverless_gc.plan import simulate as simulate_rounds
from serverless_gc.plan.table import Entry, latency_table, table_methods
from serverless_gc.stragglers import Law, Trace

__all__ = ["simulate"]

_T = TypeVar("_T")


def simulate(
    codes: Annotated[
        str, typer.Option(help="Names of codes, separated by commas; 'speculative' is uncoded with backup copies.")
    ] = "uncoded,speculative,replication,mds,polar",
    workers: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 64,
    k: Annotated[int | None, typer.Option(min=1, help="Source blocks; three quarters of the workers.")] = None,
    delay: Annotated[
        str,
        typer.Option(
            help="Law of the seconds that an n-th of the data takes, as name:parameter=value,...; or a recorded trace."
        ),
    ] = "lambda",
    trace: Annotated[Path | None, typer.Option(help="Replay this recorded trace instead of a law.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds for each method; 200, or 2000 sampled ones for the table.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the delays.")] = 1,
    table: Annotated[
        bool, typer.Option("--table", help="Instead: eight methods, three laws (or the trace), 64, 256, 1024 workers.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="With --table: draw it into this file.")] = None,
) -> None:
    """Run rounds in virtual time, without computing anything: how long methods take, and what they bill."""
    console = make_console()
    if plot is not None and not table:
        raise InputError("--plot draws the table: give --table as well")
    named = delay_named(delay, trace)
    if table:
        laws = {Path(trace or delay).stem: named.law()} if isinstance(named, Trace) else None
        _print_table(console, laws, rounds or 2000, seed, plot)
        return
    rounds = rounds or 200
    model = named.replay() if isinstance(named, Trace) else named
    names = [name.strip() for name in codes.split(",") if name.strip()]
    if not names:
        raise InputError("--codes must name at least one code: serverless-gc simulate --codes uncoded,mds")
    begun = time.perf_counter()
    methods = table_methods(workers, names, k)
    found = [simulate_rounds(one, model, rounds=rounds, seed=seed) for one in methods]
    took = time.perf_counter() - begun
    console.print(_table([one.label for one in methods], found, rounds))
    if k is not None and (others := [f"{one.name} {one.code.k}" for one in methods if one.code.k != k]):
        console.print(f"Not all can take k = {k}: {', '.join(others)}.", highlight=False)
    events = sum(one.events for one in found)
    console.print(f"{events:,} task events in {took:.1f} s, {events / took:,.0f} a second", highlight=False)


def _print_table(console: Console, laws: Mapping[str, Law] | None, rounds: int, seed: int, plot: Path | None) -> None:
    check_picture(plot)
    entries = latency_table(laws=laws, rounds=rounds, seed=seed)
    console.print(_grid(entries))
    if plot is not None:
        from serverless_gc.observe.latency import plot_latency

        points = [(e.law, e.rounds.name, e.rounds.n_workers, e.rounds.mean, e.rounds.p99) for e in entries]
        plot_latency(points, plot)
        console.print(f"Picture: {plot}")


def _table(labels: Sequence[str], found: Sequence[Rounds], rounds: int) -> Table:
    table = _empty(f"{rounds} simulated rounds for each method")
    table.add_column("method", no_wrap=True)
    for heading in ("workers", "k", "seconds\nmean", "p99", "awaited\nmean", "billed\nseconds", "work", "given\nup"):
        table.add_column(heading, justify="right", no_wrap=True)
    means, p99 = alike(one.mean for one in found), alike(one.p99 for one in found)
    billed = alike(float(one.billed.mean()) for one in found)
    for i, (label, one) in enumerate(zip(labels, found, strict=True)):
        table.add_row(
            label,
            str(one.n_workers),
            str(one.k),
            means[i],
            p99[i],
            f"{one.awaited.mean():.1f}",
            billed[i],
            f"{one.work:.2f}x",
            str(one.failed),
        )
    table.caption = (
        "awaited: results that are here when a round ends. billed: function-seconds of a round, late tasks run on to "
        "their end. work: passes over the data by all tasks issued, copies included."
    )
    return table


def _grid(entries: Sequence[Entry]) -> Table:
    """Lay methods by laws and sizes: mean / p99 seconds, and billed seconds relative to uncoded."""
    sizes = _unique(entry.rounds.n_workers for entry in entries)
    table = _empty("completion time, mean / p99 in seconds, and billed seconds relative to uncoded")
    table.add_column("law", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for n in sizes:
        table.add_column(f"{n} workers", justify="right", no_wrap=True)
    cells = {(e.law, e.rounds.name, e.rounds.n_workers): e.rounds for e in entries}
    for law in _unique(entry.law for entry in entries):
        for i, name in enumerate(_unique(entry.rounds.name for entry in entries)):
            row = []
            for n in sizes:
                one, uncoded = cells[law, name, n], cells[law, "uncoded", n]
                billed = one.billed.mean() / uncoded.billed.mean()
                row.append(f"{one.mean:.3g} / {one.p99:.3g}  {billed:.2f}x")
            table.add_row("" if i else law, name, *row)
        table.add_section()
    table.caption = (
        "Each task holds its method's share of the data. One round of frc waits like one of two copies, but gives a "
        "whole gradient, for which the codes of blocks take two rounds."
    )
    return table


def _empty(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), caption_justify="left")


def _unique(items: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(items))
