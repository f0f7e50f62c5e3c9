"""Codes of one size for a comparison: by workers and load, or the nearest that exist."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.codes.registry import code_class, get
from serverless_gc.errors import InputError
from serverless_gc.plan.rounds import shares

__all__ = ["Sized", "sized"]


@dataclass(frozen=True, slots=True)
class Sized:
    """A code, and in what it differs from what was asked for.

    Attributes
    ----------
    code
        The code.
    note
        One sentence, or an empty string where the sizes are those asked for.
    """

    code: Code
    note: str


def sized(name: str, n_workers: int, load: int | None = None) -> Sized:
    """Make a code for so many workers that each hold so many ``n_workers``-ths of the data, or the nearest size.

    Parameters
    ----------
    name
        Of the code.
    n_workers
        Number of workers.
    load
        For a gradient code its load, which tolerates ``load - 1`` stragglers where it is exact, and in a tree as many
        missing children as come nearest to it; for a code of blocks the redundancy ``n_workers / k``. The code's own
        choice if None. Codes without redundancy have none.

    Raises
    ------
    InputError
        If the name is unknown, a number is out of range, or no size in reach fits.

    Examples
    --------
    >>> sized("mds", 30, 3).code.k, sized("frc", 30, 3).note
    (10, '')
    >>> sized("bibd", 30, 3).note
    'bibd: no code of 30 workers and load 3; the nearest has 31 workers and load 6'
    """
    n_workers = check_whole("workers", n_workers, 1)
    load = None if load is None else check_whole("load", load, 1)
    if load is not None and load > n_workers:
        raise InputError(f"load must be at most the number of workers, {n_workers}, got {load}")
    try:
        return _told(name, _made(name, n_workers, load), n_workers, load)
    except InputError as error:
        code_class(name)  # an unknown name is not a matter of size
        first = error
    for n, held in _near(n_workers, load if _scales(name) else None):
        try:
            code = _made(name, n, held)
        except InputError:
            continue
        return _told(name, code, n_workers, load)
    raise first


def _told(name: str, code: Code, n_workers: int, load: int | None) -> Sized:
    """Say what differs; the load of a code without redundancy, and of a random draw, is no surprise."""
    found_out = isinstance(code, CodedReduceCode) or (isinstance(code, GradientCode) and not _scales(name))
    follows = load is not None and found_out
    if code.n_workers == n_workers and not (follows and _held(code) not in {1, load}):
        return Sized(code, "")
    asked = f"{n_workers} workers" + ("" if load is None else f" and load {load}")
    found = f"{code.n_workers} workers" + ("" if load is None else f" and load {round(_held(code), 2):g}")
    return Sized(code, f"{name}: no code of {asked}; the nearest has {found}")


def _held(code: Code) -> float:
    """Return what a worker holds, in ``n_workers``-ths of the data."""
    return round(float(shares(code).mean()) * code.n_workers, 6)


def _near(n_workers: int, load: int | None) -> Iterator[tuple[int, int | None]]:
    """Go through other sizes, nearest first; another number of workers weighs four times another load."""
    loads: list[int | None] = [None] if load is None else list(range(1, 3 * load + 4))
    sizes = range(max(1, n_workers // 2), 2 * n_workers + 1)

    def distance(size: tuple[int, int | None]) -> float:
        apart = 4 * abs(size[0] - n_workers) / n_workers
        return apart if load is None or size[1] is None else apart + abs(size[1] - load) / load

    every = [(n, held) for n in sizes for held in loads if held is None or held <= n]
    return iter(sorted(every, key=distance)[1:])


def _scales(name: str) -> bool:
    """Whether the code can be asked for a load."""
    cls = code_class(name)
    return not issubclass(cls, GradientCode) or not {"load", "stragglers"}.isdisjoint(inspect.signature(cls).parameters)


def _made(name: str, n_workers: int, load: int | None) -> Code:
    cls = code_class(name)
    takes = inspect.signature(cls).parameters
    if load is None:
        return get(name, n_workers=n_workers)
    if not issubclass(cls, GradientCode):
        return get(name, n_workers=n_workers, k=n_workers if name == "uncoded" else max(1, n_workers // load))
    asked: dict[str, Any] = {}
    if issubclass(cls, CodedReduceCode):
        asked = {"stragglers": _missing_children(cls(n_workers, stragglers=0), load)}
    elif "load" in takes:
        asked = {"load": load}
    elif "stragglers" in takes:
        asked = {"stragglers": load - 1}
    return get(name, n_workers=n_workers, **asked)


def _missing_children(tree: CodedReduceCode, load: int) -> int:
    """Return how many children parents may miss so that workers hold most nearly so much."""

    def held(s: int) -> float:
        shares_of_all = sum((tree.branching / (s + 1)) ** level for level in range(1, tree.depth + 1))
        return tree.n_workers / shares_of_all

    return min(range(tree.branching), key=lambda s: abs(held(s) - load))
