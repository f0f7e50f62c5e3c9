"""The commands, their options and what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import serverless_gc

__all__ = ["app"]

app = typer.Typer(
    help="Coded computation on AWS Lambda: gradients and products that do not wait for stragglers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(serverless_gc.__version__)
        raise typer.Exit


@app.command()
def demo(
    backend: Annotated[str | None, typer.Option(help="local, processes, simulated, or aws (a deployed stack).")] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Gradients per method.")] = 12,
    blocks: Annotated[int, typer.Option(min=4, help="Source blocks; 48 need 64 workers at rate 3/4.")] = 48,
    stragglers: Annotated[float, typer.Option(min=0, max=1, help="Fraction of slow tasks.")] = 0.1,
    slowdown: Annotated[float, typer.Option(min=1, help="How many times longer a slow task takes.")] = 10.0,
    service: Annotated[float, typer.Option(min=0, help="Injected service time of a task in seconds.")] = 0.03,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline of a polar round into this file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the stragglers.")] = 0,
) -> None:
    """Train a logistic regression on 327,346 flights by five ways of dealing with stragglers, and compare them."""
    from serverless_gc.cli.demo import METHODS, save_timeline, train
    from serverless_gc.cli.flights import load_flights
    from serverless_gc.inject import Stragglers
    from serverless_gc.observe import progress

    console = Console()
    X, y, _ = load_flights()
    console.print(
        f"{X.shape[0]:,} flights, {X.shape[1]} columns: arrived more than 15 minutes late? "
        f"({y.mean():.1%} did)\n{stragglers:.0%} of tasks are {slowdown:g}x slower than {service * 1e3:g} ms."
    )
    inject = [Stragglers(fraction=stragglers, slowdown=slowdown, seed=seed, base=service)]
    runs = []
    with progress(total=iterations * len(METHODS), desc="gradients") as bar:
        for method in METHODS:
            bar.set_description(method.title)
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
                )  # fmt: skip
            )
    console.print(_comparison(runs))
    if plot is not None:
        save_timeline(runs[-1], plot)
        console.print(f"Timeline of the slowest polar iteration: {plot}")


def _comparison(runs: list[Any]) -> Table:
    """Lay the runs side by side; the first is the reference for the final loss."""
    import numpy as np

    table = Table(title="one iteration = two coded rounds: X w, then X.T r")
    table.add_column("method")
    for heading in ("median s", "p99 s", "awaited / issued", "work", "not used", "decode error", "final loss"):
        table.add_column(heading, justify="right")
    final = runs[0].losses[-1]
    for run in runs:
        issued = run.total("issued")
        table.add_row(
            f"{run.method.title} ({run.n_workers}, {run.k})",
            f"{np.median(run.seconds):.3f}",
            f"{np.percentile(run.seconds, 99):.3f}",
            f"{run.total('awaited') / len(run.reports):.1f} / {issued / len(run.reports):.1f}",
            f"{issued / (2 * run.k * len(run.reports)):.2f}x",
            f"{1 - run.total('used') / issued:.1%}",
            f"{max(run.errors):.0e}",
            f"{run.losses[-1]:.6f}" + ("" if run is runs[0] else f" ({run.losses[-1] - final:+.0e})"),
        )
    table.caption = (
        "awaited / issued: results per iteration; work: tasks issued per source block; "
        "not used: surplus and voided tasks; decode error: against NumPy, worst iteration"
    )
    return table
