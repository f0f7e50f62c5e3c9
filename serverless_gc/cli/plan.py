"""``serverless-gc plan``: which code, how much redundancy, how many workers, and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.delays import delay_named
from serverless_gc.cli.words import make_console
from serverless_gc.errors import InputError
from serverless_gc.plan import Advice, Platform, recommend
from serverless_gc.plan.candidates import DEFAULT_CODES
from serverless_gc.plan.choice import Goal
from serverless_gc.plan.explain import seconds_in_words
from serverless_gc.plan.memory import Task
from serverless_gc.plan.prices import prices_of
from serverless_gc.stragglers import Trace

__all__ = ["plan"]


def plan(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the matrix.")],
    cols: Annotated[int, typer.Option(min=1, help="Columns of the matrix.")],
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float64",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers; several are tried if not given.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars that one computation may cost.")] = None,
    goal: Annotated[Goal, typer.Option(help="What should be small.")] = "mean time",
    delay: Annotated[
        str | None,
        typer.Option(help="Law of one worker's share, as name:parameter=value,..., or a trace; else estimated."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Take the delays from this recorded trace.")] = None,
    measured_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Among how many workers the matrix was shared when delays were measured; as many as the trace holds.",
        ),
    ] = None,
    tolerance: Annotated[float | None, typer.Option(help="Largest acceptable relative error.")] = None,
    task: Annotated[Task, typer.Option(help="What is computed.")] = "gradient",
    rounds: Annotated[int, typer.Option(min=1, help="How often it is repeated on the same data.")] = 100,
    codes: Annotated[str, typer.Option(help="Names to choose from, separated by commas.")] = ",".join(DEFAULT_CODES),
    memory: Annotated[int, typer.Option(help="Megabytes of the function.")] = 1769,
    concurrency: Annotated[int, typer.Option(min=1, help="Functions that the account runs at once.")] = 1000,
    region: Annotated[str, typer.Option(help="For the prices.")] = "us-east-1",
    architecture: Annotated[str, typer.Option(help="arm64 or x86_64.")] = "arm64",
) -> None:
    """Rank codes and redundancies by time or cost before anything runs; say why, and what does not fit."""
    if delay is not None and trace is not None:
        raise InputError("--delay and --trace both say how long tasks take: give one of them")
    delays = None if delay is None and trace is None else delay_named(delay or "", trace)
    if isinstance(delays, Trace) and measured_workers is None:
        measured_workers = delays.n_slots
    if delays is not None and workers is None and measured_workers is None:
        raise InputError(
            "--delay is the law of one worker's share: say among how many workers, by --workers or --measured-workers"
        )
    advice = recommend(
        rows,
        cols,
        dtype,
        n_workers=workers,
        budget=budget,
        delay=delays,
        measured_workers=measured_workers,
        goal=goal,
        tolerance=tolerance,
        task=task,
        rounds=rounds,
        codes=[name.strip() for name in codes.split(",") if name.strip()],
        platform=Platform(memory_mb=memory, concurrency=concurrency, prices=prices_of(region, architecture)),
    )
    console = make_console()
    console.print(_table(advice))
    console.print(advice.explain(), soft_wrap=True, highlight=False)


def _table(advice: Advice) -> Table:
    table = Table(
        title=f"one {advice.problem.task}, the best by {advice.goal} first",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption_justify="left",
    )
    table.add_column("code", no_wrap=True)
    for heading in ("workers", "k", "mean", "p99", "dollars", "awaited", "work", "encode\nonce", "decode"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in advice.choices:
        table.add_row(
            one.label,
            str(one.code.n_workers),
            str(one.code.k),
            seconds_in_words(one.mean),
            seconds_in_words(one.p99),
            f"{one.cost.total:.3g}",
            f"{one.awaited:.1f}",
            f"{one.work:.2f}x",
            seconds_in_words(one.encode),
            seconds_in_words(one.decode),
        )
    return table
