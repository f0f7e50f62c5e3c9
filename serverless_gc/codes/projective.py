"""Lightweight projective derivative codes: each worker sends the derivative along one light direction.

P. Soto, I. Ilmer, H. Guan, J. Li, "Lightweight Projective Derivative Codes for Compressed Asynchronous Gradient
Descent", ICML 2022. The choice of lines below is this library's instance of the published idea.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, CodeKind, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import Output, as_row, combine, promoted, put
from serverless_gc.codes.received import (
    TYPICAL,
    Received,
    accuracy_warning,
    default_tolerance,
    not_decodable,
    receive,
    refuse_inaccurate,
    refuse_mismatch,
    refuse_non_finite,
    unit_roundoff,
    with_residual,
)
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["Line", "ProjectiveCode", "ProjectiveTracker"]

_MOST_LINES = 4_000_000
"""Lines among which to choose: each choice looks at all of them."""


@dataclass(frozen=True, slots=True)
class Line:
    """A direction of weight 1, ``e_a``, or 2, ``(e_a + sign * e_b) / sqrt(2)`` with ``a < b``."""

    a: int
    b: int = -1
    sign: int = 1

    @property
    def is_anchor(self) -> bool:
        """Whether the line carries one block alone."""
        return self.b < 0


class ProjectiveTracker(Tracker):
    """Union-find with parity: a set of blocks is known when it holds an anchor or an unbalanced cycle."""

    __slots__ = ("_anchored", "_lines", "_parent", "_parity", "_unknown")

    def __init__(self, lines: Sequence[Line], k: int) -> None:
        self._lines = lines
        self._parent = list(range(k))
        self._parity = [1] * k  # sign of a block relative to its parent
        self._anchored = [False] * k
        self._unknown = k  # sets that are not anchored

    def _root(self, block: int) -> tuple[int, int]:
        sign, path = 1, []
        while self._parent[block] != block:
            path.append(block)
            block = self._parent[block]
        for node in reversed(path):  # nearest to the root first
            sign *= self._parity[node]
            self._parent[node], self._parity[node] = block, sign
        return block, sign

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._lines))
        line = self._lines[message]
        root, sign = self._root(line.a)
        if line.is_anchor:
            self._anchor(root)
        else:
            other, other_sign = self._root(line.b)
            relative = -line.sign * sign * other_sign  # a vanishing message means x_a = -sign * x_b
            if root != other:
                if self._anchored[root] or self._anchored[other]:
                    self._anchor(root)
                    self._anchor(other)
                else:
                    self._unknown -= 1
                self._parent[other], self._parity[other] = root, relative
            elif relative != 1:
                self._anchor(root)
        return Verdict(self.decodable, self.missing)

    def _anchor(self, root: int) -> None:
        if not self._anchored[root]:
            self._anchored[root] = True
            self._unknown -= 1

    @property
    def decodable(self) -> bool:
        """Whether every set of blocks is anchored."""
        return self._unknown == 0

    def missing(self) -> tuple[int, ...]:
        """Blocks that are not determined yet."""
        return tuple(j for j in range(len(self._parent)) if not self._anchored[self._root(j)[0]])


class ProjectiveCode(Code):
    """Directional derivatives along lines of weight 1 or 2, as far apart as possible.

    The parameters are cut into ``k`` blocks; message ``i`` is ``v_i @ g`` for the gradient ``g`` as ``k`` rows. A
    directional derivative is linear in the direction whatever the loss, and ``k`` times shorter than a gradient.

    Parameters
    ----------
    n_workers, k
        Number of workers and of parameter blocks.
    systematic
        All ``k`` single blocks first (default), or lines of weight 2 only.
    lines
        One for each worker instead: ``(a,)`` for block ``a`` alone, ``(a, b, sign)`` for ``a`` plus or minus ``b``.

    Raises
    ------
    InputError
        If there are fewer workers than blocks, more than there are lines, a line has another form or a weight above 2,
        or the lines do not determine all blocks even together.

    Examples
    --------
    >>> code = ProjectiveCode(n_workers=6, k=4)
    >>> code.lines[4:]
    (Line(a=0, b=1, sign=1), Line(a=2, b=3, sign=1))
    >>> tracker = code.tracker()
    >>> [bool(tracker.add(i)) for i in (0, 4, 3, 5)]
    [False, False, False, True]
    """

    name = "lwpd"
    kind: ClassVar[CodeKind] = "gradient"

    def __init__(
        self, n_workers: int, k: int, *, systematic: bool = True, lines: Sequence[Sequence[int]] | None = None
    ) -> None:
        super().__init__(n_workers, k)
        self.systematic = bool(systematic)
        self._given = lines is not None
        most = self.k * self.k if self.systematic else self.k * (self.k - 1)
        if not self.k <= self.n_workers <= most:
            raise InputError(
                f"n_workers must be between k={self.k} and the {most} lines of that space, got {self.n_workers}"
            )
        if lines is None:
            self.lines = _choose_lines(self.n_workers, self.k, systematic=self.systematic)
        else:
            self.lines = _check_lines(lines, self.n_workers, self.k)
        tracker = self.tracker()
        for i in range(self.n_workers):
            tracker.add(i)
        if not tracker.decodable:
            raise InputError(
                f"all lines together do not determine blocks {list(tracker.missing())[:10]}: each "
                "connected set of blocks needs a line of weight 1 or a cycle whose signs contradict"
            )

    def _build_generator(self) -> FloatArray:
        g = np.zeros((self.n_workers, self.k))
        for i, line in enumerate(self.lines):
            if line.is_anchor:
                g[i, line.a] = 1.0
            else:
                g[i, [line.a, line.b]] = math.sqrt(0.5), line.sign * math.sqrt(0.5)
        return g

    def source_of(self, message: int) -> int | None:
        """Index of the block that ``message`` carries unchanged, or None."""
        check_message(message, self.n_workers)
        line = self.lines[message]
        return line.a if line.is_anchor else None

    def tracker(self) -> ProjectiveTracker:
        """Make a fresh tracker."""
        return ProjectiveTracker(self.lines, self.k)

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Walk from the known blocks along the arrived lines; see `Code.decode`."""
        got = receive(values, self.n_workers)
        walk = self._walk(got.ids)
        certificate = self._certificate(walk, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        walk.run(got, output.array)
        surplus = [i for i in got.ids if i not in walk.used]
        residual = self._residual(got, output, surplus, scale)
        refuse_non_finite(got, [output.array], residual)
        limit = max(tolerance or 0.0, default_tolerance(got.dtype))
        refuse_mismatch(self.name, residual, limit, len(surplus))
        return output.finish(), with_residual(certificate, residual, len(surplus))

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block.
        """
        return self._certificate(self._walk(tuple(sorted(set(messages)))), promoted(np.dtype(dtype)))

    def _walk(self, ids: tuple[int, ...]) -> _Walk:
        walk = _Walk(self.lines, self.k, ids)
        if walk.missing:
            raise not_decodable(self.name, len(ids), walk.missing, "wait for more results")
        return walk

    def _certificate(self, walk: _Walk, dtype: np.dtype[Any]) -> Certificate:
        predicted = TYPICAL * unit_roundoff(dtype) * math.sqrt(max(walk.variance))
        return Certificate(
            "peel",
            used=tuple(sorted(walk.used)),
            amplification=math.sqrt(max(walk.variance)),
            predicted_error=predicted,
            warning=accuracy_warning(predicted, dtype),
        )

    def _residual(self, got: Received, output: Output, surplus: list[int], scale: float) -> float:
        """Return the worst relative mismatch of a surplus message with the blocks decoded without it."""
        dtype = output.array.dtype
        worst = 0.0
        for i in surplus:
            entries = self.generator[i]
            blocks = np.flatnonzero(entries)
            sources = [as_row(output.array[j, ...], dtype) for j in blocks]
            check = np.array([[*entries[blocks], -1.0]])
            rows = [*sources, as_row(got.values[i], dtype)]
            worst = max(worst, combine(np.empty((0, len(rows))), rows, [], checks=check, scale=scale))
        return worst

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        chosen: dict[str, Any] = {} if self.systematic else {"systematic": False}
        if self._given:
            chosen["lines"] = [[line.a] if line.is_anchor else [line.a, line.b, line.sign] for line in self.lines]
        return chosen


class _Walk:
    """In which order blocks become known, and from what: structure first, values in `run`."""

    def __init__(self, lines: Sequence[Line], k: int, ids: Sequence[int]) -> None:
        self._lines = lines
        self.used: set[int] = set()
        self.variance = [0.0] * k
        self._steps: list[tuple[int, int, int]] = []  # block, from block (-1: the message itself), by message
        self._cycles: list[tuple[list[tuple[int, int, int]], int]] = []
        known = [False] * k
        neighbours: list[list[tuple[int, int]]] = [[] for _ in range(k)]
        for i in ids:
            line = lines[i]
            if not line.is_anchor:
                neighbours[line.a].append((line.b, i))
                neighbours[line.b].append((line.a, i))
            elif not known[line.a]:
                known[line.a] = True
                self.variance[line.a] = 1.0
                self.used.add(i)
                self._steps.append((line.a, -1, i))
        # Breadth first from all anchors at once: short paths, little rounding.
        self._spread(deque(j for j in range(k) if known[j]), known, neighbours)
        for start in range(k):
            if not known[start]:
                self._cycle(start, known, neighbours)
        self.missing = tuple(j for j in range(k) if not known[j])

    def _spread(self, queue: deque[int], known: list[bool], neighbours: list[list[tuple[int, int]]]) -> None:
        while queue:
            at = queue.popleft()
            for to, i in neighbours[at]:
                if not known[to]:
                    known[to] = True
                    self.used.add(i)
                    self._steps.append((to, at, i))
                    self.variance[to] = self.variance[at] + 2.0
                    queue.append(to)

    def _cycle(self, start: int, known: list[bool], neighbours: list[list[tuple[int, int]]]) -> None:
        """Determine a component without anchors from a cycle whose signs contradict, if there is one."""
        sign = {start: 1}
        tree: list[tuple[int, int, int]] = []
        queue = deque([start])
        closing = -1
        while queue:
            at = queue.popleft()
            for to, i in neighbours[at]:
                if to not in sign:
                    sign[to] = -self._lines[i].sign * sign[at]
                    tree.append((to, at, i))
                    queue.append(to)
                elif closing < 0 and sign[to] != -self._lines[i].sign * sign[at]:
                    closing = i
        if closing < 0:
            return
        self.used.update([closing, *(i for _, _, i in tree)])
        self._steps.append((start, len(self._cycles), -2))
        self._cycles.append((tree, closing))
        self.variance[start] = 1.0 + 2.0 * len(tree)
        for to, at, i in tree:
            self._steps.append((to, at, i))
            self.variance[to] = self.variance[at] + 2.0
        for block in sign:
            known[block] = True

    def run(self, got: Received, blocks: Array) -> None:
        """Fill in the blocks, shape ``(k, ...)``."""
        root_two = blocks.dtype.type(math.sqrt(2))
        for block, origin, message in self._steps:
            if message == -2:
                blocks[block] = self._solve(got, block, *self._cycles[origin])
            elif origin < 0:
                put(blocks, block, got.values[message])
            else:
                # The line's sign stands before its second block.
                line = self._lines[message]
                total = root_two * got.values[message]
                blocks[block] = (
                    total - line.sign * blocks[origin] if block == line.a else line.sign * (total - blocks[origin])
                )

    def _solve(self, got: Received, start: int, tree: list[tuple[int, int, int]], closing: int) -> Array:
        """Return the root of a component: along the tree every block is ``sign * root + constant``."""
        root_two = math.sqrt(2)
        sign: dict[int, int] = {start: 1}
        constant: dict[int, Any] = {start: 0.0}
        for to, at, message in tree:
            line = self._lines[message]
            total = root_two * got.values[message]
            if to == line.a:
                sign[to], constant[to] = -line.sign * sign[at], total - line.sign * constant[at]
            else:
                sign[to], constant[to] = -line.sign * sign[at], line.sign * (total - constant[at])
        line = self._lines[closing]
        slope = sign[line.a] + line.sign * sign[line.b]  # 2 or -2: the cycle is unbalanced
        rest: Array = root_two * got.values[closing] - constant[line.a] - line.sign * constant[line.b]
        return rest / slope


def _check_lines(lines: Sequence[Sequence[int]], n: int, k: int) -> tuple[Line, ...]:
    if len(lines) != n:
        raise InputError(f"lines must have one for each of n_workers={n}, got {len(lines)}")
    made = []
    for line in lines:
        inside = all(0 <= block < k for block in line[:2])
        if len(line) == 1 and inside:
            made.append(Line(line[0]))
        elif len(line) == 3 and inside and line[0] != line[1] and line[2] in {1, -1}:
            # A line is the same up to its sign, so the smaller block comes first.
            made.append(Line(min(line[:2]), max(line[:2]), line[2]))
        else:
            raise InputError(f"a line must be (a,) or (a, b, sign), different blocks below k={k}, got {tuple(line)}")
    return tuple(made)


def _choose_lines(n: int, k: int, *, systematic: bool) -> tuple[Line, ...]:
    """Choose lines greedily: farthest from those chosen, then balanced use of the blocks, then in order."""
    if k * (k - 1) > _MOST_LINES:
        raise InputError(
            f"k must be at most {math.isqrt(_MOST_LINES):,} for lines to be chosen, got {k:,}: give lines="
        )
    chosen = [Line(a) for a in range(k)] if systematic else []
    pairs = [Line(a, b, sign) for a, b in combinations(range(k), 2) for sign in (1, -1)]
    if len(chosen) == n:
        return tuple(chosen)
    first = np.array([line.a for line in pairs])
    second = np.array([line.b for line in pairs])
    signs = np.array([line.sign for line in pairs])
    # |<v, v'>| in halves: a line of weight 2 meets an anchor at sqrt(1/2), another line at 1/2 or not at all; of the
    # same two blocks, the other sign is orthogonal. Distances fall as these rise.
    nearest = np.full(len(pairs), math.sqrt(0.5) if systematic else 0.0)
    usage = np.zeros(k, int) + (1 if systematic else 0)
    free = np.ones(len(pairs), bool)
    while len(chosen) < n:
        burden = np.maximum(usage[first], usage[second]) * (2 * n) + usage[first] + usage[second]
        order = np.lexsort((np.arange(len(pairs)), burden, nearest, ~free))
        best = int(order[0])
        chosen.append(pairs[best])
        free[best] = False
        usage[[first[best], second[best]]] += 1
        a, b = first[best], second[best]
        product = np.zeros(len(pairs))
        product += 0.5 * ((first == a) + signs * signs[best] * (second == b))
        product += 0.5 * (signs * (second == a) + signs[best] * (first == b))
        nearest = np.maximum(nearest, np.abs(product))
    return tuple(chosen)
