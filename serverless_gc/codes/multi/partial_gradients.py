"""Coded partial gradients: first a plain partition gradient, then sums of further ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_message
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.multi.order import ConsecutiveMessages, check_load
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["CodedPartialGradients"]


class CodedPartialGradients(ConsecutiveMessages, GradientCode):
    """Worker ``i`` walks through the partitions from ``i`` on and sends the sum of each few it passed.

    With ``sizes=(1, 2)`` its messages are ``g_i`` and ``g_(i+1) + g_(i+2)``. Sums save messages and often complete the
    total with fewer of them than plain gradients; ``sizes=(1, 1, 1)`` is uncoded multi-message for sums.

    Parameters
    ----------
    n_workers, k
        Number of workers and of partitions, which must be equal.
    sizes
        Partitions in each message of a worker, in order of computation. The first must be 1: plain gradients of all
        workers always determine the total.

    Raises
    ------
    InputError
        If ``n_workers`` differs from ``k``, ``sizes`` is empty, does not begin with 1 or holds a number below 1, or a
        worker would compute more than ``k`` partitions.

    Notes
    -----
    E. Ozfatura, S. Ulukus, D. Gunduz, "Distributed Gradient Descent with Coded Partial Gradient Computations" (ICASSP
    2019), whose idea it is: first messages uncoded, later ones coded. Decodable states are found by the running error
    of the all-ones row.

    Examples
    --------
    >>> code = CodedPartialGradients(4, 4)
    >>> code.generator[list(code.placement(3))]
    array([[0., 0., 0., 1.],
           [1., 1., 0., 0.]])
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(message)) for message in (6, 7, 4)]  # g3, g0 + g1, g2
    [False, False, True]
    """

    name = "cpgc"

    def __init__(self, n_workers: int, k: int, *, sizes: Sequence[int] | None = None) -> None:
        super().__init__(n_workers, k)
        if self.n_workers != self.k:
            raise InputError(f"n_workers must equal k={k} for coded partial gradients, got {n_workers}")
        if sizes is None:
            sizes = (1, 2) if self.k >= 3 else (1,)
        self.sizes = tuple(check_whole("sizes", size, 1) for size in sizes)
        if self.sizes[:1] != (1,):
            raise InputError(f"sizes must begin with 1, a plain partition gradient, got {self.sizes}")
        check_load(sum(self.sizes), self.k, name="sum(sizes)")
        self.r = len(self.sizes)
        self._starts = (0, *np.cumsum(self.sizes).tolist())

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the partitions that a message sums, in the order of computation, and their coefficients: ones."""
        check_message(message, self.n_messages)
        worker, place = divmod(message, self.r)
        walked = range(worker + self._starts[place], worker + self._starts[place + 1])
        return tuple(partition % self.k for partition in walked), np.ones(len(walked))

    def _build_generator(self) -> Array:
        g = np.zeros((self.n_messages, self.k))
        for message in range(self.n_messages):
            g[message, list(self.row(message)[0])] = 1.0
        return g

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"sizes": list(self.sizes)}
