"""Symbolic decoders: from an arrival pattern to the names of all codeword rows.

Each walker takes one name an arrived position (None where nothing arrived, `ZERO` for a structural zero) and
records the row operations that complete the codeword. Rows that the pattern does not determine stay None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from serverless_gc.codes.polar.layout import Layout, Node
from serverless_gc.codes.program import ADD, SUB, ZERO, Recorder, Row

__all__ = ["Averaging", "Sequential", "invert_hadamard", "invert_plain", "peel"]

Rows: TypeAlias = list[Row | None]


class Sequential:
    """Sequential decoding for the kernel ``(u0 + s u1, u1)``, ``s = 1`` or, with ``signed``, ``-1``.

    Parameters
    ----------
    recorder
        Receives the operations.
    signed
        Whether the kernel subtracts.
    inactivate
        Whether a data leaf without a value becomes a symbol. The rows are then those of all symbols zero, and
        ``equations`` lists what the frozen leaves say: rows that vanish for the right symbols.
    """

    __slots__ = ("_earlier", "equations", "inactivate", "recorder", "signed", "symbols")

    def __init__(self, recorder: Recorder, *, signed: bool = False, inactivate: bool = False) -> None:
        self.recorder = recorder
        self.signed = signed
        self.inactivate = inactivate
        self.symbols = 0
        self._earlier = 0  # symbols of groups that are done: they tell nothing of those to come
        self.equations: list[Row] = []

    @property
    def _open(self) -> bool:
        """Whether there are symbols in the group being walked."""
        return self.symbols > self._earlier

    def complete(self, node: Node, x: Rows) -> Rows:
        """Return the rows of the node's codeword."""
        kind = node.kind
        if kind == "apart":
            rows: Rows = []
            for half in node.halves:
                self._earlier = self.symbols
                rows += self.complete(half, x[len(rows) : len(rows) + half.size])
            return rows
        if kind == "frozen":
            if self._open:
                self.equations += [r for r in x if r is not None]
            return [ZERO] * node.size
        lost = x.count(None)
        if not lost and not self._open:
            return x
        if kind == "info":
            if lost and self.inactivate:
                self.symbols += lost
                return [ZERO if r is None else r for r in x]
            return x
        return self._repeat(x) if kind == "repeat" else self._split(node, x)

    def _repeat(self, x: Rows) -> Rows:
        """All rows are one value, up to sign."""
        places = [j for j, r in enumerate(x) if r is not None]
        if not places:
            if not self.inactivate:
                return x
            self.symbols += 1
            return [ZERO] * len(x)
        anchor = places.pop()
        same = x[anchor]
        recorder = self.recorder
        odd = [self.signed and (j ^ anchor).bit_count() & 1 for j in range(len(x))]
        if self._open:
            for j in places:
                row = x[j]
                if row is not None and same is not None:
                    self.equations.append((recorder.add if odd[j] else recorder.sub)(row, same))
        opposite = recorder.sub(ZERO, same) if self.signed and same is not None else same
        return [opposite if odd[j] else same for j in range(len(x))]

    def _split(self, node: Node, x: Rows) -> Rows:
        left, right = node.halves
        half = left.size
        a, b = x[:half], x[half:]
        subtract, add = self.recorder.sub, self.recorder.add
        down, up = (add, subtract) if self.signed else (subtract, add)
        if left.kind == "frozen" and not self._open:
            xa: Rows = [ZERO] * half
        else:
            first = [None if p is None or q is None else down(p, q) for p, q in zip(a, b, strict=True)]
            xa = self.complete(left, first)
        if self.signed:
            second = [
                q if q is not None or p is None or s is None else subtract(s, p)
                for p, q, s in zip(a, b, xa, strict=True)
            ]
        else:
            second = [
                q if q is not None or p is None or s is None else subtract(p, s)
                for p, q, s in zip(a, b, xa, strict=True)
            ]
        xb = self.complete(right, second)
        out = [
            p if p is not None else (None if s is None or t is None else up(s, t))
            for p, s, t in zip(a, xa, xb, strict=True)
        ]
        return out + xb


