"""The commands, their options and what they print."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

import serverless_gc
from serverless_gc.cli.build import build
from serverless_gc.cli.clean import clean, destroy
from serverless_gc.cli.codes import codes
from serverless_gc.cli.compare import compare
from serverless_gc.cli.data import data_app
from serverless_gc.cli.deploy import deploy
from serverless_gc.cli.doctor import doctor, status
from serverless_gc.cli.plan import plan
from serverless_gc.cli.settings import config_app
from serverless_gc.cli.simulate import simulate
from serverless_gc.cli.trace import trace
from serverless_gc.cli.train import train
from serverless_gc.cli.words import check_deployed, check_picture, check_writable, make_console
from serverless_gc.errors import InputError

__all__ = ["app"]

app = typer.Typer(
    help="Coded computation on AWS Lambda: gradients and products that do not wait for stragglers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(serverless_gc.__version__)
        raise typer.Exit


app.command()(build)
app.command()(codes)
app.command()(compare)
app.command()(deploy)
app.command()(doctor)
app.command()(status)
app.command()(simulate)
app.command()(plan)
app.command()(trace)
app.command()(train)
app.command()(clean)
app.command()(destroy)
app.add_typer(config_app, name="config")
app.add_typer(data_app, name="data")


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    del version  # acted upon by its callback


@app.command()
def demo(
    backend: Annotated[str | None, typer.Option(help="local, processes, simulated, or aws (a deployed stack).")] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Gradients per method; 12, or 3 with --offline.")
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option(min=4, help="Source blocks; 48, which need 64 workers at rate 3/4, or 12 with --offline."),
    ] = None,
    stragglers: Annotated[float, typer.Option(min=0, max=1, help="Fraction of slow tasks.")] = 0.1,
    slowdown: Annotated[float, typer.Option(min=1, help="How many times longer a slow task takes.")] = 10.0,
    service: Annotated[float, typer.Option(min=0, help="Injected service time of a task in seconds.")] = 0.03,
    rows: Annotated[int | None, typer.Option(min=100, help="Use only so many flights, spread over the year.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline of a polar round into this file.")] = None,
    record: Annotated[Path | None, typer.Option(help="Save the delays of the uncoded run as a trace.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the stragglers.")] = 0,
    offline: Annotated[
        bool, typer.Option("--offline", help="With --backend aws: on an emulated account of this machine.")
    ] = False,
) -> None:
    """Train a logistic regression on real flights by five ways of dealing with stragglers, and compare them."""
    from tqdm.auto import tqdm

    from serverless_gc.cli.demo import METHODS, save_timeline, save_trace, train
    from serverless_gc.cli.flights import load_flights
    from serverless_gc.cli.offline import offline_account
    from serverless_gc.inject import Stragglers

    if offline and backend != "aws":
        raise InputError("--offline emulates the account of --backend aws: give both")
    iterations = iterations or (3 if offline else 12)
    blocks = blocks or (12 if offline else 48)
    check_picture(plot)
    check_writable("--record", record)
    if backend == "aws" and not offline:
        check_deployed()
    console = make_console()
    X, y, _ = load_flights()
    if rows is not None:
        spread = np.linspace(0, len(y) - 1, min(rows, len(y))).astype(int)
        X, y = X[spread], y[spread]
    console.print(
        f"{X.shape[0]:,} flights, {X.shape[1]} columns: arrived more than 15 minutes late? ({y.mean():.1%} did)\n"
        f"{stragglers:.0%} of tasks take {slowdown:g}x the service time of {service * 1e3:g} ms."
    )
    inject = [Stragglers(fraction=stragglers, slowdown=slowdown, seed=seed, base=service)]
    runs = []
    account = offline_account() if offline else contextlib.nullcontext()
    with account, tqdm(total=iterations * len(METHODS), unit="gradient", disable=not sys.stderr.isatty()) as bar:
        for method in METHODS:
            bar.set_description(method.title)
            if offline:
                console.print(f"{method.title} ...")  # each takes a while, and the bar is for terminals
            runs.append(
                train(
                    X,
                    y,
                    method,
                    k=blocks,
                    iterations=iterations,
                    inject=inject,
                    backend=backend,
                    on_iteration=bar.update,
                )
            )
    console.print(_comparison(runs))
    if record is not None:
        save_trace(runs[0], record)
        console.print(f"Recorded delays: {record}; serverless-gc trace tells of them.")
    if plot is not None:
        save_timeline(runs[-1], plot)
        console.print(f"Timeline of a typical polar iteration: {plot}")


def _comparison(runs: list[Any]) -> Table:
    """Lay the runs side by side; the first is the reference for the final loss."""
    table = Table(
        title="one iteration = one gradient = two coded rounds, X w and X.T r",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    headings = (
        *("workers", "median\nseconds", "p99\nseconds", "awaited\n/ issued", "work"),
        *("unused", "decode\nerror", "final\nloss", "minus\nuncoded"),
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        issued, n = run.total("issued"), len(run.reports)
        table.add_row(
            run.method.title,
            str(run.n_workers),
            f"{np.median(run.seconds):.3f}",
            f"{np.percentile(run.seconds, 99):.3f}",
            f"{run.total('awaited') / n:.0f} / {issued / n:.0f}",
            f"{issued / (2 * run.k * n):.2f}x",
            f"{1 - run.total('used') / issued:.1%}",
            f"{max(run.errors):.0e}",
            f"{run.losses[-1]:.6f}",
            f"{run.losses[-1] - runs[0].losses[-1]:+.0e}",
        )
    table.caption = (
        f"{runs[0].k} source blocks; the first two methods are uncoded. awaited / issued: results and tasks per "
        "iteration. work: tasks issued per block. unused: surplus and given-up tasks. decode error: gradient against "
        "NumPy, worst iteration."
    )
    if runs[0].reports[0].simulated:
        table.caption += " seconds: on a simulated clock, but for the driver's own."
    return table
