"""Which data a task of a stochastic training is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from serverless_gc.data.gradient import GradientData
from serverless_gc.encode.parts import Parts
from serverless_gc.errors import InputError
from serverless_gc.fitting.node_schemes import dealt
from serverless_gc.prepare import check_point
from serverless_gc.types import Array, TaskSpec

__all__ = ["Placing", "Shards", "check_start"]

Shards = Literal["drawn", "fixed", "grouped"]


def check_start(data: Any, w0: Any, use: str) -> Array:
    """Return where a training begins that uses the partitions of a data set.

    Raises
    ------
    InputError
        If the data have no partitions, which ``use`` says what they are for, or the point is not real.
    """
    if not isinstance(data, GradientData):
        raise InputError(
            "data must be what Session.encode gave for a gradient code, such as code='ignore-stragglers', whose "
            f"partitions are {use}; got {type(data).__name__}"
        )
    point = check_point(w0, "w0")
    if point.dtype.kind == "c":
        raise InputError("w0 must be real")
    return point


@dataclass(frozen=True, slots=True)
class Placing:
    """Gives tasks their partitions.

    Attributes
    ----------
    kind
        ``"drawn"``: one partition for each task, drawn by its seed in proportion to its rows, so that every row is as
        likely as any other, whichever slot is fast. ``"fixed"``: each slot has partitions of its own. ``"grouped"``:
        each group has, the one named in the task's payload.
    hands
        The partitions of each slot or group; with ``"drawn"`` one of each.
    rows
        How many rows each of these has.
    """

    kind: Shards
    hands: Sequence[Sequence[int]]
    rows: Sequence[int]

    @classmethod
    def of(cls, kind: Shards, parts: Parts, n: int) -> Placing:
        """Deal partitions to ``n`` slots or groups, in order.

        Raises
        ------
        InputError
            If one would get no rows.

        Examples
        --------
        >>> placing = Placing.of("fixed", Parts(11, 4), 2)
        >>> placing.hands, placing.rows
        ([[0, 1], [2, 3]], [5, 6])
        """
        hands = [[part] for part in parts.filled] if kind == "drawn" else dealt(parts, n)
        rows = [sum(end - first for first, end in map(parts.range, hand)) for hand in hands]
        return cls(kind, hands, rows)

    def hand(self, task: TaskSpec) -> int:
        """Return the number of the hand that a task works on.

        Examples
        --------
        >>> placing = Placing.of("drawn", Parts(10, 2), 8)
        >>> [placing.hand(TaskSpec("0-0", slot=0, version=0, seed=seed)) for seed in range(6)]
        [1, 1, 0, 1, 0, 0]
        """
        if self.kind == "fixed":
            return task.slot
        if self.kind == "grouped":
            return int(task.payload["group"])
        ends = np.cumsum(self.rows)
        row = np.random.default_rng((task.seed, 1)).integers(ends[-1])
        return int(np.searchsorted(ends, row, side="right"))

    def share(self, hand: int) -> float:
        """Return by how much a hand's mean loss counts more than the mean one's; their mean is that over all rows."""
        return 1.0 if self.kind == "drawn" else len(self.rows) * self.rows[hand] / sum(self.rows)
