"""The usual comparison: completion time and billed work of every kind of method under several laws and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serverless_gc.codes.threshold import count_awaited
from serverless_gc.errors import InputError
from serverless_gc.plan.methods import SPECULATIVE, Method, method
from serverless_gc.plan.montecarlo import Independent, sample_rounds
from serverless_gc.plan.results import Rounds
from serverless_gc.stragglers import Pareto, ShiftedExponential, lambda_short

__all__ = ["TABLE_LAWS", "TABLE_METHODS", "TABLE_SIZES", "Entry", "latency_table", "table_methods"]

TABLE_SIZES = (64, 256, 1024)

_ORDERS = 100
"""Random orders of arrival from which the threshold of each method is estimated."""

TABLE_METHODS = ("uncoded", SPECULATIVE, "replication", "mds", "polar", "product", "lt", "frc")

TABLE_LAWS: dict[str, Independent] = {
    "shifted exponential": ShiftedExponential(shift=1.0, rate=1.0),
    "Pareto": Pareto(minimum=1.0, alpha=2.2),
    "Lambda-like": lambda_short(),
}
"""Laws of the seconds that a task of an n-th of the data takes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One method under one law."""

    law: str
    rounds: Rounds


def table_methods(n_workers: int, names: Sequence[str] = TABLE_METHODS, k: int | None = None) -> list[Method]:
    """Make methods of comparable redundancy: rate 3/4, or what is nearest to it; two copies where blocks are copied.

    Parameters
    ----------
    n_workers
        Number of workers.
    names
        Which methods.
    k
        Number of blocks; three quarters of the workers if None. Methods that need another number take it: two copies
        half the workers, ``"lt"`` twice as many, grids and gradient codes their own.

    Raises
    ------
    InputError
        If a code of blocks does not exist with so many.
    """
    return [_of_size(name, n_workers, k) for name in names]


def _of_size(name: str, n: int, k: int | None) -> Method:
    blocks = max(1, 3 * n // 4) if k is None else k
    if name == "replication":
        return method(name, n, n // 2)
    if name == "lt":
        return method(name, n, 4 * blocks // 2)  # several messages a worker: small blocks suit it
    if name == "product":
        return method(name, n)
    if name == "frc":
        return method(name, n, stragglers=1)
    try:
        return method(name, n, blocks)
    except InputError:
        if k is not None:
            raise
        return method(name, n)  # three quarters were our choice, not the caller's


def latency_table(
    *,
    laws: Mapping[str, Independent] | None = None,
    sizes: Sequence[int] = TABLE_SIZES,
    names: Sequence[str] = TABLE_METHODS,
    rounds: int = 2000,
    seed: int = 1,
) -> list[Entry]:
    """Sample every method under every law and size.

    Raises
    ------
    InputError
        If there is nothing to compare.

    Examples
    --------
    >>> table = latency_table(sizes=[64], names=["uncoded", "mds"], rounds=500)
    >>> [(entry.law, entry.rounds.name) for entry in table][:2]
    [('shifted exponential', 'uncoded'), ('shifted exponential', 'mds')]
    """
    chosen = TABLE_LAWS if laws is None else laws
    if not chosen or not sizes or not names:
        raise InputError("a table needs at least one law, one size and one method")
    entries = []
    for n in sizes:
        methods = [(one, count_awaited(one.code, _ORDERS, seed)) for one in table_methods(n, names)]
        for law, delay in chosen.items():
            entries += [
                Entry(law, sample_rounds(one, delay, rounds=rounds, seed=seed, needed=needed))
                for one, needed in methods
            ]
    return entries
