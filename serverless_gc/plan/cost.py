"""What a computation costs: function time that is billed, useful or not, requests, storage and transfer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError
from serverless_gc.plan.memory import INLINE_OPERAND, Pass, Problem, passes
from serverless_gc.plan.platform import Platform

__all__ = ["Cost", "price"]

_MONTH = 30 * 86400.0
_ROUNDED_UP = 0.0005
"""Seconds that rounding up to a millisecond adds to a task, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Dollars for one computation.

    Attributes
    ----------
    compute
        Function time: memory times seconds of every task, also of those whose results came too late.
    requests
        Lambda invocations.
    store
        S3 requests.
    storage
        Coded blocks, for as long as the run lasts.
    transfer
        Results sent to a driver outside the region.
    """

    compute: float
    requests: float
    store: float
    storage: float
    transfer: float

    @property
    def total(self) -> float:
        """Sum."""
        return math.fsum((self.compute, self.requests, self.store, self.storage, self.transfer))


def price(
    problem: Problem,
    code: Code,
    platform: Platform,
    *,
    billed: Sequence[float],
    issued: Sequence[float],
    awaited: Sequence[float],
    seconds: float,
    rounds: int,
) -> Cost:
    """Price one computation that is repeated on the same encoded data.

    Parameters
    ----------
    problem, code, platform
        What is computed, how and where.
    billed
        Function-seconds of each coded round.
    issued
        Tasks of each coded round.
    awaited
        Results awaited of each coded round.
    seconds
        How long one computation takes.
    rounds
        How often it is repeated; what happens once (storing the blocks, reading them for the first time) is shared.

    Returns
    -------
    Cost
        Of one computation.

    Examples
    --------
    A product on 64 workers of 2 GB that run half a second each, without the store:

    >>> from serverless_gc.codes import get
    >>> cost = price(
    ...     Problem(rows=6400, cols=100, task="matvec"), get("uncoded", n_workers=64), Platform(memory_mb=2048),
    ...     billed=[32.0], issued=[64], awaited=[64], seconds=1.0, rounds=100,
    ... )
    >>> round(cost.compute * 1e6, 2), round(cost.requests * 1e6, 2)  # 64 GB-s and 64 requests, in millionths
    (854.19, 12.8)
    """
    steps = passes(problem, code)
    if not len(steps) == len(billed) == len(issued) == len(awaited):
        raise InputError(f"billed, issued and awaited must have one entry for each of {len(steps)} coded rounds")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    p, gib = platform.prices, 2**30
    stored = code.n_messages if code.kind != "gradient" else code.k
    puts = gets = sent = held = 0.0
    for step, tasks, results in zip(steps, issued, awaited, strict=True):
        once = 1.0 if _forgotten(step, platform) else 1.0 / rounds
        by_key = step.operand > INLINE_OPERAND
        reads = by_key * (1 if step.operand == step.whole else 2)  # a part of it is one or two ranges
        gets += tasks * (step.blocks * once + reads + step.inner)
        puts += tasks + by_key + 1 + stored / rounds  # results, the operand, the cancel mark, and the blocks
        sent += results * (1 - step.inner) * step.messages * step.message
        held += stored * step.block
    return Cost(
        compute=(math.fsum(billed) + _ROUNDED_UP * math.fsum(issued)) * platform.memory_mb / 1024 * p.gb_second,
        requests=math.fsum(issued) * p.invocation,
        store=puts * p.put + gets * p.get,
        storage=held / gib * p.gb_month * seconds / _MONTH,
        transfer=sent / gib * p.transfer_gb if platform.driver_outside else 0.0,
    )


def _forgotten(step: Pass, platform: Platform) -> bool:
    """Whether a warm function cannot keep its blocks: its cache is a quarter of its memory."""
    return step.blocks * step.block > platform.memory_mb * 2**20 / 4
