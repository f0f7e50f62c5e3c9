"""A code's decoder as an aggregator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serverless_gc.aggregate.weights import reported
from serverless_gc.codes.accuracy import check_accuracy
from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError
from serverless_gc.types import Array, Arrival, Update, UpdateContext

__all__ = ["Decode"]


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode the sum of the partition gradients from coded ones; goes with `serverless_gc.policies.UntilDecodable`.

    Parameters
    ----------
    code
        The code. A slot's body is its message, or the stack of its messages in order of placement.
    scale
        Factor on the sum: one over the number of rows for a mean.

    Raises
    ------
    NotDecodableError, DecodeError
        When called, as the code's ``decode``, and if the sum has lost its digits: see `check_accuracy`.
    InputError
        When called, if a result does not hold its slot's messages.

    Notes
    -----
    ``meta["certificate"]`` says how the sum was obtained.

    Examples
    --------
    >>> from serverless_gc.codes.mds.code import MDSCode
    >>> from serverless_gc.types import TaskSpec
    >>> ctx = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda v: np.zeros(1))
    >>> code = MDSCode(4, 2)
    >>> sent = code.encode([np.array([1.0]), np.array([5.0])])
    >>> arrivals = [Arrival(TaskSpec(f"0-{i}", i, 0), 0.0, 1.0, body=sent[i]) for i in (1, 3)]
    >>> Decode(code).combine(arrivals, ctx).direction.round(9)
    array([6.])
    """

    code: Code
    scale: float = 1.0

    def combine(self, arrivals: Sequence[Arrival], ctx: UpdateContext) -> Update:  # noqa: ARG002 - part of the protocol
        """Make an update of the messages."""
        given = reported(arrivals)
        values: dict[int, Array] = {}
        for arrival in given:
            values.update(self._messages(arrival))
        answer, certificate = self.code.decode(values)
        check_accuracy(self.code, certificate, len(values), np.result_type(answer.dtype, np.float32))
        total = answer if self.code.target == "sum" else answer.sum(axis=0)
        meta = {"certificate": certificate}
        return Update(self.scale * total, n_eff=math.fsum(a.work_done for a in given), meta=meta)

    def _messages(self, arrival: Arrival) -> dict[int, Array]:
        placed = self.code.placement(arrival.task.slot)
        if len(placed) == 1:
            return {placed[0]: np.asarray(arrival.body)}
        if len(arrival.body) != len(placed):
            raise InputError(
                f"task {arrival.task.task_id} must deliver the {len(placed)} messages of its slot, got "
                f"{len(arrival.body)}"
            )
        return {message: np.asarray(body) for message, body in zip(placed, arrival.body, strict=True)}
