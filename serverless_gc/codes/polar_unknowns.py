"""Inactivation on structure alone: which results leave which data undetermined, exactly.

The decoding tree is walked with every arrived value taken as zero. A data leaf that sequential decoding cannot
resolve becomes a *symbol*; a frozen leaf that it can compute becomes an *equation* among symbols. The codewords that
vanish on all arrived positions are then the solutions of that small system, so the arrivals determine the data exactly
when the equations have full column rank. Ranks are taken modulo a prime on exact integers, never in floating point.
"""

from __future__ import annotations

import numpy as np

from serverless_gc.codes.polar_layout import Layout, Node
from serverless_gc.types import Array, FloatArray

__all__ = ["PRIME", "Expansion", "NullSpace", "expand", "rank_and_kernel", "undetermined_positions"]

PRIME = 2147483629
"""Modulus of the exact rank: products of two residues fit int64."""

_EXACT = 2.0**100
"""Squared bound below which float64 sums of two integers are exact, with room to spare."""


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

    __slots__ = ("_modular", "_rows", "_used", "checks", "equations", "exact", "symbols", "values")

    def __init__(self, layout: Layout, present: int, *, modular: bool) -> None:
        recovered = layout.recoverable(present)
        self.symbols = (layout.info_mask & ~recovered).bit_count()
        self._modular = modular
        self._used = 0
        self._rows: list[Array] = []
        self.checks: list[int] = []
        self.exact = True
        width = layout.length
        raw = np.frombuffer(present.to_bytes(max(width // 8, 1), "little"), dtype=np.uint8)
        valid = np.unpackbits(raw, bitorder="little")[:width].astype(bool)
        values = self._walk(layout.tree, valid, None)
        shape = (width, self.symbols)
        self.values: Array = np.zeros(shape, dtype=self._dtype) if values is None else values
        self.equations: Array = np.vstack(self._rows) if self._rows else np.zeros((0, self.symbols), dtype=self._dtype)

    @property
    def _dtype(self) -> type:
        return np.int64 if self._modular else np.float64

    def _checked(self, a: Array) -> Array:
        """Reduce modulo the prime, or watch that float64 stays exact."""
        if self._modular:
            return a % PRIME
        flat = a.reshape(-1)
        if flat @ flat >= _EXACT:
            self.exact = False
        return a

    def _symbols(self, places: Array, values: Array | None, size: int) -> Array:
        """Give each of the places a new symbol."""
        out = np.zeros((size, self.symbols), dtype=self._dtype) if values is None else values
        out[places] = 0
        out[places, np.arange(self._used, self._used + len(places))] = 1
        self._used += len(places)
        return out

    def _equate(self, node: Node, places: Array, rows: Array) -> None:
        self._rows.append(rows)
        self.checks.extend((node.start + places).tolist())

    def _walk(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        """Return the node's codeword in symbols; None stands for all zeros."""
        if not self._used and valid.all():
            return None
        kind = node.kind
        if kind == "frozen":
            if self._used:
                places = valid.nonzero()[0]
                if len(places):
                    rows = np.zeros((len(places), self.symbols), self._dtype) if values is None else values[places]
                    self._equate(node, places, rows)
            return None
        if kind == "info":
            lost = (~valid).nonzero()[0]
            return self._symbols(lost, values, node.size) if len(lost) else values
        if kind == "repeat":
            return self._repeat(node, valid, values)
        return self._split(node, valid, values)

    def _repeat(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        places = valid.nonzero()[0]
        if not len(places):
            column = self._symbols(np.array([0]), None, 1)
            return np.repeat(column, node.size, axis=0)
        if values is None:
            values = np.zeros((node.size, self.symbols), dtype=self._dtype)
        if self._used and len(places) > 1:
            rest = places[:-1]
            self._equate(node, rest, self._checked(values[rest] - values[places[-1]]))
        return np.repeat(values[places[-1:]], node.size, axis=0)

    def _split(self, node: Node, valid: Array, values: Array | None) -> Array | None:
        left, right = node.halves
        half = left.size
        va, vb = valid[:half], valid[half:]
        a = b = None
        if values is not None:
            a, b = values[:half], values[half:]
        first = None
        if a is not None and b is not None and left.kind != "info":
            first = self._checked(a - b)
        elif a is not None and b is not None:
            first = a - b
        xa = self._walk(left, va & vb, first)
        second = self._second(vb, a, b, xa)
        xb = self._walk(right, va | vb, second)
        if xa is None and xb is None and a is None:
            return None
        out = np.zeros((node.size, self.symbols), dtype=self._dtype)
        if xb is not None:
            out[half:] = xb
            out[:half] = xb
        if xa is not None:
            out[:half] += xa
        if a is not None and va.any():
            out[:half][va] = a[va]
        elif a is None:
            out[:half][va] = 0
        return self._checked(out)

    def _second(self, vb: Array, a: Array | None, b: Array | None, xa: Array | None) -> Array | None:
        """Input of the second half: ``b`` where it is there, else ``a - xa``."""
        if xa is None:
            if a is None or b is None:
                return None
            return np.where(vb[:, None], b, a)
        second = -xa if a is None else a - xa
        if b is None:
            second[vb] = 0
        else:
            second[vb] = b[vb]
        return self._checked(second)


def expand(layout: Layout, present: int) -> Expansion:
    """Expand positions and equations in symbols; exact integers, modulo `PRIME` only where float64 would round."""
    expansion = Expansion(layout, present, modular=False)
    return expansion if expansion.exact else Expansion(layout, present, modular=True)


def rank_and_kernel(equations: Array) -> tuple[int, Array]:
    """Rank modulo `PRIME`, and a basis of the right kernel as columns of residues."""
    m = (np.asarray(equations) % PRIME).astype(np.int64)
    rows, columns = m.shape
    pivots: list[int] = []
    r = 0
    for c in range(columns):
        if r == rows:
            break
        hits = m[r:, c].nonzero()[0]
        if not len(hits):
            continue
        p = r + int(hits[0])
        if p != r:
            m[[r, p]] = m[[p, r]]
        m[r, c:] = m[r, c:] * pow(int(m[r, c]), -1, PRIME) % PRIME
        factors = m[:, c].copy()
        factors[r] = 0
        touched = factors.nonzero()[0]
        if len(touched):
            m[touched, c:] = (m[touched, c:] - factors[touched, None] * m[r, c:]) % PRIME
        pivots.append(c)
        r += 1
    chosen = set(pivots)
    free = [c for c in range(columns) if c not in chosen]
    kernel = np.zeros((columns, len(free)), dtype=np.int64)
    if free:
        kernel[free, np.arange(len(free))] = 1
        kernel[pivots] = (-m[:r, free]) % PRIME
    return r, kernel


def _multiply(a: Array, b: Array) -> Array:
    """``a @ b`` modulo `PRIME`, column by column so that nothing overflows."""
    a = (a % PRIME).astype(np.int64)
    out = np.empty((a.shape[0], b.shape[1]), dtype=np.int64)
    for j in range(b.shape[1]):
        out[:, j] = (a * b[:, j] % PRIME).sum(axis=1) % PRIME
    return out


class NullSpace:
    """Codewords that vanish on every arrived position, modulo `PRIME`; shrinks as results arrive.

    Parameters
    ----------
    layout
        The code.
    present
        Mask of the positions known so far.
    """

    __slots__ = ("_basis",)

    def __init__(self, layout: Layout, present: int) -> None:
        expansion = expand(layout, present)
        _, kernel = rank_and_kernel(expansion.equations)
        self._basis = _multiply(expansion.values, kernel)

    @property
    def dimension(self) -> int:
        """How many more well-placed results are needed; 0 when the data is determined."""
        return self._basis.shape[1]

    def add(self, position: int) -> None:
        """Record that ``position`` has arrived."""
        row = self._basis[position]
        hits = row.nonzero()[0]
        if not len(hits):
            return
        c = int(hits[0])
        column = self._basis[:, c] * pow(int(row[c]), -1, PRIME) % PRIME
        rest = np.delete(self._basis, c, axis=1)
        others = rest[position]
        self._basis = (rest - column[:, None] * others) % PRIME if others.any() else rest

    def undetermined(self) -> FloatArray:
        """Boolean per position: whether its value is still open."""
        return self._basis.any(axis=1)


def undetermined_positions(layout: Layout, present: int) -> Array:
    """Boolean per position: whether its value (plain codes: that of the transform's input) is still open.

    Two random combinations stand for the whole null space, which is large when little has arrived: a position is missed
    only if both vanish there by chance, 2**-62.
    """
    expansion = expand(layout, present)
    _, kernel = rank_and_kernel(expansion.equations)
    weights = np.random.default_rng(0).integers(1, PRIME, size=(kernel.shape[1], 2))
    sample = _multiply(expansion.values, _multiply(kernel, weights))
    if not layout.systematic:
        sample = _transform_input(layout, sample)
    return sample.any(axis=1)


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
