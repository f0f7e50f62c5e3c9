"""What runs have left in the store: counting it and deleting it. What is kept under names is not theirs."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from serverless_gc.encode.kept import KEPT
from serverless_gc.errors import InputError
from serverless_gc.store.base import Store

__all__ = ["RunObjects", "Sweep", "choose", "inventory", "parse_age", "sweep"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True)
class RunObjects:
    """Objects of one run. ``newest`` is when it last wrote, in seconds since the epoch."""

    run: str
    keys: tuple[str, ...]
    bytes: int
    newest: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did: objects gone, and key to reason for each that is still there."""

    deleted: int
    failed: dict[str, str]


def parse_age(text: str) -> float:
    """Return the seconds of an age such as ``90m``, ``12h``, ``7d`` or ``2w``.

    Raises
    ------
    InputError
        If it is none.

    Examples
    --------
    >>> parse_age("7d")
    604800.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if not found:
        raise InputError(f"an age is a number and s, m, h, d or w, such as 12h or 7d, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


async def inventory(store: Store) -> list[RunObjects]:
    """List what is stored, by run, the one written to last first.

    Objects that belong to no run are counted under the first part of their key; kept data sets are left out, see
    `serverless_gc.encode.kept.list_kept`.
    """
    keys: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    newest: dict[str, float] = {}
    async for info in store.list():
        first, _, rest = info.key.partition("/")
        if first == KEPT:
            continue
        run = rest.partition("/")[0] if first == "runs" and "/" in rest else f"({first})"
        keys.setdefault(run, []).append(info.key)
        sizes[run] = sizes.get(run, 0) + info.size
        newest[run] = max(newest.get(run, 0.0), info.modified)
    found = [RunObjects(run, tuple(of), sizes[run], newest[run]) for run, of in keys.items()]
    return sorted(found, key=lambda run: -run.newest)


def choose(
    runs: Sequence[RunObjects], *, run: str | None = None, older_than: float = 0.0, now: float | None = None
) -> list[RunObjects]:
    """Choose what to delete: one run, or the runs that last wrote ``older_than`` seconds ago or before.

    A run that still writes is young, however old its data are; it is never taken apart.

    Raises
    ------
    InputError
        If there is no such run.

    Examples
    --------
    >>> runs = [RunObjects("new", ("runs/new/a",), 1, 990.0), RunObjects("old", ("runs/old/a",), 1, 10.0)]
    >>> [r.run for r in choose(runs, older_than=60, now=1000.0)]
    ['old']
    """
    if run is not None:
        chosen = [found for found in runs if found.run == run]
        if not chosen:
            there = ", ".join(found.run for found in runs[:10]) or "nothing"
            raise InputError(f"run {run!r} has no objects; there is {there}")
        return chosen
    limit = (time.time() if now is None else now) - older_than
    return [found for found in runs if found.newest <= limit]


async def sweep(store: Store, runs: Sequence[RunObjects]) -> Sweep:
    """Delete the objects of these runs, a thousand a request.

    Returns
    -------
    Sweep
        Objects that could not be deleted are named in ``failed``.
    """
    keys = [key for run in runs for key in run.keys]
    failed = dict(await store.delete(keys))
    return Sweep(len(keys) - len(failed), failed)
