"""Which codes and redundancies a planner looks at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from serverless_gc.codes.registry import available, parameters
from serverless_gc.errors import InputError
from serverless_gc.plan.methods import SPECULATIVE, Method, method

__all__ = ["DEFAULT_CODES", "candidates"]

DEFAULT_CODES = ("uncoded", SPECULATIVE, "replication", "mds", "polar", "product", "ldpc", "lt", "frc", "cyclic")
"""What is looked at unless asked otherwise: the baselines and the codes for general use."""

_RATES = (15 / 16, 7 / 8, 3 / 4, 5 / 8, 1 / 2)
_COPIES = (2, 3)
_STRAGGLERS = (1, 2, 3)


def candidates(names: Iterable[str], n_workers: int, task: str) -> Iterator[Method]:
    """Make every code in several redundancies; sizes in which a code does not exist are left out.

    Raises
    ------
    InputError
        If a name is unknown, or of a code for products of two matrices.
    """
    kinds = {info.name: info.kind for info in available()} | {SPECULATIVE: "data"}
    for name in names:
        if name not in kinds or kinds[name] == "matmul":
            method(name, n_workers)  # says which names there are, or why a planner has no use for this one
        if kinds[name] == "gradient" and task != "gradient":
            continue
        for k, params in _sizes(name, kinds[name], n_workers):
            try:
                yield method(name, n_workers, k, **params)
            except InputError:
                continue


def _sizes(name: str, kind: str, n: int) -> Iterator[tuple[int | None, dict[str, int]]]:
    if name in {"uncoded", SPECULATIVE, "product"}:
        yield None, {}
    elif name == "replication":
        for copies in _COPIES:
            if n % copies == 0:
                yield n // copies, {}
    elif kind == "gradient" and "stragglers" in parameters(name):
        for stragglers in _STRAGGLERS:
            yield None, {"stragglers": stragglers}
    elif kind == "gradient":
        yield None, {}
    elif name == "lt":
        for blocks in (2, 4, 8):
            yield blocks * n, {}
    else:
        yield from ((k, {}) for k in sorted({max(1, round(rate * n)) for rate in _RATES}, reverse=True) if k < n)
