"""Stochastic block code: between fractional repetition and Bernoulli, with blocks that only the driver knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.gradient.approximate import nearest, real_number, same_size
from serverless_gc.codes.gradient.drawn import DrawnCode
from serverless_gc.codes.gradient.erasure_head import usual_divisor
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["StochasticBlockCode"]


class StochasticBlockCode(DrawnCode):
    """Workers hold partitions of their own block with one probability, others with a smaller one.

    Good against random stragglers, while an adversary who wants to silence a block has first to find it: a secret
    permutation of the workers hides the blocks.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions, equal.
    load
        Mean number of partitions of a worker, a whole number; also the block size unless ``block`` is given. If None
        the first of 3, 2, 4, 5 that divides ``k``.
    within
        Probability of an entry within a block.
    block, across
        Block size and probability of an entry across blocks, instead of ``load``; give both.
    seed
        Seed of the permutation and of the draw.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If the block size does not divide ``k``, ``within`` or ``across`` is no probability, or ``across`` exceeds
        ``within``.

    References
    ----------
    Z. Charles, D. Papailiopoulos, Gradient Coding Using the Stochastic Block Model, 2018, arXiv:1805.10378.

    Examples
    --------
    >>> code = StochasticBlockCode(20, 20, load=4, within=0.6)
    >>> code.across, round(code.ensemble_one_step_error(15), 7)
    (0.1, 4.3508772)
    """

    name = "sbc"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        load: int | None = None,
        within: float = 0.8,
        block: int | None = None,
        across: float | None = None,
        seed: int = 0,
        wait: int | None = None,
    ) -> None:
        super().__init__(n_workers, k, seed=seed, wait=wait)
        same_size(self.name, self.n_workers, self.k)
        if (block is None) != (across is None) or (block is not None and load is not None):
            raise InputError("give either load, or block and across together: each choice settles the others")
        within = real_number("within", within, 0, 1)
        if block is None:
            self.block = usual_divisor("k", self.k) if load is None else check_whole("load", load, 1, self.k)
        else:
            self.block = check_whole("block", block, 1, self.k)
        if self.k % self.block:
            divisors = [b for b in range(1, self.k + 1) if self.k % b == 0]
            label = "load" if block is None else "block"
            raise InputError(f"{label} must divide k={self.k}, got {self.block}: try {nearest(self.block, divisors)}")
        if across is None:
            outside = self.k - self.block
            across = self.block * (1 - within) / outside if outside else 0.0
            # 1 - 0.8 and the like are no round numbers in binary.
            across = round(across, 15)
        self.within, self.across = within, real_number("across", across, 0, 1)
        if across > within:
            raise InputError(
                f"across must be at most within={within}, got {across}: blocks are where entries are dense; "
                f"take 'bgc' where they are as dense everywhere"
            )
        self.load = self.within * self.block + self.across * (self.k - self.block)
        if self.load == 0:
            raise InputError("within and across must not both be 0: no worker would hold anything")

    def ensemble_one_step_error(self, arrived: int) -> float:
        """Mean one-step error over draws of the matrix and uniformly random arrivals."""
        self._check_count("arrived", arrived)
        if not arrived:
            return float(self.k)
        k, f, p, u = self.k, arrived, self.within, self.across
        share = self.block / k
        inside = f * share
        spread = inside * (1 - share) * (k - f) / max(k - 1, 1)
        variance = inside * p * (1 - p) + (f - inside) * u * (1 - u) + (p - u) ** 2 * spread
        return k * self._common_weight(f) ** 2 * variance

    def _build_generator(self) -> FloatArray:
        rng = np.random.default_rng(self.seed)
        hidden = rng.permutation(self.n_workers) // self.block
        same = hidden[:, None] == np.arange(self.k) // self.block
        chance = np.where(same, self.within, self.across)
        drawn: FloatArray = (rng.random(same.shape) < chance).astype(np.float64)
        return drawn

    def params(self) -> dict[str, Any]:
        """Keyword parameters that draw this code again."""
        return {"block": self.block, "within": self.within, "across": self.across, **super().params()}
