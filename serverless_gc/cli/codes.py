"""``serverless-gc codes``: which codes there are, and what one of them costs."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.words import make_console
from serverless_gc.codes import Code, available, get
from serverless_gc.codes.received import doubtful_error
from serverless_gc.codes.registry import code_class
from serverless_gc.codes.threshold import arrivals_needed, first_messages, neighbours_needed, predicted_errors
from serverless_gc.errors import InputError

__all__ = ["codes"]

_ROWS, _COLUMNS, _ENTRIES = 100, 200, 1 << 25
"""Shape of a block of the timing, and most entries of all of them: some megabytes, more than a cache holds."""


def codes(
    name: Annotated[str | None, typer.Argument(help="Tell of this one: parameters, threshold, costs.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of workers.")] = None,
    k: Annotated[int | None, typer.Option(min=1, help="Number of source blocks or partitions.")] = None,
    trials: Annotated[int, typer.Option(min=10, help="Random orders of arrival to try.")] = 500,
) -> None:
    """List the codes, or tell of one what it takes, how many results it waits for, and what it costs."""
    console = make_console()
    if name is None:
        if workers is not None or k is not None:
            raise InputError("--workers and --k go with a code's name: serverless-gc codes polar --workers 64")
        console.print(_listed())
        return
    code = get(name, n_workers=workers, k=k)
    info = next(info for info in available() if info.name == name)
    rounding = _rounding(code)
    exact = f"exact{', but for rounding' if rounding else ''}" if info.exact else "approximate"
    console.print(f"[bold]{name}[/bold] ({info.kind}, {exact})\n{info.summary}\n")
    console.print(_parameters(code))
    for line in (*_facts(code, trials, "always enough but for rounding" if rounding else "always enough"), *rounding):
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
    if code.guard is None or (errors := predicted_errors(code, trials)) is None:
        return []
    neighbours = neighbours_needed(code)
    assert neighbours is not None  # noqa: S101 - it predicts
    predicted, arrivals = neighbours
    limit = doubtful_error(np.float64)
    if max(predicted, errors.max()) <= limit:
        return []
    return [
        f"rounding: relative error up to {errors.max():.0e} from the first results that decode ({trials} orders)",
        f"    {predicted:.0e} if workers answer in their order: {arrivals} results are then awaited, for {limit:.0e}",
    ]


def _facts(code: Code, trials: int, enough: str) -> list[str]:
    lines = []
    found = arrivals_needed(code, trials)
    n = code.n_workers
    if found.never < 1:
        lines.append(
            f"results awaited of {n}: mean {found.mean:.1f}, 95 % of rounds {found.p95:.0f}, "
            f"most {found.worst} (of {trials} random orders)"
        )
    elif not code.exact:
        lines.append(f"approximate: never exact, each result lowers the error ({trials} random orders of {n} results)")
    if (sure := getattr(code, "guaranteed_threshold", None)) is not None:
        lines.append(f"{enough}: any {sure}")
    if code.kind in {"data", "gradient"} and code.target == "blocks":
        encode, decode = _costs(code)
        lines.append(f"encode: {encode:.1f} times a memory copy of the coded blocks (measured here)")
        lines.append(f"decode: {decode:.1f} times a memory copy of the source blocks (measured here)")
    return lines


def _costs(code: Code) -> tuple[float, float]:
    """Time encode and decode, the latter from the workers of one random order, as multiples of a copy."""
    rng = np.random.default_rng(0)
    width = max(1, min(_COLUMNS, _ENTRIES // (_ROWS * code.n_messages)))
    blocks = rng.normal(size=(code.k, _ROWS, width))
    coded = code.encode(blocks)
    blocks = blocks.astype(coded.dtype)
    copied, answer = coded.copy(), np.empty_like(blocks)
    encode = _seconds(lambda: code.encode(blocks, coded)) / _seconds(lambda: np.copyto(copied, coded))
    messages = first_messages(code, rng.permutation(code.n_workers).tolist())
    values = {message: coded[message] for message in messages}
    decode = _seconds(lambda: code.decode(values, out=answer))
    return encode, decode / _seconds(lambda: np.copyto(answer, blocks))


def _seconds(run: Callable[[], object], repeats: int = 5) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