class Averaging:
    """Sequential decoding for the Hadamard kernel, unnormalised: ``(u0 + u1, u0 - u1) / 2`` going up.

    Where both rows of a pair are there, sum and difference are both taken from them: that keeps errors near
    rounding level.
    """

    __slots__ = ("recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def complete(self, node: Node, x: Rows) -> Rows:
        """Return the rows of the node's codeword."""
        if node.kind == "frozen":
            return [ZERO] * node.size
        if None not in x or node.kind == "info":
            return x
        left, right = node.halves
        if node.kind == "apart":
            return self.complete(left, x[: left.size]) + self.complete(right, x[left.size :])
        half = left.size
        add, sub = self.recorder.add, self.recorder.sub
        a, b = x[:half], x[half:]
        if left.kind == "frozen":
            sums: Rows = [ZERO] * half
        else:
            first = [None if p is None or q is None else add(p, q) for p, q in zip(a, b, strict=True)]
            sums = self.complete(left, first)
        second: Rows = []
        for t, s in enumerate(sums):
            p, q = a[t], b[t]
            if s is not None and p is not None and q is None:
                q = b[t] = sub(s, p)
            elif s is not None and q is not None and p is None:
                p = a[t] = sub(s, q)
            second.append(None if p is None or q is None else sub(p, q))
        differences = self.complete(right, second)
        for t, (s, d) in enumerate(zip(sums, differences, strict=True)):
            if a[t] is None and b[t] is None and s is not None and d is not None:
                a[t], b[t] = self.recorder.half(add(s, d)), self.recorder.half(sub(s, d))
        return a + b


def invert_plain(recorder: Recorder, layout: Layout, x: Rows) -> Rows:
    """Rows of the binary transform's input from the codeword; only data positions matter, the set being closed."""
    u: Rows = list(x)
    for half, _ in reversed(layout.stages):
        for i in layout.info:
            if i & half or i + half >= layout.offset + layout.n_workers:
                continue
            p, q = u[i], u[i + half]
            u[i] = None if p is None or q is None else _undo(recorder, p, q)
    return u


def _undo(recorder: Recorder, p: Row, q: Row) -> Row:
    """``p - q``, seeing that ``p`` may just have been summed from ``q``."""
    if p >= recorder.n_inputs and q >= 0:
        kind, a, b = recorder.ops[p - recorder.n_inputs]
        if kind == ADD and b == q:
            return a
    return recorder.sub(p, q)


def invert_hadamard(recorder: Recorder, layout: Layout, x: Rows) -> Rows:
    """Unnormalised Hadamard transform of a complete codeword."""
    u: Rows = list(x)
    for half, _ in layout.stages:
        for i in range(layout.length):
            if not i & half:
                p, q = u[i], u[i + half]
                if p is None or q is None:
                    u[i] = u[i + half] = None
                else:
                    u[i], u[i + half] = recorder.add(p, q), _minus(recorder, p, q)
    return u


def _minus(recorder: Recorder, p: Row, q: Row) -> Row:
    return recorder.emit(SUB, p, q) if p >= 0 and q >= 0 and p != q else recorder.sub(p, q)


def peel(recorder: Recorder, layout: Layout, arrived: Sequence[tuple[int, Row]]) -> tuple[Rows, Rows]:
    """Peel breadth first on the butterfly graph.

    Frozen zeros are known first, in index order, then the arrivals in index order: the same set always gives the same
    operations. Never depth first: chains of derivations grow long and errors multiply.

    Returns
    -------
    inputs, codeword
        Names of the rows at both ends of the graph; None where peeling does not reach.
    """
    n = layout.length
    stages = [half for half, _ in reversed(layout.stages)]
    top = len(stages)
    level: list[Rows] = [[None] * n for _ in range(top + 1)]
    queue: deque[tuple[int, int]] = deque()

    def learn(depth: int, t: int, row: Row) -> None:
        if level[depth][t] is None:
            level[depth][t] = row
            queue.append((depth, t))

    for i in range(n):
        if not layout.info_mask >> i & 1:
            learn(0, i, ZERO)
    for j in range(n):
        if layout.known_mask >> j & 1:
            learn(top, j, ZERO)
    for j, row in arrived:
        learn(top, j, row)
    while queue:
        depth, t = queue.popleft()
        for below in (depth, depth - 1):
            if not 0 <= below < top:
                continue
            half = stages[below]
            t0 = t & ~half
            t1 = t0 + half
            u, x = level[below], level[below + 1]
            shared = u[t1] if u[t1] is not None else x[t1]
            p, q = u[t0], x[t0]
            if shared is None and p is not None and q is not None:
                shared = recorder.sub(q, p)
            if shared is None:
                continue
            learn(below, t1, shared)
            learn(below + 1, t1, shared)
            if p is None and q is not None:
                learn(below, t0, recorder.sub(q, shared))
            elif q is None and p is not None:
                learn(below + 1, t0, recorder.add(p, shared))
    return level[0], level[top]
