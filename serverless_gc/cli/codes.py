"""``serverless-gc codes``: which codes there are, and what one of them costs."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.costs import measure_costs
from serverless_gc.cli.words import make_console
from serverless_gc.codes import Code, available, get
from serverless_gc.codes.received import doubtful_error
from serverless_gc.codes.registry import code_class, completed
from serverless_gc.codes.threshold import Threshold, arrivals_needed, neighbours_needed, predicted_errors
from serverless_gc.errors import InputError

__all__ = ["codes"]

_MOST = 100_000
"""Workers, and blocks, of codes that are tried out here."""

_PATIENCE = 2.0
"""Seconds for each figure that is drawn many times; of large codes it is drawn less often."""


def codes(
    name: Annotated[str | None, typer.Argument(help="Tell of this one: parameters, threshold, costs.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=_MOST, help="Number of workers.")] = None,
    k: Annotated[int | None, typer.Option(min=1, max=_MOST, help="Number of source blocks or partitions.")] = None,
    trials: Annotated[int, typer.Option(min=10, help="Random orders of arrival to try.")] = 500,
) -> None:
    """List the codes, or tell of one what it takes, how many results it waits for, and what it costs."""
    console = make_console()
    if name is None:
        if workers is not None or k is not None:
            raise InputError("--workers and --k go with a code's name: serverless-gc codes polar --workers 64")
        console.print(_listed())
        return
    if max(completed(name, workers, k) or (0, 0)) > _MOST:
        raise InputError(f"{name} would have more than {_MOST:,} workers or blocks: give --workers and --k, smaller")
    code = get(name, n_workers=workers, k=k)
    info = next(info for info in available() if info.name == name)
    found = _tried(code, trials)  # or refused, before anything else takes long
    rounding = _rounding(code)
    exact = f"exact{', but for rounding' if rounding else ''}" if info.exact else "approximate"
    console.print(f"[bold]{name}[/bold] ({info.kind}, {exact})\n{info.summary}\n")
    console.print(_parameters(code))
    for line in (*_facts(code, found, "always enough but for rounding" if rounding else "always enough"), *rounding):
        console.print(line)


def _listed() -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "kind", "exact", "summary"):
        table.add_column(heading, no_wrap=heading != "summary")
    for info in available():
        table.add_row(info.name, info.kind, "yes" if info.exact else "no", info.summary)
    table.caption = "serverless-gc codes NAME tells of one."
    return table


def _parameters(code: Code) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("parameter", "default", "here"):
        table.add_column(heading, no_wrap=True)
    chosen = {"n_workers": code.n_workers, "k": code.k, **code.params()}
    for parameter in inspect.signature(code_class(code.name)).parameters.values():
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        here = chosen.get(parameter.name, parameter.default)  # nothing but the sizes was given
        table.add_row(parameter.name, default, _short(here))
    return table


def _short(value: Any, most: int = 40) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _rounding(code: Code, trials: int = 20) -> list[str]:
    """Say how accurate answers are, of codes that lose digits to some sets of results."""
    if code.guard is None or (errors := predicted_errors(code, trials, seconds=_PATIENCE)) is None:
        return []
    predicted, arrivals = neighbours_needed(code, seconds=_PATIENCE) or (0.0, None)
    limit = doubtful_error(np.float64)
    if max(predicted, errors.max()) <= limit:
        return []
    awaited = "more" if arrivals is None else f"{arrivals}"
    return [
        f"rounding: relative error up to {errors.max():.0e} from the first results that decode ({len(errors)} orders)",
        f"    {predicted:.0e} if workers answer in their order: {awaited} results are then awaited, for {limit:.0e}",
    ]


def _tried(code: Code, trials: int) -> Threshold:
    found = arrivals_needed(code, trials, seconds=_PATIENCE)
    if not found.trials:
        raise InputError(
            f"one order of arrival of {code.n_workers:,} results of {code.k:,} blocks takes more than {_PATIENCE:g} s: "
            "give fewer --workers, or a smaller --k"
        )
    return found


def _facts(code: Code, found: Threshold, enough: str) -> list[str]:
    lines = []
    n = code.n_workers
    if found.never < 1:
        lines.append(
            f"results awaited of {n}: mean {found.mean:.1f}, 95 % of rounds {found.p95:.0f}, "
            f"most {found.worst} (of {found.trials} random orders)"
        )
    elif not code.exact:
        lines.append(
            f"approximate: never exact, each result lowers the error ({found.trials} random orders of {n} results)"
        )
    if (sure := getattr(code, "guaranteed_threshold", None)) is not None:
        lines.append(f"{enough}: any {sure}")
    try:
        costs = measure_costs(code)
    except InputError as error:  # coefficients that are not needed to track it do not fit
        return [*lines, f"encode and decode: not measured, {error}"]
    lines.append(f"encode: {costs.encode:.1f} times a memory copy of {costs.encoded} (measured here)")
    lines.append(f"decode: {costs.decode:.1f} times a memory copy of {costs.decoded} (measured here)")
    return lines
