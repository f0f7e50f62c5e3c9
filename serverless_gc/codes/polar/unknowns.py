"""Inactivation on structure alone: which results leave which data undetermined, exactly.

The decoding tree is walked with every arrived value taken as zero. A data leaf that sequential decoding cannot
resolve becomes a *symbol*; a frozen leaf that it can compute becomes an *equation* among symbols. The codewords
that vanish on all arrived positions are then the solutions of that small system, so the arrivals determine the data
exactly when the equations have full column rank. Ranks are taken modulo a prime on exact integers, never in
floating point.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from serverless_gc.codes.polar.layout import Layout, Node
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.types import Array

__all__ = ["PRIME", "Expansion", "NullSpace", "expand", "rank_and_kernel", "undetermined_positions"]

PRIME = 2147483629
"""Modulus of the exact rank: products of two residues fit int64."""

_SMALL_PRODUCT = 1 << 14
"""Multiplications below which the linear algebra library uses one thread anyway."""


class Expansion:
    """How codeword positions and equations depend on the symbols.

    Attributes
    ----------
    values
        Shape ``(length, symbols)``: coefficient of each symbol in each position of the codeword.
    equations
        Shape ``(n_equations, symbols)``.
    checks
        Index (start of the node plus place within it) that each equation belongs to.
    exact
        Whether the float64 entries are the exact integers.
    """

    __slots__ = (
        "_earlier",
        "_limit",
        "_modular",
        "_rows",
        "_used",
        "checks",
        "equations",
        "exact",
        "symbols",
        "values",
    )

    def __init__(self, layout: Layout, present: int, *, modular: bool) -> None:
        recovered = layout.recoverable(present)
        self.symbols = (layout.info_mask & ~recovered).bit_count()
        self._modular = modular
        self._used = 0
        self._earlier = 0  # symbols of groups that are done: the others do not depend on them
        self._rows: list[Array] = []
        self.checks: list[int] = []
        self.exact = True
        # Codewords handed up are checked, values handed down at most triple a level: every integer stays below 2**52.
        self._limit = (2.0**52 / 3.0 ** len(layout.stages)) ** 2
        width = layout.length
        raw = np.frombuffer(present.to_bytes(-(-width // 8), "little"), dtype=np.uint8)
        valid = np.unpackbits(raw, bitorder="little")[:width].astype(bool)
        with single_blas_thread() if self.symbols * width > _SMALL_PRODUCT else nullcontext():
            values = self._walk(layout.tree, valid, None)
        self.values: Array = np.zeros((width, self.symbols), dtype=self._dtype) if values is None else values
        nothing: Array = np.zeros((0, self.symbols), dtype=self._dtype)
        self.equations: Array = np.vstack(self._rows) if self._rows else nothing

    @property
    def _open(self) -> bool:
        """Whether there are symbols in the group being walked."""
        return self._used > self._earlier

    @property
    def _dtype(self) -> type:
        return np.int64 if self._modular else np.float64

    def _checked(self, a: Array) -> Array:
        """Reduce modulo the prime, or watch that float64 stays exact."""
        if self._modular:
            return a % PRIME
        flat = a.reshape(-1)
        if flat @ flat >= self._limit:
            self.exact = False
        return a

    def _fresh(self, places: Array, values: Array | None, size: int) -> Array:
        """Put a new symbol at each of the places."""
        out = np.zeros((size, self.symbols), dtype=self._dtype) if values is None else values
        out[places] = 0
        out[places, np.arange(self._used, self._used + len(places))] = 1
        self._used += len(places)
        return out

    def _equate(self, node: Node, places: Array, rows: Array) -> None:
        self._rows.append(rows)
        self.checks.extend((node.start + places).tolist())

    def _walk(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        """Return the node's codeword in symbols; None stands for all zeros. ``values`` may be overwritten."""
        if not self._open and valid.all():
            return None
        kind = node.kind
        if kind == "apart":
            return self._apart(node, valid)
        if kind == "frozen":
            if self._open:
                places = valid.nonzero()[0]
                if len(places):
                    rows = np.zeros((len(places), self.symbols), self._dtype) if values is None else values[places]
                    self._equate(node, places, rows)
            return None
        if kind == "info":
            lost = (~valid).nonzero()[0]
            return self._fresh(lost, values, node.size) if len(lost) else values
        if kind == "repeat":
            return self._repeat(node, valid, values)
        return self._split(node, valid, values)

    def _apart(self, node: Node, valid: Array) -> Array:
        out: Array = np.zeros((node.size, self.symbols), dtype=self._dtype)
        for half in node.halves:
            here = slice(half.start - node.start, half.start - node.start + half.size)
            self._earlier = self._used
            values = self._walk(half, valid[here], None)
            if values is not None:
                out[here] = values
        return out

    def _repeat(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        places = valid.nonzero()[0]
        if not len(places):
            return np.repeat(self._fresh(np.array([0]), None, 1), node.size, axis=0)
        rest, anchor = places[:-1], places[-1:]
        if self._open and len(rest):
            rows = np.zeros((len(rest), self.symbols), self._dtype) if values is None else values[rest] - values[anchor]
            self._equate(node, rest, rows)
        return None if values is None else np.repeat(values[anchor], node.size, axis=0)

    def _split(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        left, right = node.halves
        half = left.size
        va, vb = valid[:half], valid[half:]
        if values is None:
            a = b = None
            xa = self._walk(left, va & vb, None)
        else:
            a, b = values[:half], values[half:]
            xa = self._walk(left, va & vb, a - b)
        # One array a step and masked copies: short-lived large temporaries cost page faults.
        second = a if xa is None else -xa if a is None else a - xa
        if second is not None:
            if second is a:
                second = a.copy()
            np.copyto(second, 0 if b is None else b, where=vb[:, None])
        xb = self._walk(right, va | vb, second)
        if xa is None and xb is None and a is None:
            return None
        out: Array = np.zeros((node.size, self.symbols), dtype=self._dtype)
        top = out[:half]
        if xb is not None:
            out[half:] = xb
            if xa is None:
                top[:] = xb
            else:
                np.add(xa, xb, out=top)
        elif xa is not None:
            top[:] = xa
        np.copyto(top, 0 if a is None else a, where=va[:, None])
        return self._checked(out)


def expand(layout: Layout, present: int) -> Expansion:
    """Expand positions and equations in symbols; exact integers, modulo `PRIME` only where float64 would round."""
    expansion = Expansion(layout, present, modular=False)
    return expansion if expansion.exact else Expansion(layout, present, modular=True)


def rank_and_kernel(equations: Array) -> tuple[int, Array]:
    """Rank modulo `PRIME`, and a basis of the right kernel as columns of residues."""
    m = equations.astype(np.int64) % PRIME
    rows, columns = m.shape
    pivots: list[int] = []
    for c in range(columns):
        r = len(pivots)
        if r == rows:
            break
        hits = m[r:, c].nonzero()[0]
        if not len(hits):
            continue
        p = r + int(hits[0])
        if p != r:
            m[[r, p]] = m[[p, r]]
        m[r, c:] = m[r, c:] * pow(int(m[r, c]), -1, PRIME) % PRIME
        below = r + hits[1:] if p == r else r + 1 + m[r + 1 :, c].nonzero()[0]
        if len(below):
            m[below, c:] = (m[below, c:] - m[below, c, None] * m[r, c:]) % PRIME
        pivots.append(c)
    chosen = set(pivots)
    free = [c for c in range(columns) if c not in chosen]
    kernel = np.zeros((columns, len(free)), dtype=np.int64)
    if free:
        kernel[free, np.arange(len(free))] = 1
        for r in range(len(pivots) - 1, -1, -1):
            c = pivots[r]
            kernel[c] = -(m[r, c + 1 :, None] * kernel[c + 1 :] % PRIME).sum(axis=0) % PRIME
    return len(pivots), kernel


def _multiply(a: Array, b: Array) -> Array:
    """Return ``a @ b`` modulo `PRIME`, in halves of 16 bits so that float64 products are exact."""
    a_high, a_low = np.divmod(a % PRIME, 65536)
    b_high, b_low = np.divmod(b % PRIME, 65536)
    n = b.shape[1]
    parts = np.hstack([b_high, b_low]).astype(np.float64)
    with single_blas_thread() if a.size * n > _SMALL_PRODUCT else nullcontext():
        high = (a_high.astype(np.float64, copy=False) @ parts).astype(np.int64) % PRIME
        low = (a_low.astype(np.float64, copy=False) @ parts).astype(np.int64) % PRIME
    middle = (high[:, n:] + low[:, :n]) % PRIME
    return ((high[:, :n] * 65536 + middle) % PRIME * 65536 + low[:, n:]) % PRIME


class NullSpace:
    """Codewords that vanish on every arrived position, modulo `PRIME`; shrinks as results arrive.

    Parameters
    ----------
    layout
        The code.
    present
        Mask of the positions known so far.
    """

    __slots__ = ("_basis", "_row")

    def __init__(self, layout: Layout, present: int) -> None:
        expansion = expand(layout, present)
        _, kernel = rank_and_kernel(expansion.equations)
        absent = [i for i in range(layout.length) if not present >> i & 1]
        self._row = {position: row for row, position in enumerate(absent)}
        self._basis = _multiply(expansion.values[absent], kernel) if kernel.shape[1] else kernel

    @property
    def dimension(self) -> int:
        """How many more well-placed results are needed; 0 when the data is determined."""
        return int(self._basis.shape[1])

    def add(self, position: int) -> None:
        """Record that ``position`` has arrived."""
        place = self._row[position]
        row = self._basis[place]
        hits = row.nonzero()[0]
        if not len(hits):
            return
        c = int(hits[0])
        column = self._basis[:, c] * pow(int(row[c]), -1, PRIME) % PRIME
        rest = np.delete(self._basis, c, axis=1)
        others = rest[place]
        self._basis = (rest - column[:, None] * others) % PRIME if others.any() else rest


def undetermined_positions(layout: Layout, present: int) -> Array:
    """Boolean per position: whether its value (plain codes: that of the transform's input) is still open.

    Two random combinations stand for the whole null space, which is large when little has arrived: a position is
    missed only if both vanish there by chance, 2**-62.
    """
    expansion = expand(layout, present)
    _, kernel = rank_and_kernel(expansion.equations)
    weights = np.random.default_rng(0).integers(1, PRIME, size=(kernel.shape[1], 2))
    sample = _multiply(expansion.values, _multiply(kernel, weights))
    if not layout.systematic:
        sample = _transform_input(layout, sample)
    undetermined: Array = np.asarray(sample.any(axis=1))
    return undetermined


def _transform_input(layout: Layout, codewords: Array) -> Array:
    """Undo the plain transform modulo `PRIME`."""
    u = codewords
    if layout.kernel == "hadamard":  # the same codewords up to signs
        odd = [i.bit_count() & 1 for i in range(layout.length)]
        u = np.where(np.array(odd, dtype=bool)[:, None], -u, u)
    for half, _ in layout.stages:
        pairs = u.reshape(-1, 2, half, u.shape[1])
        first, second = pairs[:, 0], pairs[:, 1]
        low = first - second if layout.kernel == "binary" else first + second
        high = second if layout.kernel == "binary" else first - second
        u = np.stack([low, high], axis=1).reshape(u.shape) % PRIME
    return u
