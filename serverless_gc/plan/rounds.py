"""Rounds of one code in virtual time, with work in proportion to the data that each worker holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Code
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.engine import Engine, RoundOutcome, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.inject import Selection, Stragglers
from serverless_gc.policies import natural_policy
from serverless_gc.stragglers import Injected, Loaded, ShiftedExponential
from serverless_gc.types import FloatArray, StragglerModel, WaitPolicy

__all__ = ["shares", "simulated_rounds"]


def shares(code: Code) -> FloatArray:
    """Return the share of the data that each worker computes on, shape ``(n_workers,)``.

    Columns that a code leaves out are no work, nor is what a worker of a tree adds of its children's results.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> shares(get("replication", n_workers=4, k=2)).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    if isinstance(code, CodedReduceCode):
        return np.full(code.n_workers, code.units_each / code.k)
    held = np.empty(code.n_workers)
    for worker in range(code.n_workers):
        messages = code.placement(worker)
        if isinstance(code, GradientCode):
            held[worker] = len({j for message in messages for j in code.row(message)[0]})
            if isinstance(code, EncodedCode):  # a part of the encoded rows, of which there are more
                held[worker] *= code.beta
        else:
            support = code.support
            held[worker] = len(messages) if support is None else sum(map(support.share, messages))
    return held / code.k


def simulated_rounds(
    code: Code,
    rounds: int,
    *,
    delay: StragglerModel | None = None,
    stragglers: Selection = 0.1,
    slowdown: float = 10.0,
    seed: int = 0,
    unit: float | None = None,
    policy: WaitPolicy | None = None,
    dtype: DTypeLike = np.float64,
) -> Iterator[RoundOutcome]:
    """Simulate rounds of one code, without computing anything: who answered, and when each round closed.

    In a tree a worker begins when enough of its children have ended; reading their results takes no time.

    Parameters
    ----------
    code
        The code; a task takes time in proportion to the share of the data that its worker holds.
    rounds
        How many rounds.
    delay
        Law of a task of one unit of work; a second and an exponential part of half a second if None.
    stragglers, slowdown
        Fraction of tasks, or the workers, that are so many times slower.
    seed
        Of delays and stragglers.
    unit
        Share of the data that is one unit of work; what a worker holds uncoded if None.
    policy
        When to close; the code's natural rule if None.
    dtype
        Of the messages: in single precision that rule waits for accuracy more often.

    Yields
    ------
    RoundOutcome
        One per round, the clock going on.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> from serverless_gc.stragglers import Constant
    >>> rounds = simulated_rounds(get("mds", n_workers=4, k=2), 2, delay=Constant(1.0), stragglers={0})
    >>> [one.t_close for one in rounds]
    [2.0, 4.0]
    """
    if unit is not None and not 0 < unit <= 1:
        raise InputError(f"unit must be a share of the data, above 0 and at most 1, got {unit}")
    law = ShiftedExponential(shift=1.0, rate=2.0) if delay is None else delay
    work = shares(code) * (code.n_workers if unit is None else 1 / unit)
    slow = Stragglers(fraction=stragglers, slowdown=slowdown, seed=seed)
    host = VirtualHost(Injected(Loaded(law, work), slow), seed=seed)
    engine = Engine(natural_policy(code, dtype=dtype) if policy is None else policy, code.n_workers, keep_records=False)
    yield from host.simulate(engine, rounds)
