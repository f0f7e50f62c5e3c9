"""Structure of one polar code, without values: positions, bit masks, and the tree that decoders walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from serverless_gc.codes.polar.design import Cut, split_groups, transform_length

__all__ = ["Kernel", "Layout", "Node", "NodeKind"]

Kernel: TypeAlias = Literal["binary", "hadamard"]
NodeKind: TypeAlias = Literal["frozen", "info", "repeat", "mixed", "apart"]


@dataclass(frozen=True, slots=True)
class Node:
    """A subtree over ``size`` consecutive leaves starting at ``start``.

    ``kind`` says what its leaves are: all frozen, all data, data in the last leaf only, or anything else. Subtrees
    of one kind need no further descent: that is what keeps decoding far below ``N log N`` visits. The halves of an
    ``"apart"`` node are codes of their own, which no stage of the transform joins; they need not be equally long.
    """

    start: int
    size: int
    kind: NodeKind
    left: Node | None = None
    right: Node | None = None

    @property
    def halves(self) -> tuple[Node, Node]:
        """Both children of a node that has some."""
        if self.left is None or self.right is None:
            raise ValueError(f"a {self.kind} node has no children")
        return self.left, self.right


@dataclass(frozen=True)
class Layout:
    """Where workers and data sit on the ``length`` positions of the transform.

    Attributes
    ----------
    n_workers
        Number of workers; worker ``w`` holds position ``offset + w``.
    info
        Positions that carry data, ascending.
    cut
        How ``length`` positions become ``n_workers``: see `serverless_gc.codes.polar.design`.
    kernel
        ``"binary"``: ``(u0 + u1, u1)``; ``"hadamard"``: ``(u0 + u1, u0 - u1) / sqrt(2)``.
    systematic
        Whether a data position holds its block unchanged.
    groups
        How many transforms of equal length lie side by side. Those of several groups are not cut.
    """

    n_workers: int
    info: tuple[int, ...]
    cut: Cut
    kernel: Kernel = "binary"
    systematic: bool = True
    groups: int = 1

    @cached_property
    def group_length(self) -> int:
        """Length of the transform of one group, a power of two."""
        return transform_length(self.n_workers // self.groups)

    @cached_property
    def length(self) -> int:
        """Number of positions of all groups."""
        return self.groups * self.group_length

    @cached_property
    def group_info(self) -> tuple[tuple[int, ...], ...]:
        """Data positions of each group, counted from its first one, ascending."""
        return split_groups(self.info, self.groups, self.group_length)

    @cached_property
    def offset(self) -> int:
        """Position of worker 0."""
        return 0 if self.cut == "shorten" else self.length - self.n_workers

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """One-bit mask of each worker's position."""
        return tuple(1 << (self.offset + w) for w in range(self.n_workers))

    @cached_property
    def info_mask(self) -> int:
        """Mask of the positions that carry data."""
        return sum(1 << i for i in self.info)

    @cached_property
    def known_mask(self) -> int:
        """Mask of the shortened positions, known from the start."""
        return ((1 << self.length) - 1) & ~((1 << (self.offset + self.n_workers)) - 1)

    @cached_property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """Per stage, ``half`` from ``group_length / 2`` down to 1, and the mask of the positions without that bit."""
        stages = []
        full = (1 << self.length) - 1
        half = self.group_length // 2
        while half:
            stages.append((half, full // ((1 << half) + 1)))
            half //= 2
        return tuple(stages)

    @cached_property
    def tree(self) -> Node:
        """Decoding tree."""
        members = bytearray(self.length)
        for i in self.info:
            members[i] = 1
        return _beside([_grow(members, start, self.group_length) for start in range(0, self.length, self.group_length)])

    def recoverable(self, present: int) -> int:
        """Mask of the channels a sequential decoder recovers, given the mask of present positions.

        Both halves are needed for the first, either suffices for the second.
        """
        v = present
        for half, low in self.stages:
            v = (v & (v >> half) & low) | ((v | (v << half)) & (low << half))
        return v

    def touched(self, present: int) -> int:
        """Mask of the indices whose own codeword meets a present position; one that does not is surely lost."""
        v = present
        for half, low in self.stages:
            v |= (v & low) << half
        return v


def _beside(trees: Sequence[Node]) -> Node:
    """Join the trees of neighbouring groups."""
    if len(trees) == 1:
        return trees[0]
    middle = len(trees) // 2
    left, right = _beside(trees[:middle]), _beside(trees[middle:])
    return Node(left.start, left.size + right.size, "apart", left, right)


def _grow(members: bytearray, start: int, size: int) -> Node:
    count = members.count(1, start, start + size)
    if count == 0:
        return Node(start, size, "frozen")
    if count == size:
        return Node(start, size, "info")
    half = size // 2
    kind: NodeKind = "repeat" if count == 1 and members[start + size - 1] else "mixed"
    return Node(start, size, kind, _grow(members, start, half), _grow(members, start + half, half))
